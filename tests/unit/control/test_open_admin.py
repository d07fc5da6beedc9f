"""Engines that anybody can change: refused by name before anything is written, unless the user accepts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from enginetop.fleet.admin_surface import AdminFacts
from enginetop.fleet.change import ChangeState
from tests.support.control_runs import SHORT, gain, run, values
from tests.support.virtual_fleet import START, VirtualFleet, plan_for, three

OPEN = AdminFacts(routes=frozenset({"/sleep", "/pause", "/collective_rpc"}))
SAFE = (
    AdminFacts(routes=frozenset({"/v1/models"})),  # guarded
    AdminFacts(),  # no answer
    AdminFacts({"/openapi.json": 401}),
    AdminFacts({"/openapi.json": 404, "/is_sleeping": 404}),
    None,  # nobody looked: a simulated world
)
ACCEPTED = (True, frozenset({"http://r2:8000"}), frozenset({"r2:8000"}), frozenset({"r2:8000", "other"}))
NOT_ACCEPTED = (False, frozenset[str](), frozenset({"http://r1:8000"}), frozenset({"R2:8000", "r2"}))


def fleet_with(second: AdminFacts | None) -> VirtualFleet:
    fleet = three(attainment=gain)
    list(fleet.engines.values())[1].admin = second
    return fleet


@pytest.mark.parametrize("accepted", NOT_ACCEPTED)
def test_one_open_target_of_several_refuses_the_plan_by_name(accepted: bool | frozenset[str]) -> None:
    fleet = fleet_with(OPEN)
    before = values(fleet)
    end, rows = run(fleet, settings=replace(SHORT, accept_open_admin=accepted))
    assert (end.state, rows[-1].state) == (ChangeState.REFUSED, ChangeState.REFUSED)
    assert rows[-1].detail == (
        "http://r2:8000: development routes are open to whoever reaches the port: /collective_rpc, /pause, "
        "/sleep; what is on trial could be changed by anybody: start it without VLLM_SERVER_DEV_MODE, or "
        'accept it (--accept-open-admin, or accept_open_admin = ["http://r2:8000"] under [control])'
    )
    assert values(fleet) == before
    assert all(engine.writes == [] for engine in fleet.engines.values())


@pytest.mark.parametrize("accepted", ACCEPTED)
def test_what_is_accepted_is_changed_and_the_audit_says_so(accepted: bool | frozenset[str]) -> None:
    end, rows = run(fleet_with(OPEN), settings=replace(SHORT, accept_open_admin=accepted))
    assert end.state is ChangeState.DONE
    (approved,) = (row for row in rows if row.state is ChangeState.APPROVED)
    assert "accepted: http://r2:8000: development routes are open" in approved.detail


@pytest.mark.parametrize("facts", SAFE)
def test_what_is_guarded_or_cannot_be_told_is_not_refused(facts: AdminFacts | None) -> None:
    end, rows = run(fleet_with(facts))
    assert end.state is ChangeState.DONE
    assert not any("accepted:" in row.detail for row in rows)


def test_every_open_target_has_its_own_line_and_other_trouble_comes_first() -> None:
    fleet = three(attainment=gain)
    first, second, third = fleet.engines.values()
    first.admin = second.admin = third.admin = OPEN
    plan = plan_for(fleet)
    third.value = 1024
    end, _ = run(fleet, plan)
    lines = end.detail.split("; http://")
    assert [line.removeprefix("http://")[:8] for line in lines] == ["r1:8000:", "r2:8000:", "r3:8000:"]
    assert "is 1024 now" in lines[2]


def test_nobody_is_asked_who_else_may_change_it_once_it_began() -> None:
    """The look is a matter of preflight: watching and undoing are never held up by it."""
    fleet = three(attainment=gain)
    for engine in fleet.engines.values():
        engine.admin = AdminFacts()
    end, _ = run(fleet)
    assert end.state is ChangeState.DONE
    assert fleet.looks == 3 * [START]


def test_an_engine_that_opens_later_does_not_keep_its_value_from_going_back() -> None:
    fleet = three(attainment=lambda value: 0.5 if value <= 512 else 0.95)
    for engine in fleet.engines.values():
        engine.admin = AdminFacts()

    def open_all() -> None:
        for engine in fleet.engines.values():
            engine.admin = OPEN

    fleet.at(300.0, open_all)
    end, _ = run(fleet)
    assert end.state is ChangeState.ROLLED_BACK
    assert [value for value, _ in values(fleet)] == [2048, 2048, 2048]
