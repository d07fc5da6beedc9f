"""The life of one alert, second by second."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from enginetop.alerts.rule import Finding, Instance, Rule, Severity, advance, begin
from enginetop.fleet.model import EngineKind
from enginetop.fleet.snapshot import FleetSnapshot
from tests.tui.snapshots import replica

BREACH, CLEAR, UNKNOWN = True, False, None
ABOUT = replica("a1", model="m", engine=EngineKind.UNKNOWN)


def no_check(_: FleetSnapshot) -> Sequence[Finding]:
    return ()


def life(
    looks: Sequence[tuple[float, bool | None]],
    hold: float = 0.0,
    keep: float = 0.0,
    since: float | None = None,
    lenient_until: float = float("-inf"),
) -> list[tuple[float, str]]:
    """The changes of state that these looks lead to, each with its time."""
    rule = Rule("R", Severity.WARNING, no_check, hold, keep)
    instance: Instance | None = None
    changes: list[tuple[float, str]] = []
    for at, breached in looks:
        finding = Finding("t", breached, since=since)
        if instance is not None:
            step = advance(rule, instance, breached, finding if breached else None, at)
        elif breached:
            step = begin(rule, finding, None, at)
        else:
            continue
        instance = step.instance
        if instance is not None and lenient_until > at:
            instance = Instance(instance.key, instance.alert, instance.breached_at, lenient_until)
        if step.changed is not None:
            changes.append((at, step.changed.state))
    return changes


@pytest.mark.parametrize(
    ("looks", "options", "expected"),
    [
        # without a hold it fires at once
        ([(0, BREACH), (2, CLEAR)], {}, [(0, "firing"), (2, "resolved")]),
        # the hold counts from the first breach and is over at the very second
        (
            [(0, BREACH), (10, BREACH), (29, BREACH), (30, BREACH), (31, CLEAR)],
            {"hold": 30},
            [(0, "pending"), (30, "firing"), (31, "resolved")],
        ),
        # pending and cleared: resolved once, and the next breach begins anew
        (
            [(0, BREACH), (20, CLEAR), (22, CLEAR), (24, BREACH), (50, BREACH), (54, BREACH)],
            {"hold": 30},
            [(0, "pending"), (20, "resolved"), (24, "pending"), (54, "firing")],
        ),
        # what cannot be told is no breach
        ([(0, BREACH), (2, UNKNOWN)], {"hold": 30}, [(0, "pending"), (2, "resolved")]),
        ([(0, BREACH), (2, UNKNOWN)], {}, [(0, "firing"), (2, "resolved")]),
        # a cause that is older than the look: the hold counts from the cause
        ([(100, BREACH), (104, BREACH)], {"hold": 30, "since": 74}, [(100, "pending"), (104, "firing")]),
        ([(100, BREACH)], {"hold": 30, "since": 60}, [(100, "firing")]),
        # flapping: it stays while the last breach is younger than the keep
        (
            [(0, BREACH), (10, CLEAR), (20, BREACH), (50, UNKNOWN), (79, CLEAR), (80, CLEAR)],
            {"keep": 60},
            [(0, "firing"), (80, "resolved")],
        ),
        # the keep is for what fires; what is pending clears at once
        ([(0, BREACH), (2, CLEAR)], {"hold": 30, "keep": 60}, [(0, "pending"), (2, "resolved")]),
        # after a restart what cannot be told changes nothing for a while, a plain no does at once
        (
            [(0, BREACH), (10, UNKNOWN), (99, UNKNOWN), (100, UNKNOWN)],
            {"lenient_until": 100},
            [(0, "firing"), (100, "resolved")],
        ),
        ([(0, BREACH), (10, CLEAR)], {"lenient_until": 100}, [(0, "firing"), (10, "resolved")]),
        # times of the real size: a hold is not missed by the grain of a float
        (
            [(1764446400.1, BREACH), (1764446430.1, BREACH)],
            {"hold": 30},
            [(1764446400.1, "pending"), (1764446430.1, "firing")],
        ),
        # a clock that is set back by an hour neither fires nor stops what is under way
        (
            [(7200, BREACH), (3600, BREACH), (3629, BREACH), (3630, BREACH), (3631, CLEAR)],
            {"hold": 30},
            [(7200, "pending"), (3630, "firing"), (3631, "resolved")],
        ),
        (
            [(7200, BREACH), (3600, CLEAR), (3659, CLEAR), (3660, CLEAR)],
            {"keep": 60},
            [(7200, "firing"), (3660, "resolved")],
        ),
    ],
)
def test_a_life(
    looks: list[tuple[float, bool | None]], options: dict[str, float], expected: list[tuple[float, str]]
) -> None:
    assert life(looks, **options) == expected


def test_since_is_the_first_breach_and_the_value_the_newest() -> None:
    rule = Rule("R", Severity.CRITICAL, no_check, 30)
    begun = begin(rule, Finding("t", True, 1.0, 0.5, "one"), ABOUT, 100)
    assert begun.changed is not None
    assert (begun.changed.since, begun.changed.value, begun.changed.labels) == (100, 1.0, {"model": "m"})
    assert begun.instance is not None
    going = advance(rule, begun.instance, True, Finding("t", True, 2.0, 0.5, "two"), 110)
    assert going.changed is None
    assert going.instance is not None
    alert = going.instance.alert
    assert (alert.since, alert.value, alert.summary, alert.state) == (100, 2.0, "two", "pending")


def test_labels_stay_those_of_the_first_breach() -> None:
    rule = Rule("R", Severity.CRITICAL, no_check)
    begun = begin(rule, Finding("t", True, labels={"rank": "3"}), ABOUT, 100)
    assert begun.instance is not None
    going = advance(rule, begun.instance, True, Finding("t", True, labels={"rank": "5"}), 110)
    assert going.instance is not None
    assert going.instance.alert.labels == {"model": "m", "rank": "3"}
