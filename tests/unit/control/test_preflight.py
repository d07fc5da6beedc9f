"""Preflight: each way in which a plan no longer fits, with the difference in words; and the sizing."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Any

import pytest

from enginetop.fleet.change import ChangeState
from enginetop.fleet.model import ReplicaState
from enginetop.fleet.plan import Plan
from tests.support.control_runs import SHORT, gain, run, values
from tests.support.virtual_fleet import VERSION, Engine, VirtualFleet, plan_for, three
from tuners.control.preflight import Preflight, check_plan
from tuners.control.settings import ControlSettings
from tuners.control.sizing import size

OLD = 2048


def check(fleet: VirtualFleet, plan: Plan, **over: object) -> Preflight:
    clients = {target: fleet.client(target) for target in plan.targets}
    sheets = {target: client.read() for target, client in clients.items() if client is not None}
    arguments = {"now": fleet.time, "tool_version": VERSION, "settings": SHORT} | over
    return check_plan(plan, fleet.snapshot(), sheets, **arguments)  # type: ignore[arg-type]


def test_a_plan_that_fits() -> None:
    fleet = three()
    found = check(fleet, plan_for(fleet))
    assert found.problems == ()
    assert found.baselines == ("http://r2:8000", "http://r3:8000")


Spoil = Callable[[VirtualFleet, Engine], object]


def _give(**changes: object) -> Spoil:
    def spoil(_: VirtualFleet, engine: Engine) -> None:
        for name, value in changes.items():
            setattr(engine, name, copy(value))

    return spoil


SPOILED: dict[str, tuple[Spoil, str]] = {
    "restarted": (lambda f, e: e.restart(f.time), "restarted (instance i-1:8000 is now i-1:8000+)"),
    "changed by somebody else": (_give(value=1024), "is 1024 now, the plan changes it from 2048"),
    "on trial": (lambda f, e: e._set(f.time, OLD, 100.0), "another controller (goes back by itself in 10"),
    "another knob on trial": (_give(seats=64, lent_seats_seconds=9.0), "max_num_seqs 64 is on trial by an"),
    "gone": (lambda f, e: f.hidden.add(e.url), "not among the watched targets"),
    "down": (_give(state=ReplicaState.DOWN), "r1:8000 is down"),
    "stale": (_give(state=ReplicaState.STALE), "r1:8000 is stale"),
    "bounds moved": (_give(minimum=600), "512 is out of bounds (600 to 2048 live)"),
    "no exact counters": (_give(totals={"requests_finished": 5.0}), "no exact counters"),
    "wrong token": (_give(statuses=[401]), "cannot be read: HTTP 401"),
    "no knob api": (_give(statuses=[404]), "cannot be read: HTTP 404"),
    "unreachable": (_give(reachable=False), "cannot be read: refused"),
    "junk": (_give(statuses=[200]), "not a knob sheet"),
}  # fmt: skip


@pytest.mark.parametrize("name", SPOILED)
def test_a_plan_that_no_longer_fits_is_refused_and_nothing_is_written(name: str) -> None:
    spoil, words = SPOILED[name]
    fleet = three(attainment=gain)
    plan = plan_for(fleet)
    spoil(fleet, next(iter(fleet.engines.values())))
    before = values(fleet)
    end, rows = run(fleet, plan)
    assert end.state is ChangeState.REFUSED
    assert words in end.detail
    assert (rows[-1].state, rows[-1].detail) == (ChangeState.REFUSED, end.detail)
    assert all(row.state is not ChangeState.CANARY for row in rows)
    assert values(fleet) == before


@pytest.mark.parametrize("name", sorted(SPOILED))
def test_the_same_on_a_replica_of_a_later_wave_refuses_the_whole_plan(name: str) -> None:
    spoil, words = SPOILED[name]
    fleet = three(attainment=gain)
    plan = plan_for(fleet)
    spoil(fleet, list(fleet.engines.values())[2])
    end, _ = run(fleet, plan)
    assert end.state is ChangeState.REFUSED
    assert words.replace("1:8000", "3:8000") in end.detail


@pytest.mark.parametrize(
    ("over", "words"),
    [
        ({"tool_version": "0.0.9"}, "made by enginetop 0.0.9, this is 0.1.0"),
        ({"expires": 1_000_001.0, "created": 999_000.0}, ""),
        ({"expires": 999_990.0, "created": 999_000.0}, "expired 10 s ago"),
        ({"created": 1_000_900.0, "expires": 1_003_600.0}, "made in the future"),
        ({"scope": None}, "serves m as aggregated, the plan is for other as aggregated"),
    ],
)
def test_a_plan_of_another_time_version_or_model(over: dict[str, Any], words: str) -> None:
    fleet = three()
    if "scope" in over:
        over = {"scope": replace(plan_for(fleet).scope, model="other")}
    found = check(fleet, plan_for(fleet, **over))
    assert any(words in problem for problem in found.problems) if words else found.problems == ()


def test_without_a_baseline_there_is_no_trial_and_one_is_few() -> None:
    fleet = three()
    _, second, third = fleet.engines.values()
    plan = plan_for(fleet, promote=False)
    third.state = ReplicaState.LOADING
    found = check(fleet, plan)
    assert found.problems == ()
    assert "one baseline only" in found.notes[0]
    second.totals = {}
    found = check(fleet, plan)
    assert any("no baseline" in problem for problem in found.problems)


@pytest.mark.parametrize(("blocks", "told"), [(2, True), (7, True), (8, False), (30, False)])
def test_an_observation_of_which_no_verdict_can_come_is_told_before(blocks: int, told: bool) -> None:
    fleet = three()
    found = check(fleet, plan_for(fleet), settings=replace(SHORT, blocks=blocks))
    assert found.problems == ()
    assert any("no verdict comes of fewer than 8" in note for note in found.notes) is told


def test_baselines_run_with_the_former_value_of_the_canary() -> None:
    """One of the pool has another value, so that the plan does not change it: no baseline as long as others
    are; alone it is one, which is said.
    """
    fleet = three()
    _, second, third = fleet.engines.values()
    plan = plan_for(fleet)
    second.value = 512
    without_second = replace(plan, changes=(plan.changes[0], plan.changes[2]))
    found = check(fleet, without_second)
    assert (found.problems, found.baselines) == ((), (third.url,))
    third.state = ReplicaState.DOWN
    found = check(fleet, replace(plan, changes=plan.changes[:1]))
    assert (found.problems, found.baselines) == ((), (second.url,))
    assert (
        f"{second.url} is a baseline that the plan does not change: its settings may be others" in found.notes
    )


def test_in_what_else_baselines_differ_is_said() -> None:
    fleet = three(seats=256)
    list(fleet.engines.values())[2].seats = 64
    found = check(fleet, plan_for(fleet))
    assert found.problems == ()
    assert [note for note in found.notes if "is a baseline" in note] == [
        "http://r3:8000 is a baseline with max_num_seqs 64, the canary has 256: the verdict tells of that too"
    ]


def test_all_that_is_wrong_is_said_at_once() -> None:
    fleet = three()
    plan = plan_for(fleet, tool_version="0.0.9")
    for engine in fleet.engines.values():
        engine.value = 1024
    assert len(check(fleet, plan).problems) == 4


def test_what_one_object_owns_is_no_baseline_of_itself() -> None:
    fleet = three()
    plan = plan_for(fleet)
    changes = tuple(replace(change, via="kubernetes", instance="llm/Deployment/a") for change in plan.changes)
    plan = replace(plan, changes=changes)
    replies = {}
    for target in plan.targets:
        client = fleet.client(target)
        assert client is not None
        reply = client.read()
        assert reply.sheet is not None
        owned = replace(reply.sheet, writer="kubernetes", instance="llm/Deployment/a")
        replies[target] = replace(reply, sheet=owned, problems=("Argo CD owns it",), notes=("a note",))
    arguments = {"now": fleet.time, "tool_version": VERSION, "settings": SHORT}
    found = check_plan(plan, fleet.snapshot(), replies, **arguments)  # type: ignore[arg-type]
    assert found.problems == ("Argo CD owns it",)
    assert found.baselines == ()
    assert found.notes.count("a note") == 1
    assert any("no canary, nothing to compare with, no verdict" in note for note in found.notes)
    assert any("all 3 restart twice" in note for note in found.notes)


def test_the_time_that_a_trial_needs_is_told_before_it_begins() -> None:
    """At .95, a margin of one point, power .8: 5 873 requests an arm, twice that with a design effect of 2.

    One canary at 4/s against two baselines with 8/s together: z = 2.486; variance 2 x .0475 x (1/4 + 1/8) a
    second; z^2 x .035625 / .0001 = 2 202 s, and the warm-up. 600 s show 2.486 x sqrt(.035625 / 600) = 1.92
    points.
    """
    fleet = three()
    for engine in fleet.engines.values():
        engine.totals = {"requests_judged": 2000.0, "requests_within_slo": 1900.0}
    canary, *others = fleet.snapshot().replicas
    found = size(canary, others, SHORT)
    assert found.needed_requests == pytest.approx(2 * 5873, rel=0.001)
    assert found.needed_seconds == pytest.approx(120 + 2202, rel=0.002)
    assert found.visible == pytest.approx(0.0192, rel=0.005)
    assert "1.9 points (attainment 95.0 % so far, design effect 2 assumed)" in found.words
    assert "needs about 39 min (117" in found.words
    assert "expect `inconclusive`" in found.words
    long = size(canary, others, ControlSettings(blocks=60))
    assert "inconclusive" not in long.words


def test_an_attainment_that_nobody_measured_yet_is_said_to_be_assumed() -> None:
    fleet = three()
    for engine in fleet.engines.values():
        engine.totals = {"requests_judged": 60.0, "requests_within_slo": 6.0}  # 180 in all: too few to tell
    canary, *others = fleet.snapshot().replicas
    assert "(attainment 95.0 % and design effect 2 assumed)" in size(canary, others, SHORT).words


def test_sizing_without_traffic() -> None:
    fleet = three(rate=0.0)
    canary, *others = fleet.snapshot().replicas
    found = size(canary, others, SHORT)
    assert (found.visible, found.needed_seconds) == (None, None)
    assert found.words.endswith("; no request was seen to end just now: without traffic there is no verdict")


def test_sizing_of_a_fleet_that_never_missed_is_not_zero() -> None:
    fleet = three()
    for engine in fleet.engines.values():
        engine.totals = {"requests_judged": 1000.0, "requests_within_slo": 1000.0}
    canary, *others = fleet.snapshot().replicas
    found = size(canary, others, SHORT)
    assert found.visible is not None
    assert found.visible > 0
