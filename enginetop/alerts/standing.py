"""Checks of replicas one by one, and what they found, kept while a replica's picture is the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from enginetop.alerts.rule import Finding
from enginetop.alerts.seen import engines, engines_told, is_judged_engine
from enginetop.fleet.frozen import frozen
from enginetop.fleet.snapshot import FleetSnapshot, ReplicaSnapshot

OneCheck = Callable[[ReplicaSnapshot, FleetSnapshot], Finding | None]
"""Judges one replica by its picture; None: not in breach. Of the snapshot it may use times and the window."""


@frozen(eq=False)
class EachReplica:
    """A check of every replica by itself.

    `engines_only`: of those alone that `seen.engines` names. `by_clock`: what it says of a breach moves on
    with time, also while the picture is the same.
    """

    judge: OneCheck
    engines_only: bool = False
    by_clock: bool = False

    def __call__(self, snapshot: FleetSnapshot) -> Iterator[Finding]:
        """See `rule.Check`."""
        for replica in engines(snapshot) if self.engines_only else snapshot.replicas:
            finding = self.judge(replica, snapshot)
            if finding is not None and _says_something(finding):
                yield finding


@dataclass(slots=True)
class _Found:
    """What one check found, by place in the fleet, as of the look `at_look`."""

    at_look: int = 0
    breaches: dict[int, Finding] = field(default_factory=dict)
    others: dict[int, Finding] = field(default_factory=dict)


class Standing:
    """The findings of `EachReplica` checks, with a memory: tell it of a snapshot, then ask for each check.

    A replica is judged when its picture is another object than at the look before, since what lets a breach
    begin or end comes with a page or a change of state; `by_clock`, one in breach is judged at every look.
    """

    def __init__(self) -> None:
        self._snapshot: FleetSnapshot | None = None
        self._changed: list[int] = []
        self._left_out: frozenset[int] = frozenset()
        """Places of those that `engines_only` checks leave out."""
        self._look = 0
        self._found: dict[EachReplica, _Found] = {}

    def look(self, snapshot: FleetSnapshot) -> None:
        """Take the next snapshot."""
        before = () if self._snapshot is None else self._snapshot.replicas
        now = snapshot.replicas
        pairs = enumerate(zip(before, now, strict=False))
        self._changed = [place for place, (old, new) in pairs if old is not new]
        self._changed += range(len(before), len(now))
        told = engines_told(snapshot)
        left_out = frozenset([place for place, one in enumerate(now) if not is_judged_engine(one, told)])
        if len(now) < len(before) or left_out != self._left_out:
            self._left_out = left_out
            self._found.clear()
        self._snapshot = snapshot
        self._look += 1

    def findings(self, check: EachReplica, *, only_breaches: bool) -> Iterable[Finding]:
        """What the check says of the newest snapshot, in the order of the fleet."""
        snapshot = self._snapshot
        if snapshot is None:
            return ()
        found = self._found.get(check)
        if found is None or found.at_look != self._look - 1:
            found = self._found[check] = _Found()
            places: Iterable[int] = range(len(snapshot.replicas))
        else:
            places = {*self._changed, *found.breaches} if check.by_clock else self._changed
        self._judge(check, found, places, snapshot)
        found.at_look = self._look
        shown = found.breaches if only_breaches else found.breaches | found.others
        return [shown[place] for place in sorted(shown)] if shown else ()

    def _judge(
        self, check: EachReplica, found: _Found, places: Iterable[int], snapshot: FleetSnapshot
    ) -> None:
        replicas, breaches, others = snapshot.replicas, found.breaches, found.others
        left_out = self._left_out if check.engines_only else ()
        for place in places:
            finding = None if place in left_out else check.judge(replicas[place], snapshot)
            if breaches:
                breaches.pop(place, None)
            if others:
                others.pop(place, None)
            if finding is None:
                continue
            if finding.breached:
                breaches[place] = finding
            elif _says_something(finding):
                others[place] = finding


def _says_something(finding: Finding) -> bool:
    return finding.breached is not False or finding.near
