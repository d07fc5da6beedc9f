"""The stepped world: virtual time, snapshots, knobs, faults, and the exact truth beside them."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from enginetop.fleet.knobs import KNOBS_PATH, KnobRow, parse_row, parse_sheet
from enginetop.fleet.model import Quality, ReplicaState
from enginetop.fleet.snapshot import Scalar
from enginetop.simulator.builtin import SCENARIOS, scenario_named
from enginetop.simulator.faults import Fault, FaultKind
from enginetop.simulator.stepped import EPOCH, SteppedWorld
from tests.support.stepped_control import degrade
from tests.unit.simulator.read_page import ReadPage

BUDGET = "max_num_batched_tokens"


def world_of(name: str = "budget-too-large", replicas: int = 2, **options: Any) -> SteppedWorld:
    return SteppedWorld(scenario_named(name), replicas, **options)


def ask(world: SteppedWorld, place: int, method: str, body: dict[str, Any] | None = None) -> Any:
    transport = world.transport(world.targets[place].url)
    assert transport is not None
    data = None if body is None else json.dumps(body).encode()
    answer = transport.request(method, KNOBS_PATH, data)
    assert answer.status == 200, answer
    return json.loads(answer.body)


def budget(world: SteppedWorld, place: int = 0) -> KnobRow:
    row = parse_sheet(ask(world, place, "GET")).knob(BUDGET)
    assert row is not None
    return row


def lower(world: SteppedWorld, value: int, ttl_seconds: float | None) -> KnobRow:
    body = {"knob": BUDGET, "value": value, "ttl_seconds": ttl_seconds, "change": "c", "reason": "test"}
    return parse_row(ask(world, 0, "PATCH", body))


def test_time_moves_by_advance_alone() -> None:
    world = world_of(tick_seconds=5.0)
    assert (world.now(), world.snapshot().at) == (EPOCH, EPOCH)
    world.advance(7.0)
    assert (world.now(), world.snapshot().at) == (EPOCH + 7.0, EPOCH + 5.0)
    world.advance()
    assert (world.now(), world.snapshot().at) == (EPOCH + 10.0, EPOCH + 10.0)
    world.advance(30.0)
    assert world.snapshot().sequence == 1 + 8


def test_a_snapshot_holds_the_exact_counts() -> None:
    world = world_of(replicas=2)
    first = {replica.target.name: replica.totals for replica in world.snapshot().replicas}
    truth = {name: (world.truth(name).judged, world.truth(name).within_slo) for name in first}
    world.advance(120.0)
    for replica in world.snapshot().replicas:
        name = replica.target.name
        assert replica.state is ReplicaState.OK
        assert replica.simulated
        judged, within = truth[name]
        gained = {key: value - first[name].get(key, 0.0) for key, value in replica.totals.items()}
        assert gained["requests_judged"] == world.truth(name).judged - judged
        assert gained["requests_within_slo"] == world.truth(name).within_slo - within
        assert replica.goodput is not None
        assert replica.goodput.quality is Quality.OK


@pytest.mark.parametrize("name", ["speculation-pays", "steady", "hot-rank"])
def test_readings_are_what_the_page_says(name: str) -> None:
    world = world_of(name, replicas=1)
    world.advance(100.0)
    (earlier,) = world.snapshot().replicas
    page = world.page(earlier.target.url)
    assert page is not None
    totals = {
        "requests_finished": "vllm:request_success_total",
        "generation_tokens": "vllm:generation_tokens_total",
        "prompt_tokens_processed": "vllm:prompt_tokens_total",
        "iteration_tokens.count": "vllm:iteration_tokens_total_count",
        "iteration_tokens.sum": "vllm:iteration_tokens_total_sum",
        "requests_judged": "enginetop_requests_total",
        "requests_within_slo": "enginetop_requests_within_slo_total",
    }
    now = {key: _sum_on_page(page, series) for key, series in totals.items()}
    world.advance(60.0)
    (replica,) = world.snapshot().replicas
    page = world.page(replica.target.url)
    assert page is not None
    later = {key: _sum_on_page(page, series) for key, series in totals.items()}
    for key in totals:
        assert replica.totals[key] - earlier.totals[key] == pytest.approx(later[key] - now[key]), key
    running = replica.signals["requests_running"]
    assert isinstance(running, Scalar)
    assert running.number == _sum_on_page(page, "vllm:num_requests_running")
    assert len(replica.ranks) == page.decode().count("vllm:num_requests_running{")


def _sum_on_page(page: bytes, name: str) -> float:
    lines = [line for line in page.decode().splitlines() if line.startswith(f"{name}{{")]
    assert lines, name
    return sum(float(line.rpartition(" ")[2]) for line in lines)


def test_equal_seeds_and_calls_make_equal_worlds() -> None:
    def story(seed: int, *steps: float) -> list[object]:
        world = world_of(seed=seed)
        for seconds in steps:
            world.advance(seconds)
        return [
            (truth.judged, truth.within_slo, truth.output_tokens)
            for truth in (world.truth(target.name) for target in world.targets)
        ] + [world.page(target.url) for target in world.targets]

    assert story(1, 60.0) == story(1, 10.0, 20.0, 30.0)
    assert story(1, 60.0) != story(2, 60.0)


def test_replicas_live_their_own_lives() -> None:
    alone, beside = world_of(replicas=1), world_of(replicas=3)
    beside.inject("a2", Fault(FaultKind.SLOW, 0.0, 100.0))
    for world in (alone, beside):
        world.advance(60.0)
    page, other = (world.page(world.targets[0].url) for world in (alone, beside))
    assert page == other
    assert beside.truth("a2").within_slo != beside.truth("a3").within_slo


def test_a_lower_budget_mends_the_slo_on_one_replica() -> None:
    world = world_of(replicas=2)
    world.advance(60.0)
    assert lower(world, 768, None).value == 768
    before = {t.name: (world.truth(t.name).judged, world.truth(t.name).within_slo) for t in world.targets}
    world.advance(300.0)
    attainment = {
        name: (world.truth(name).within_slo - within) / (world.truth(name).judged - judged)
        for name, (judged, within) in before.items()
    }
    assert attainment["a1"] > 0.97
    assert attainment["a2"] < 0.95


def test_a_value_on_loan_goes_back_at_its_very_second() -> None:
    """Between two ticks: the world that is looked at there and the one that is not are the same."""
    worlds = world_of(replicas=1), world_of(replicas=1)
    for world in worlds:
        world.advance(13.0)
        lower(world, 512, 14.5)
    worlds[0].advance(14.0)
    assert budget(worlds[0]).value == 512
    assert budget(worlds[0]).expires_in_seconds == pytest.approx(0.5)
    worlds[0].advance(0.5)
    assert budget(worlds[0]).value == 8192
    worlds[0].advance(40.0)
    worlds[1].advance(54.5)
    assert worlds[0].page(worlds[0].targets[0].url) == worlds[1].page(worlds[1].targets[0].url)


def test_a_restart_changes_the_instance_and_forgets_the_loan() -> None:
    world = world_of(replicas=1)
    world.advance(10.0)
    lower(world, 512, 1000.0)
    instance = ask(world, 0, "GET")["instance"]
    world.restart("a1", max_num_batched_tokens=4096)
    transport = world.transport(world.targets[0].url)
    assert transport is not None
    assert transport.request("GET", KNOBS_PATH).status is None
    world.advance(30.0)
    assert world.snapshot().replicas[0].state is ReplicaState.DOWN
    assert world.page(world.targets[0].url) is None
    world.advance(60.0)
    assert world.snapshot().replicas[0].state is ReplicaState.OK
    assert (budget(world).value, budget(world).start) == (4096, 4096)
    assert ask(world, 0, "GET")["instance"] != instance
    assert "restarted" in [event.kind for event in world.snapshot().replicas[0].events]


def test_faults_are_seen() -> None:
    world = world_of("steady", replicas=4, tick_seconds=2.0)
    world.inject("a1", Fault(FaultKind.DOWN, 20.0, 100.0))
    world.inject("a2", Fault(FaultKind.HANG, 20.0, 100.0))
    world.inject("b1", Fault(FaultKind.UNRESPONSIVE, 20.0, 100.0))
    world.advance(100.0)
    states = {replica.target.name: replica.state for replica in world.snapshot().replicas}
    assert states["a1"] is ReplicaState.DOWN
    assert states["a2"] is ReplicaState.NO_PROGRESS
    assert states["b1"] is ReplicaState.DOWN
    assert states["b2"] is ReplicaState.OK
    transport = world.transport(next(t.url for t in world.targets if t.name == "b1"))
    assert transport is not None
    assert transport.request("GET", KNOBS_PATH).status is None


def test_totals_go_on_over_a_restart_and_a_reset() -> None:
    world = world_of("steady", replicas=1)
    world.advance(60.0)
    seen = [world.snapshot().replicas[0].totals["requests_judged"]]
    world.inject("a1", Fault(FaultKind.RESET, 65.0))
    world.inject("a1", Fault(FaultKind.DOWN, 100.0, 20.0))
    for _ in range(12):
        world.advance()
        seen.append(world.snapshot().replicas[0].totals["requests_judged"])
    assert seen == sorted(seen)
    assert seen[-1] > seen[0] + 100


def test_degrade_costs_the_points_that_it_is_told_to() -> None:
    world = world_of("already-optimal", replicas=2)
    world.advance(100.0)
    before = world.truth("a1").judged, world.truth("a1").within_slo
    degrade(world, "a1", 0.05)
    world.advance(900.0)
    judged = world.truth("a1").judged - before[0]
    within = world.truth("a1").within_slo - before[1]
    other = world.truth("a2").attainment_ratio
    assert other is not None
    lost = world.truth("a1").missed / judged
    assert abs(lost - 0.05) < 4 * math.sqrt(0.05 * 0.95 / judged)
    assert within / judged < other - 0.025


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_every_scenario_can_be_stepped(name: str) -> None:
    world = world_of(name, replicas=len(SCENARIOS[name].pools), warm_up_seconds=5.0)
    world.advance(10.0)
    snapshot = world.snapshot()
    assert all(replica.state is ReplicaState.OK for replica in snapshot.replicas)
    for target in world.targets:
        assert ReadPage.of(world.page(target.url)) if name != "hot-rank" else world.page(target.url)
