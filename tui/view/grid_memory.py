"""What a grid keeps from one picture to the next, so that a new picture costs only what changed.

A replica on which nothing changed is the same object in the next snapshot: what was read off it stays true.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from enginetop.fleet.snapshot import ReplicaSnapshot
from tui.view import charts
from tui.view.cells import Line, width_of
from tui.view.column import TREND_STEP_SECONDS, Relevant
from tui.view.columns import BY_KEY, RELEVANCE
from tui.view.condition import Condition
from tui.view.mixed import Mixed, MixedMemory
from tui.view.names import shown_names
from tui.view.placing import Placed

RESTARTED = "↻"
"""Stands beside a name that restarted in the last quarter of an hour."""

TOKENS = "generation_tokens_per_second"

_RESTART_MARK_SECONDS = 900.0
_MOST_LINES = 4096
_TOP_SECONDS = 30.0
_TOP_TURNS = 16
"""Tops are looked for in turns, not all of a thousand at once."""
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


class _Top(NamedTuple):
    """The top of one replica's trend, as looked for at `made_at` and good `until` then."""

    replica: ReplicaSnapshot
    top: float
    made_at: float
    until: float


class GridMemory:
    """Set-ups, scales, names and drawn rows of one grid."""

    def __init__(self) -> None:
        self._setups = MixedMemory()
        self._tops: dict[str, _Top] = {}
        self._witnesses: dict[Relevant, str] = {}
        self._names: tuple[tuple[str, ...], int, int, list[str]] = ((), 0, 0, [])
        self._lines: dict[tuple[str, bool], tuple[Stamp, Line]] = {}

    def mixed(self, replicas: Sequence[ReplicaSnapshot]) -> Mixed:
        """What differs within pools."""
        return self._setups.mixed(replicas)

    def relevant(self, replicas: Sequence[ReplicaSnapshot]) -> frozenset[Relevant]:
        """The columns' tests that some replica passes; who passed one last is asked first."""
        by_url: Mapping[str, ReplicaSnapshot] | None = None
        found = set()
        for test in RELEVANCE:
            if test in self._witnesses:
                by_url = by_url or {one.target.url: one for one in replicas}
                witness = by_url.get(self._witnesses[test])
                if witness is not None and test(witness):
                    found.add(test)
                    continue
            passing = next((one for one in replicas if test(one)), None)
            if passing is not None:
                found.add(test)
                self._witnesses[test] = passing.target.url
        return frozenset(found)

    def longest_name(self, replicas: Sequence[ReplicaSnapshot]) -> int:
        """Cells of the longest name."""
        self._take_names(replicas)
        return self._names[1]

    def names(self, replicas: Sequence[ReplicaSnapshot], width: int) -> Sequence[str]:
        """The names as a column of `width` cells shows them, in the order of the replicas."""
        self._take_names(replicas)
        names, longest, shown_width, shown = self._names
        if shown_width != width or len(shown) != len(names):
            shown = shown_names(names, width)
            self._names = (names, longest, width, shown)
        return shown

    def _take_names(self, replicas: Sequence[ReplicaSnapshot]) -> None:
        names = tuple([replica.target.name for replica in replicas])
        if names != self._names[0]:
            self._names = (names, max(map(width_of, names), default=0), -1, [])

    def token_top(self, replicas: Sequence[ReplicaSnapshot], at: float) -> float:
        """The scale of the tokens trend, common to all rows so that they can be compared.

        Rounded up to a few steps in each decade: a scale that moves at every picture redraws every row. A
        replica's own top is looked for once in a while, and is meanwhile no less than its newest value.
        """
        before, self._tops = self._tops, {}
        whole = 0.0
        for replica in replicas:
            url = replica.target.url
            known = before.get(url)
            if known is None or known.replica is not replica:
                values = replica.trends.get(TOKENS, ())
                if known is not None and known.made_at <= at < known.until:
                    known = _Top(replica, max(known.top, values[-1] or 0.0 if values else 0.0), *known[2:])
                else:
                    until = at + _TOP_SECONDS * (1 + len(self._tops) % _TOP_TURNS / _TOP_TURNS)
                    known = _Top(replica, charts.scale_of(values[_RECENT]), at, until)
            self._tops[url] = known
            if known.top > whole:
                whole = known.top
        return charts.round_up(whole)

    def line(self, stamp: Stamp) -> Line | None:
        """The row drawn before from the same, if any."""
        found = self._lines.get((stamp.replica.target.url, stamp.selected))
        return found[1] if found is not None and found[0] == stamp else None

    def keep(self, stamp: Stamp, line: Line) -> None:
        """Keep a drawn row."""
        if len(self._lines) >= _MOST_LINES:
            self._lines.clear()
        self._lines[stamp.replica.target.url, stamp.selected] = (stamp, line)


def restart_mark(replica: ReplicaSnapshot, at: float) -> str:
    """The mark of a replica that restarted lately."""
    for event in replica.events:
        if event.kind == "restarted" and 0 <= at - event.at <= _RESTART_MARK_SECONDS:
            return RESTARTED
    return ""
