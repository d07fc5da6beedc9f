"""The built-in scenarios do what their lines in the list say, and bad ones are refused."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import pytest

from enginetop.fleet.errors import ConfigError
from enginetop.fleet.snapshot import Slo
from enginetop.simulator.builtin import DEFAULT_SCENARIO, SCENARIOS, scenario_named
from enginetop.simulator.faults import outage
from enginetop.simulator.fleet_model import FleetModel
from enginetop.simulator.model import EngineModel
from enginetop.simulator.replica import SimulatedReplica
from enginetop.simulator.scenario import EngineSettings, Pool, ReplicaPlan, Scenario

STEADY = SCENARIOS["steady"].pools[0].members[0]


def fleet(name: str, replicas: int = 12, to: float = 0.0) -> FleetModel:
    model = FleetModel(scenario_named(name), replicas, seed=1, epoch=1.7e9, warm_up_seconds=60.0)
    model.advance(to)
    return model


def engines(model: FleetModel) -> dict[str, EngineModel]:
    return {replica.name: replica.engine for replica in model.replicas if replica.engine is not None}


def median_tpot(engine: EngineModel) -> float:
    return statistics.median(request.tpot_seconds for request in engine.finished)


def attainment(engine: EngineModel) -> float:
    return engine.metrics.within_slo / sum(engine.metrics.finished.values())


@pytest.fixture(scope="module")
def demo() -> dict[str, EngineModel]:
    """The engines of the demo after 45 s, before its first crash."""
    return engines(fleet(DEFAULT_SCENARIO, to=45.0))


def test_the_demo_has_two_models_in_two_pools(demo: dict[str, EngineModel]) -> None:
    assert list(demo) == [f"{pool}{number}" for pool in "ab" for number in range(1, 7)]
    assert {name[0]: engine.settings.model for name, engine in demo.items()} == {
        "a": "Qwen3-32B",
        "b": "Llama-3.3-70B",
    }


def test_in_the_demo_one_replica_preempts(demo: dict[str, EngineModel]) -> None:
    assert {name for name, engine in demo.items() if engine.metrics.preemptions} == {"a3"}


def test_in_the_demo_one_replica_breaks_the_default_tpot(demo: dict[str, EngineModel]) -> None:
    slow = {name for name, engine in demo.items() if median_tpot(engine) > Slo().tpot_seconds}
    assert slow == {"b4"}
    assert demo["b4"].settings.gpu_throttled


def test_in_the_demo_three_replicas_speculate_and_are_faster(demo: dict[str, EngineModel]) -> None:
    speculating = {name for name, engine in demo.items() if engine.metrics.speculation.drafts}
    assert speculating == {"a5", "b1", "b2"}
    assert median_tpot(demo["a5"]) < 0.7 * median_tpot(demo["a2"])


def test_goodput_of_the_demo_is_real_but_not_perfect(demo: dict[str, EngineModel]) -> None:
    healthy = [attainment(engine) for name, engine in demo.items() if name not in {"a3", "b4"}]
    assert 0.85 < statistics.mean(healthy) < 0.995
    assert attainment(demo["b4"]) < 0.5


def test_in_the_demo_one_replica_crashes_every_five_minutes() -> None:
    (name, plan), *others = [
        (name, plan) for name, plan in scenario_named(DEFAULT_SCENARIO).plans(12) if plan.faults
    ]
    assert (name, others) == ("b6", [])
    replica = SimulatedReplica(name, plan, Slo(), seed=1, epoch=0.0)
    up = []
    for second in (59.0, 61.0, 104.0, 106.0, 359.0, 361.0, 406.0):
        replica.advance(second)
        up.append(bool(replica.engines))
    assert up == [True, False, False, True, True, False, True]


def test_steady_is_healthy() -> None:
    for engine in engines(fleet("steady", 4, to=120.0)).values():
        assert engine.metrics.preemptions == 0
        assert attainment(engine) > 0.85


def test_kv_pressure_presses_everywhere() -> None:
    for engine in engines(fleet("kv-pressure", 4, to=300.0)).values():
        assert engine.metrics.preemptions > 0.02 * len(engine.finished)


def test_a_burst_queues_and_drains() -> None:
    model = fleet("burst", 2)
    waiting: dict[str, list[int]] = {}
    for second in range(10, 800, 10):
        model.advance(float(second))
        for name, engine in engines(model).items():
            waiting.setdefault(name, []).append(len(engine.waiting))
    for counts in waiting.values():
        assert max(counts) > 20
        assert counts.count(0) > 10


def test_flapping_flaps_every_third() -> None:
    model = fleet("flapping", 6, to=25.0)
    assert [replica.name for replica in model.replicas if replica.engine is None] == ["a3", "a6"]
    model.advance(45.0)
    assert len(engines(model)) == 6


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_scenario_is_listed_in_one_line(name: str) -> None:
    scenario = SCENARIOS[name]
    assert scenario.name == name
    assert 0 < len(scenario.summary) <= 110
    assert "\n" not in scenario.summary


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="no scenario 'stedy'; there are: demo, steady"):
        scenario_named("stedy")


def test_replicas_are_shared_out_over_the_pools() -> None:
    names = [name for name, _ in SCENARIOS["demo"].plans(15)]
    assert names == [*(f"a{number}" for number in range(1, 9)), *(f"b{number}" for number in range(1, 8))]
    plans = dict(SCENARIOS["demo"].plans(15))
    assert plans["a7"] == plans["a1"]
    assert [name for name, _ in SCENARIOS["demo"].plans(1)] == ["a1"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SCENARIOS["demo"].plans(0), "at least 1 replica"),
        (lambda: STEADY.with_engine(num_speculative_tokens=2), "acceptance has 0 numbers"),
        (lambda: STEADY.with_engine(num_speculative_tokens=2, acceptance=(0.4, 0.5)), "never rise"),
        (lambda: STEADY.with_engine(num_speculative_tokens=1, acceptance=(1.2,)), "between 0 and 1"),
        (lambda: STEADY.with_engine(num_speculative_tokens=1, acceptance=(-0.1,)), "between 0 and 1"),
        (lambda: STEADY.with_engine(max_num_batched_tokens=255), "below max_num_seqs"),
        (lambda: STEADY.with_engine(kv_blocks=2048), "cannot hold one request"),
        (lambda: outage(0.0, every_seconds=10.0, for_seconds=10.0), "shorter"),
    ],
)
def test_what_cannot_work_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


def test_one_request_of_full_length_fits_exactly() -> None:
    # 32768 tokens and the next one take 2049 blocks of 16.
    settings: EngineSettings = STEADY.with_engine(kv_blocks=2049).engine
    assert settings.kv_capacity_tokens == 32784


def test_a_scenario_carries_its_slo_to_the_page() -> None:
    scenario = Scenario("s", "s", (Pool("a", (STEADY,)),), Slo(ttft_seconds=0.25, tpot_seconds=0.02))
    model = FleetModel(scenario, 1, seed=1, epoch=0.0, warm_up_seconds=10.0)
    page = model.replicas[0].page()
    assert page is not None
    assert (
        b'enginetop_requests_within_slo_total{engine="0",model_name="Qwen3-32B",tpot_seconds="0.02",' in page
    )


def test_seeds_make_fleets_and_replicas_differ() -> None:
    def pages(seed: int) -> list[bytes | None]:
        model = FleetModel(scenario_named("steady"), 3, seed, epoch=1.7e9, warm_up_seconds=20.0)
        return [replica.page() for replica in model.replicas]

    first = pages(1)
    assert pages(1) == first
    assert all(one != other for one, other in zip(first, pages(2), strict=True))
    assert len(set(first)) == 3


def test_a_plan_is_a_value() -> None:
    assert ReplicaPlan(STEADY.engine, STEADY.traffic) == STEADY
