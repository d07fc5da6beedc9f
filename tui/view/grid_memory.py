"""What a grid keeps from one picture to the next, so that a new picture costs only what changed.

A replica on which nothing changed is the same object in the next snapshot: what was read off it stays true.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from enginetop.fleet.model import Target
from enginetop.fleet.snapshot import ReplicaSnapshot
from tui.view import charts
from tui.view.cells import Line
from tui.view.column import TREND_STEP_SECONDS, Relevant
from tui.view.columns import BY_KEY, RELEVANCE
from tui.view.condition import restarted_within
from tui.view.mixed import Mixed, MixedMemory
from tui.view.names import NameMemory
from tui.view.placing import Placed, place_columns, room_of_names
from tui.view.severity import Condition

RESTARTED = "↻"
"""Stands beside a name that restarted in the last quarter of an hour."""

TOKENS = "generation_tokens_per_second"

_RESTART_MARK_SECONDS = 900.0
_MOST_LINES = 4096
_ASKED_AT_ONCE = 100
"""Replicas asked at one picture what columns they have anything for."""
_TOP_SECONDS = 30.0
# A cell is a mean over its step, so every fourth sample is scale enough for a thousand rows.
_RECENT = slice(-int(BY_KEY["tok_trend"].width * TREND_STEP_SECONDS), None, 4)


class Stamp(NamedTuple):
    """All that a row is drawn from: rows of equal stamps look alike."""

    replica: ReplicaSnapshot
    condition: Condition
    name: str
    marks: str
    age: str
    held: str
    step: float
    top: float
    placed: tuple[Placed, ...]
    selected: bool


class GridMemory:
    """Set-ups, scales, names and drawn rows of one grid."""

    def __init__(self) -> None:
        self._setups = MixedMemory()
        self._top, self._top_from = 0.0, math.inf
        self._top_of: Sequence[ReplicaSnapshot] = ()
        self._witnesses: dict[Relevant, int] = {}
        self._relevant_to: Sequence[ReplicaSnapshot] = ()
        self._owed: dict[int, None] = {}
        self._placed_for: tuple[object, ...] = ()
        self._placed: tuple[Placed, ...] = ()
        self._names = NameMemory()
        self._targets_for: Sequence[ReplicaSnapshot] = ()
        self._targets: tuple[Target, ...] = ()
        self._lines: dict[tuple[str, bool], tuple[Stamp, Line]] = {}

    def mixed(self, replicas: Sequence[ReplicaSnapshot]) -> Mixed:
        """What differs within pools."""
        return self._setups.mixed(replicas)

    def relevant(self, replicas: Sequence[ReplicaSnapshot]) -> frozenset[Relevant]:
        """The columns' tests that some replica passes.

        Who passed one last is asked first. What nobody passed is asked of those with another picture only,
        of a large fleet some at each picture.
        """
        changed, self._relevant_to = _changed(replicas, self._relevant_to), replicas
        self._owed.update(dict.fromkeys(changed))
        at_once = len(replicas) if len(changed) == len(replicas) else _ASKED_AT_ONCE
        turn = tuple(islice(self._owed, at_once))
        for place in turn:
            del self._owed[place]
        found = set()
        for test in RELEVANCE:
            asked: Iterable[int] = turn
            witness = self._witnesses.pop(test, None)
            if witness is not None:
                asked = (witness, *range(len(replicas)))
            passing = next(
                (place for place in asked if place < len(replicas) and test(replicas[place])), None
            )
            if passing is not None:
                found.add(test)
                self._witnesses[test] = passing
        return frozenset(found)

    def placed(
        self,
        width: int,
        relevant: frozenset[Relevant],
        name_width: int,
        *,
        flat: bool,
        keep: str | None,
        choice: tuple[str, ...],
    ) -> tuple[Placed, ...]:
        """As `place_columns`; the same object as long as nothing of it changes."""
        asked = (width, relevant, name_width, flat, keep, choice)
        if asked != self._placed_for:
            self._placed_for = asked
            self._placed = place_columns(width, relevant, name_width, flat=flat, keep=keep, choice=choice)
        return self._placed

    def room_of_names(self, replicas: Sequence[ReplicaSnapshot], width: int) -> int:
        """Cells that the column of names needs in a grid of `width` cells."""
        least, most = room_of_names(width)
        return self._names.room(self._targets_of(replicas), least, most)

    def names(self, replicas: Sequence[ReplicaSnapshot], width: int) -> Mapping[str, str]:
        """The names as a column of `width` cells shows them, by target URL."""
        return self._names.shown(self._targets_of(replicas), width)

    def _targets_of(self, replicas: Sequence[ReplicaSnapshot]) -> tuple[Target, ...]:
        if replicas is not self._targets_for:
            self._targets_for, self._targets = replicas, tuple([replica.target for replica in replicas])
        return self._targets

    def token_top(self, replicas: Sequence[ReplicaSnapshot], at: float) -> float:
        """The scale of the tokens trend, common to all rows so that they can be compared.

        Rounded up to a few steps in each decade: a scale that moves at every picture redraws every row. The
        newest values can raise it at once; whether it may shrink is looked for twice a minute.
        """
        changed, self._top_of = _changed(replicas, self._top_of), replicas
        if self._top_from <= at < self._top_from + _TOP_SECONDS:
            newest = [values[-1] for place in changed if (values := replicas[place].trends.get(TOKENS))]
            self._top = max(self._top, charts.scale_of(newest))
        else:
            self._top_from = at
            trends = [values for one in replicas if (values := one.trends.get(TOKENS))]
            self._top = max((charts.scale_of(values[_RECENT]) for values in trends), default=0.0)
        return charts.round_up(self._top)

    def line(self, stamp: Stamp) -> Line | None:
        """The row drawn before from the same, if any."""
        found = self._lines.get((stamp.replica.target.url, stamp.selected))
        return found[1] if found is not None and found[0] == stamp else None

    def keep(self, stamp: Stamp, line: Line) -> None:
        """Keep a drawn row."""
        if len(self._lines) >= _MOST_LINES:
            self._lines.clear()
        self._lines[stamp.replica.target.url, stamp.selected] = (stamp, line)


def _changed(replicas: Sequence[ReplicaSnapshot], before: Sequence[ReplicaSnapshot]) -> Sequence[int]:
    """Places of those with another picture than before."""
    if replicas is before:
        return ()
    if len(replicas) != len(before):
        return range(len(replicas))
    return [
        place for place, (now, former) in enumerate(zip(replicas, before, strict=True)) if now is not former
    ]


def restart_mark(replica: ReplicaSnapshot, at: float) -> str:
    """The mark of a replica that restarted lately."""
    return RESTARTED if restarted_within(replica, at, _RESTART_MARK_SECONDS) else ""
