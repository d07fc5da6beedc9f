"""Stories of hand-made snapshots told to a book of alerts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from enginetop.alerts.book import AlertBook
from enginetop.alerts.builtin import builtin_rules
from enginetop.alerts.rule import Rule
from enginetop.fleet.snapshot import FleetSnapshot, ReplicaSnapshot
from tests.tui.snapshots import AT, fleet, replica

Told = tuple[float, str, str, str]
"""Seconds after `AT`, rule, severity, new state."""


def book(*names: str) -> AlertBook:
    """A book with the built-in rules of these names; none: all of them."""
    rules: Sequence[Rule] = builtin_rules(60.0)
    return AlertBook(rule for rule in rules if not names or rule.name in names)


def tell(to: AlertBook, looks: Iterable[tuple[float, FleetSnapshot]]) -> list[Told]:
    """What the book says changed, over snapshots at seconds after `AT`."""
    told: list[Told] = []
    for seconds, snapshot in looks:
        shown = to(replace(snapshot, at=AT + seconds))
        events = to.take_events()
        assert {event.at for event in events} <= {AT + seconds}
        assert [e.alert for e in events if e.alert.state != "resolved"] == [
            a for e in events for a in shown.alerts if a is e.alert and a.state != "resolved"
        ]
        told += [(seconds, e.alert.rule, e.alert.severity, e.alert.state) for e in events]
    return told


def same(at: Sequence[float], **changes: Any) -> list[tuple[float, FleetSnapshot]]:
    """One replica `a` with these changes, looked at several times."""
    return [(seconds, fleet([replica("a", **changes)])) for seconds in at]


def trend(
    name: str, values: Callable[[float], float], at: float, step: float = 5.0, span: float = 300.0
) -> dict[str, Any]:
    """Fields of a replica whose trend `name` had `values(seconds after AT)` every `step` up to `at`."""
    count = int(span / step)
    times = [at - step * (count - i) for i in range(count + 1)]
    return {
        "trend_times": tuple(AT + time for time in times),
        "trends": {name: tuple(values(time) for time in times)},
    }


def alone(**fields: Any) -> ReplicaSnapshot:
    """Replica `a`."""
    return replica("a", **fields)
