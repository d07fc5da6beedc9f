"""Lives, deaths and loads of one replica."""

from __future__ import annotations

import statistics
from collections import Counter

import pytest

from enginetop.fleet.snapshot import Slo
from enginetop.simulator.builtin import SCENARIOS
from enginetop.simulator.faults import Fault, FaultKind, outage
from enginetop.simulator.load_meter import Load
from enginetop.simulator.replica import SimulatedReplica
from enginetop.simulator.scenario import Arrival, Lengths
from tests.unit.simulator.read_page import ReadPage

STEADY = SCENARIOS["steady"].pools[0].members[0]
EPOCH = 1_764_446_400.0


def replica_of(*faults: Fault, begun_at: float = 0.0) -> SimulatedReplica:
    return SimulatedReplica("r", STEADY.with_faults(*faults), Slo(), 3, EPOCH, begun_at)


def test_a_dead_replica_has_no_page_and_comes_back_with_empty_counters() -> None:
    replica = replica_of(outage(at_seconds=30.0, every_seconds=100.0, for_seconds=20.0))
    replica.advance(29.0)
    before = ReadPage.of(replica.page())
    assert before.value("vllm:generation_tokens_total") > 1000
    replica.advance(30.0)
    assert replica.page() is None
    replica.advance(49.9)
    assert replica.page() is None
    replica.advance(52.0)
    after = ReadPage.of(replica.page())
    assert after.value("vllm:generation_tokens_total") < before.value("vllm:generation_tokens_total") / 4
    assert before.value("process_start_time_seconds") == EPOCH
    assert after.value("process_start_time_seconds") == EPOCH + 50.0
    assert after.value("vllm:generation_tokens_created") == EPOCH + 50.0


def test_each_life_draws_its_own_requests() -> None:
    replica = replica_of(outage(at_seconds=20.0, every_seconds=40.0, for_seconds=20.0 - 1e-6))
    prompts = []
    for second in (20.0 - 1e-3, 60.0 - 1e-3, 100.0 - 1e-3):
        replica.advance(second)
        assert replica.engine is not None
        prompts.append(replica.engine.metrics.prompt_tokens)
    assert len(set(prompts)) == 3


def test_one_long_step_over_several_outages_is_many_short_ones() -> None:
    crashes = outage(at_seconds=5.0, every_seconds=10.0, for_seconds=3.0)
    long, short = replica_of(crashes), replica_of(crashes)
    long.advance(60.0)
    for second in range(61):
        short.advance(float(second))
    assert long.page() == short.page()
    assert long.life_at == 58.0


def test_time_never_runs_back() -> None:
    replica = replica_of()
    replica.advance(10.0)
    page = replica.page()
    replica.advance(5.0)
    assert replica.page() == page


def test_history_before_second_0() -> None:
    replica = replica_of(outage(at_seconds=0.0, every_seconds=100.0, for_seconds=10.0), begun_at=-30.0)
    replica.advance(-1.0)
    page = ReadPage.of(replica.page())
    assert page.value("process_start_time_seconds") == EPOCH - 30.0
    assert page.value("vllm:generation_tokens_total") > 1000
    replica.advance(0.0)
    assert replica.page() is None


def test_load_is_the_work_of_the_last_second_or_more() -> None:
    replica = replica_of(outage(at_seconds=100.0, every_seconds=200.0, for_seconds=10.0))
    assert replica.load() == Load(up=True, busy_ratio=0.0, compute_ratio=0.0)
    replica.advance(40.0)
    engine = replica.engine
    assert engine is not None
    load = replica.load()
    assert load.busy_ratio == pytest.approx(engine.busy_seconds / 40.0)
    metrics = engine.metrics
    computed = metrics.prompt_tokens - metrics.prompt_tokens_cached + metrics.generation_tokens
    # 55 microseconds a token, from the scenario.
    assert load.compute_ratio == pytest.approx(computed * 55e-6 / 40.0)
    busy = engine.busy_seconds
    replica.advance(40.9)
    assert replica.load() == load
    replica.advance(50.0)
    assert replica.load().busy_ratio == pytest.approx((engine.busy_seconds - busy) / 10.0)
    replica.advance(105.0)
    assert replica.load() == Load(up=False, busy_ratio=0.0, compute_ratio=0.0)
    replica.advance(120.0)
    assert replica.engine is not None
    assert replica.load().busy_ratio == pytest.approx(replica.engine.busy_seconds / 10.0)


def test_counters_that_begin_anew_are_no_work_undone() -> None:
    replica = replica_of(Fault(FaultKind.RESET, 40.0, 1.0))
    replica.advance(39.0)
    replica.load()
    replica.advance(45.0)
    load, engine = replica.load(), replica.engine
    assert engine is not None
    metrics = engine.metrics
    computed = metrics.prompt_tokens - metrics.prompt_tokens_cached + metrics.generation_tokens
    assert load.compute_ratio == pytest.approx(computed * 55e-6 / 6.0)


def test_replicas_of_a_model_have_their_bursts_together_whatever_became_of_them() -> None:
    """A burst is 7 times as busy as a lull. Counts of 2 s in equal spells correlate by .95: their rate of 16
    varies by 1.29 x 16^2 = 330 and their luck by 16; in spells of their own they do not.
    """
    bursty = STEADY.with_traffic(
        arrival=Arrival.BURSTY,
        burst_ratio=4.0,
        burst_seconds=2.0,
        requests_per_second=8.0,
        prompt_tokens=Lengths(20, 0.1),
        answer_tokens=Lengths(4, 0.1),
        reasoning_tokens=Lengths(0.0, 0.0),
        shared_prefix_ratio=0.0,
    )
    died = bursty.with_faults(outage(at_seconds=3.0, every_seconds=1e9, for_seconds=7.0))
    other = bursty.with_engine(model="another model")
    counts = [
        _arrivals(SimulatedReplica(name, plan, Slo(), 3, EPOCH))
        for name, plan in (("r1", bursty), ("r2", died), ("r3", other))
    ]
    assert statistics.correlation(counts[0], counts[1]) > 0.85
    assert abs(statistics.correlation(counts[0], counts[2])) < 0.4


def _arrivals(replica: SimulatedReplica) -> list[int]:
    """Requests that arrived in each two seconds of the fleet, from second 12 to 200."""
    replica.advance(205.0)
    assert replica.engine is not None
    moments = Counter(int(r.drawn.arrival_at + replica.life_at) // 2 for r in replica.engine.finished)
    return [moments[place] for place in range(6, 100)]
