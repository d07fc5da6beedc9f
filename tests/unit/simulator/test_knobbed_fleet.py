"""Companions over the lives of their replicas, without a wire."""

from __future__ import annotations

import json

from enginetop.fleet.knobs import KNOBS_PATH
from enginetop.simulator.builtin import SCENARIOS
from enginetop.simulator.faults import Fault, FaultKind
from enginetop.simulator.fleet_model import FleetModel
from enginetop.simulator.knobbed_fleet import KnobbedFleet
from enginetop.simulator.scenario import Pool, ReplicaPlan, Scenario

QWEN = SCENARIOS["steady"].pools[0].members[0]
BUDGET = "max_num_batched_tokens"


def fleet_of(*plans: ReplicaPlan) -> KnobbedFleet:
    return KnobbedFleet(FleetModel(Scenario("s", "s", (Pool("a", plans),)), len(plans), 1, 0.0, 0.0), "run")


def patch(fleet: KnobbedFleet, place: int, value: int, ttl: float | None) -> int | None:
    companion = fleet.companion(fleet.model.replicas[place])
    assert companion is not None
    body = {"knob": BUDGET, "value": value, "ttl_seconds": ttl}
    return companion.api.request("PATCH", KNOBS_PATH, json.dumps(body).encode()).status


def budgets(fleet: KnobbedFleet) -> list[int]:
    return [state.value for r in fleet.model.replicas for state in r.knobs() if state.name == BUDGET]


def test_each_value_goes_back_in_its_own_time() -> None:
    fleet = fleet_of(QWEN, QWEN)
    assert patch(fleet, 0, 512, 20.0) == 200
    assert patch(fleet, 1, 1024, 30.0) == 200
    fleet.advance(19.9)
    assert budgets(fleet) == [512, 1024]
    fleet.advance(20.0)
    assert budgets(fleet) == [2048, 1024]
    fleet.advance(100.0)
    assert budgets(fleet) == [2048, 2048]
    assert fleet.second == 100.0


def test_nothing_of_a_dead_process_reaches_the_next_one() -> None:
    fleet = fleet_of(QWEN.with_faults(Fault(FaultKind.DOWN, at_seconds=10.0, for_seconds=5.0)))
    replica = fleet.model.replicas[0]
    first = fleet.companion(replica)
    assert first is not None
    assert patch(fleet, 0, 512, 40.0) == 200
    fleet.advance(12.0)
    assert fleet.companion(replica) is None
    # Death and return in one step, with a loan of the dead process that would end after it.
    fleet.advance(20.0)
    second = fleet.companion(replica)
    assert second is not None
    assert (first.instance, second.instance) == ("a1-run-1", "a1-run-2")
    assert patch(fleet, 0, 1024, None) == 200
    fleet.advance(60.0)
    assert budgets(fleet) == [1024]


def test_a_death_between_two_looks_is_noticed() -> None:
    fleet = fleet_of(QWEN.with_faults(Fault(FaultKind.DOWN, at_seconds=10.0, for_seconds=5.0)))
    replica = fleet.model.replicas[0]
    assert patch(fleet, 0, 512, None) == 200
    fleet.advance(20.0)
    companion = fleet.companion(replica)
    assert companion is not None
    assert companion.instance == "a1-run-2"
    assert companion.board.sheet(20.0).knobs[0].version == 0


def test_time_never_runs_back() -> None:
    fleet = fleet_of(QWEN)
    fleet.advance(10.0)
    fleet.advance(5.0)
    assert fleet.second == 10.0


def test_ranks_confirm_together_and_drafts_are_fixed() -> None:
    fleet = fleet_of(QWEN.with_engine(ranks=2, num_speculative_tokens=3, acceptance=(0.7, 0.5, 0.3)))
    companion = fleet.companion(fleet.model.replicas[0])
    assert companion is not None
    sheet = companion.board.sheet(0.0)
    assert (sheet.applied, sheet.total) == (2, 2)
    drafts = sheet.knob("num_speculative_tokens")
    assert drafts is not None
    assert (drafts.min, drafts.max) == (3, 3)
    assert patch(fleet, 0, 1024, None) == 200
    assert [
        state.value
        for engine in fleet.model.replicas[0].engines
        for state in engine.knobs()
        if state.name == BUDGET
    ] == [1024, 1024]
