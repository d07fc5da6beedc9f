"""Every kind of fault really acts, for its time, and leaves the replica as it was."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from enginetop.fleet.errors import ConfigError
from enginetop.fleet.snapshot import Slo
from enginetop.simulator.cases import QWEN_ENGINE
from enginetop.simulator.faults import Fault, FaultKind, outage
from enginetop.simulator.model import EngineModel
from enginetop.simulator.replica import SimulatedReplica
from enginetop.simulator.scenario import Lengths, ReplicaPlan, Traffic
from tests.unit.simulator.read_page import ReadPage

PLAN = ReplicaPlan(
    QWEN_ENGINE,
    Traffic(requests_per_second=4.0, prompt_tokens=Lengths(300, 0.5), answer_tokens=Lengths(60, 0.5)),
)


def replica_with(*faults: Fault) -> SimulatedReplica:
    return SimulatedReplica("r", PLAN.with_faults(*faults), Slo(), seed=5, epoch=0.0)


def engine_of(replica: SimulatedReplica) -> EngineModel:
    assert replica.engine is not None
    return replica.engine


def longest_step(engine: EngineModel) -> float:
    return max(step.seconds for step in engine.steps)


def test_down_kills_loses_what_is_in_flight_and_comes_back_cold() -> None:
    replica = replica_with(Fault(FaultKind.DOWN, 30.0, 10.0))
    replica.advance(29.999)
    engine = engine_of(replica)
    in_flight = len(engine.unfinished())
    judged = replica.truth.judged
    assert in_flight > 0
    replica.advance(30.0)
    assert replica.engines == ()
    assert replica.page() is None
    assert replica.truth.lost in (in_flight, in_flight + 1)
    assert replica.truth.judged >= judged + in_flight
    replica.advance(40.0)
    assert engine_of(replica) is not engine
    assert (replica.life_at, replica.lives) == (40.0, 2)


def test_a_longer_outage_is_not_ended_by_a_shorter_one() -> None:
    replica = replica_with(Fault(FaultKind.DOWN, 10.0, 30.0), Fault(FaultKind.DOWN, 15.0, 5.0))
    replica.advance(25.0)
    assert replica.engines == ()
    replica.advance(40.0)
    assert (replica.life_at, replica.lives) == (40.0, 2)


def test_hang_stands_still_and_then_works_off() -> None:
    replica, healthy = replica_with(Fault(FaultKind.HANG, 30.0, 8.0)), replica_with()
    replica.advance(30.0)
    page = replica.page()
    replica.advance(37.9)
    still = ReadPage.of(replica.page())
    before = ReadPage.of(page)
    for name in ("vllm:generation_tokens_total", "vllm:iteration_tokens_total_count"):
        assert still.value(name) == before.value(name)
    replica.advance(90.0)
    healthy.advance(90.0)
    # One step took the 8 s, and everybody who waited got his answer later.
    assert 8.0 < longest_step(engine_of(replica)) < 8.5
    assert engine_of(replica).metrics.finished["stop"] == pytest.approx(
        engine_of(healthy).metrics.finished["stop"], abs=12
    )
    assert replica.truth.within_slo < healthy.truth.within_slo - 10


def test_a_hang_of_an_idle_engine_delays_its_next_request() -> None:
    quiet = PLAN.with_traffic(requests_per_second=0.05).with_faults(Fault(FaultKind.HANG, 0.0, 200.0))
    replica = SimulatedReplica("r", quiet, Slo(), seed=5, epoch=0.0)
    replica.advance(199.0)
    assert not engine_of(replica).steps
    replica.advance(230.0)
    assert min(request.first_token_at or 0.0 for request in engine_of(replica).finished) > 200.0


def test_unresponsive_works_on_behind_the_wall() -> None:
    replica = replica_with(Fault(FaultKind.UNRESPONSIVE, 10.0, 5.0))
    replica.advance(12.0)
    tokens = engine_of(replica).metrics.generation_tokens
    assert not replica.answers
    replica.advance(14.9)
    assert engine_of(replica).metrics.generation_tokens > tokens
    replica.advance(15.0)
    assert replica.answers


def test_slow_stretches_every_step_for_its_time() -> None:
    replica, healthy = replica_with(Fault(FaultKind.SLOW, 30.0, 30.0, factor=2.5)), replica_with()
    for one in (replica, healthy):
        one.advance(59.0)
    slow, usual = engine_of(replica), engine_of(healthy)
    decode_only = [step.seconds for step in slow.steps if step.tokens == step.decoding]
    assert min(step.seconds for step in usual.steps) > 0.012
    assert sum(seconds > 0.030 for seconds in decode_only) > 500
    steps = len(slow.steps)
    replica.advance(90.0)
    latest = [step.seconds for step in list(slow.steps)[steps + 200 :] if step.tokens == step.decoding]
    assert max(latest) < 0.030


def test_reset_empties_the_counters_of_a_process_that_lives_on() -> None:
    replica = replica_with(Fault(FaultKind.RESET, 30.0))
    replica.advance(29.9)
    before, running = ReadPage.of(replica.page()), engine_of(replica)
    replica.advance(30.5)
    after = ReadPage.of(replica.page())
    assert engine_of(replica) is running
    assert after.value("process_start_time_seconds") == before.value("process_start_time_seconds")
    assert after.value("vllm:generation_tokens_total") < before.value("vllm:generation_tokens_total") / 10
    assert replica.truth.judged > after.value("vllm:request_prompt_tokens_count")


def test_errors_fail_their_share_and_are_judged() -> None:
    replica = replica_with(Fault(FaultKind.ERRORS, 30.0, 100.0, ratio=0.3))
    replica.advance(30.0)
    assert replica.truth.outcomes["error"] == 0
    earlier = replica.truth.judged
    replica.advance(130.0)
    failed, judged = replica.truth.outcomes["error"], replica.truth.judged - earlier
    assert abs(failed - 0.3 * judged) < 4 * math.sqrt(0.21 * judged)
    replica.advance(140.0)
    failed = replica.truth.outcomes["error"]
    replica.advance(200.0)
    assert replica.truth.outcomes["error"] == failed


def test_misses_cost_attainment_and_nothing_else() -> None:
    spoilt, healthy = replica_with(Fault(FaultKind.MISSES, 0.0, math.inf, ratio=0.2)), replica_with()
    for one in (spoilt, healthy):
        one.advance(200.0)
    assert list(engine_of(spoilt).steps) == list(engine_of(healthy).steps)
    assert spoilt.truth.judged == healthy.truth.judged
    missed = healthy.truth.within_slo - spoilt.truth.within_slo
    assert missed == spoilt.truth.missed
    good = healthy.truth.within_slo
    assert abs(missed - 0.2 * good) < 4 * math.sqrt(0.16 * good)


def test_surge_multiplies_arrivals() -> None:
    replica, healthy = replica_with(Fault(FaultKind.SURGE, 30.0, 60.0, factor=2.0)), replica_with()
    arrived = []
    for one in (replica, healthy):
        one.advance(30.0)
        before = one.truth.judged
        one.advance(90.0)
        arrived.append(one.truth.judged - before)
    # 8 against 4 requests a second for 60 s.
    assert abs(arrived[0] - 480) < 4 * math.sqrt(480)
    assert abs(arrived[1] - 240) < 4 * math.sqrt(240)


def test_faults_of_a_kind_add_up_and_outlive_a_restart() -> None:
    replica = replica_with(
        Fault(FaultKind.SLOW, 0.0, 1000.0, factor=2.0),
        Fault(FaultKind.SLOW, 0.0, 1000.0, factor=3.0),
        Fault(FaultKind.DOWN, 10.0, 5.0),
    )
    replica.advance(40.0)
    assert replica.lives == 2
    # A step takes at least 12 ms, six times over.
    assert min(step.seconds for step in engine_of(replica).steps) > 0.072


def test_a_fault_that_comes_again_and_again() -> None:
    replica = replica_with(Fault(FaultKind.UNRESPONSIVE, 10.0, 5.0, every_seconds=20.0))
    seen = []
    for second in (9.0, 11.0, 16.0, 31.0, 36.0, 131.0):
        replica.advance(second)
        seen.append(replica.answers)
    assert seen == [True, False, True, False, True, False]


def test_injected_faults_act_at_their_time_or_at_once() -> None:
    replica = replica_with()
    replica.advance(20.0)
    replica.inject(Fault(FaultKind.UNRESPONSIVE, 5.0, 10.0))
    replica.advance(20.0)
    assert not replica.answers
    replica.advance(30.0)
    assert replica.answers


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: outage(0.0, every_seconds=10.0, for_seconds=10.0), "shorter"),
        (lambda: Fault(FaultKind.HANG, 1.0), "for_seconds above 0"),
        (lambda: Fault(FaultKind.SLOW, 1.0, 1.0, factor=0.0), "above 0"),
        (lambda: Fault(FaultKind.ERRORS, 1.0, 1.0, ratio=1.5), "between 0 and 1"),
    ],
)
def test_a_fault_that_makes_no_sense_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


def test_every_kind_is_tried_above() -> None:
    """A kind that is added needs a test that it acts."""
    assert {kind.value for kind in FaultKind} == {
        "down",
        "hang",
        "unresponsive",
        "slow",
        "reset",
        "errors",
        "misses",
        "surge",
    }
