"""Ranks behind one page, and requests that go from prefill to decode replicas."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from enginetop.fleet.errors import ConfigError
from enginetop.fleet.model import Role
from enginetop.fleet.snapshot import Slo
from enginetop.simulator.cases import QWEN_ENGINE
from enginetop.simulator.faults import Fault, FaultKind
from enginetop.simulator.fleet_model import FleetModel
from enginetop.simulator.replica import SimulatedReplica
from enginetop.simulator.scenario import Lengths, Pool, ReplicaPlan, Scenario, Traffic
from tests.unit.simulator.read_page import ReadPage

TRAFFIC = Traffic(
    requests_per_second=3.0, prompt_tokens=Lengths(1500, 0.5), answer_tokens=Lengths(80, 0.5), abort_ratio=0.1
)
PREFILL = ReplicaPlan(replace(QWEN_ENGINE, role=Role.PREFILL), TRAFFIC)
DECODE = ReplicaPlan(replace(QWEN_ENGINE, role=Role.DECODE), TRAFFIC)
SPLIT = Scenario(
    "split",
    "",
    (Pool("p", (PREFILL,), 2), Pool("d", (DECODE,), 3)),
    Slo(0.25, 0.05),
    replicas=5,
    transfer_seconds=0.03,
)


def fleet_of(scenario: Scenario, *looks: float) -> FleetModel:
    fleet = FleetModel(scenario, scenario.replicas, seed=4, epoch=0.0, warm_up_seconds=0.0)
    for second in looks:
        fleet.advance(second)
    return fleet


@pytest.fixture(scope="module")
def split() -> FleetModel:
    return fleet_of(SPLIT, 60.0)


def of_role(fleet: FleetModel, role: Role) -> list[SimulatedReplica]:
    return [replica for replica in fleet.replicas if replica.plan.engine.role is role]


def test_replicas_are_shared_out_by_the_sizes_of_the_pools() -> None:
    assert [name for name, _ in SPLIT.plans(5)] == ["p1", "p2", "d1", "d2", "d3"]
    assert [name for name, _ in SPLIT.plans(10)] == [f"p{n}" for n in range(1, 5)] + [
        f"d{n}" for n in range(1, 7)
    ]
    with pytest.raises(ConfigError, match="leave none for role prefill"):
        SPLIT.plans(1)


def test_pools_that_hand_over_need_each_other() -> None:
    for pool in (Pool("p", (PREFILL,)), Pool("d", (DECODE,))):
        with pytest.raises(ConfigError, match="need each other"):
            Scenario("x", "", (pool,))


def test_every_request_goes_on_at_a_decode_replica_after_the_transfer(split: FleetModel) -> None:
    begun = sorted(
        (r.last_token_at or 0.0, r.drawn.prompt_tokens, r.drawn.arrival_at)
        for replica in of_role(split, Role.PREFILL)
        for engine in replica.engines
        for r in engine.finished
    )
    gone_on = sorted(
        (r.drawn.arrival_at, r.drawn.prompt_tokens, r.drawn.asked_at or -1.0)
        for replica in of_role(split, Role.DECODE)
        for engine in replica.engines
        for r in [*engine.finished, *engine.unfinished()]
    )
    arrived = [one for one in begun if one[0] + 0.03 <= 59.9]
    assert len(arrived) > 300
    for (ended, prompt, asked), (arrival, same_prompt, same_asked) in zip(arrived, gone_on, strict=False):
        assert arrival == pytest.approx(ended + 0.03)
        assert (same_prompt, same_asked) == (prompt, asked)
    counts = [len(replica.engines[0].finished) for replica in of_role(split, Role.DECODE)]
    assert max(counts) - min(counts) < 20, "dealt in turn"


def test_a_decode_engine_computes_one_token_of_the_prompt(split: FleetModel) -> None:
    for replica in of_role(split, Role.DECODE):
        (engine,) = replica.engines
        assert {request.prompt_tokens_computed for request in engine.finished} == {1}
        page = ReadPage.of(replica.page())
        by_source = page.by_label("vllm:prompt_tokens_by_source_total", "source")
        done = page.value("vllm:time_to_first_token_seconds_count")
        assert by_source["local_compute"] == done
        assert by_source["external_kv_transfer"] == page.value("vllm:prompt_tokens_total") - done


def test_the_client_is_judged_once_from_its_asking_to_the_end(split: FleetModel) -> None:
    prefill, decode = of_role(split, Role.PREFILL), of_role(split, Role.DECODE)
    assert all(replica.truth.judged == 0 for replica in prefill)
    for replica in prefill:
        page = ReadPage.of(replica.page())
        assert sum(page.by_label("enginetop_requests_total", "outcome").values()) == 0
        assert page.by_label("vllm:request_success_total", "finished_reason")["length"] > 100
    for replica in decode:
        (engine,) = replica.engines
        asked = [r.drawn.asked_at for r in engine.finished]
        assert None not in asked
        good = sum(
            r.finish_reason != "abort"
            and (r.first_token_at or 0.0) - (r.drawn.asked_at or 0.0) <= 0.25
            and r.tpot_seconds <= 0.05
            for r in engine.finished
        )
        assert replica.truth.within_slo == good
        assert 0.2 * len(engine.finished) < good < 0.8 * len(engine.finished)
        # Seen from the decode engine alone everybody would have been in time.
        assert max(r.ttft_seconds for r in engine.finished) < 0.25


def test_decode_replicas_never_pay_for_prompts(split: FleetModel) -> None:
    prefill, decode = of_role(split, Role.PREFILL), of_role(split, Role.DECODE)
    longest = max(step.seconds for replica in prefill for step in replica.engines[0].steps)
    longest_decode = max(step.seconds for replica in decode for step in replica.engines[0].steps)
    assert longest > 0.06
    assert longest_decode < 0.02


def test_the_split_does_not_depend_on_when_one_looks() -> None:
    faults = ((3, Fault(FaultKind.DOWN, 10.0, 6.0)), (1, Fault(FaultKind.DOWN, 14.0, 3.0)))
    scenario = replace(SPLIT, faults=faults)
    once, often = fleet_of(scenario, 25.0), fleet_of(scenario, *(n / 7 for n in range(176)))
    often.advance(25.0)
    assert [r.page() for r in once.replicas] == [r.page() for r in often.replicas]
    assert [r.truth.lost for r in once.replicas] == [r.truth.lost for r in often.replicas]
    # A third of 6 requests a second for 6 s was dealt to the dead decode replica.
    assert once.replicas[2].truth.lost > 6


def test_ranks_stand_behind_one_page_and_share_the_load_by_weight() -> None:
    plan = ReplicaPlan(
        replace(QWEN_ENGINE, ranks=3, gpus=6), replace(TRAFFIC, rank_weights=(4.0, 1.0, 1.0))
    ).with_traffic(requests_per_second=6.0)
    replica = SimulatedReplica("r", plan, Slo(), seed=1, epoch=0.0)
    replica.advance(100.0)
    page = replica.page()
    assert page is not None
    for rank, engine in enumerate(replica.engines):
        line = f'vllm:generation_tokens_total{{engine="{rank}",model_name="Qwen3-32B"}} '
        (found,) = [text for text in page.decode().splitlines() if text.startswith(line)]
        assert float(found.removeprefix(line)) == engine.metrics.generation_tokens
    arrived = [engine.metrics.request_samples.count for engine in replica.engines]
    # 4, 1 and 1 of six requests a second.
    for count, expected in zip(arrived, (400, 100, 100), strict=True):
        assert abs(count - expected) < 4 * math.sqrt(expected) + 15
    assert replica.truth.judged == sum(arrived)
    assert page.decode().count("process_start_time_seconds ") == 3, "one process: HELP, TYPE and one sample"


def test_weights_must_fit_the_ranks() -> None:
    with pytest.raises(ConfigError, match="rank_weights has 2 numbers for ranks = 3"):
        ReplicaPlan(replace(QWEN_ENGINE, ranks=3), replace(TRAFFIC, rank_weights=(1.0, 2.0)))
