"""Names in few cells, the same way on every screen: as much of each as tells it from the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from enginetop.fleet.model import Target
from tui.view.cells import ELLIPSIS, cut_middle, cut_start, width_of

_SEPARATORS = ".-_:/"
_STEP = 4
"""Cells by which a column grows in which names look alike."""


class NameMemory:
    """The names of a fleet's targets, worked out anew only for other targets."""

    def __init__(self) -> None:
        self._targets: tuple[Target, ...] = ()
        self._shown: dict[int, Mapping[str, str]] = {}
        self._room: dict[tuple[int, int], int] = {}

    def room(self, targets: tuple[Target, ...], least: int, most: int) -> int:
        """As `room_of_names`."""
        self._take(targets)
        asked = (least, most)
        if asked not in self._room:
            self._room[asked] = room_of_names([target.name for target in targets], least, most)
        return self._room[asked]

    def shown(self, targets: tuple[Target, ...], width: int) -> Mapping[str, str]:
        """The names by target URL, as a column of `width` cells shows them."""
        self._take(targets)
        found = self._shown.get(width)
        if found is None:
            names = shown_names([target.name for target in targets], width)
            found = self._shown[width] = dict(zip([target.url for target in targets], names, strict=True))
        return found

    def _take(self, targets: tuple[Target, ...]) -> None:
        if targets != self._targets:
            self._targets, self._shown, self._room = targets, {}, {}


def room_of_names(names: Sequence[str], least: int, most: int) -> int:
    """Cells that a column of these names needs, at most `most`: no two that differ look alike in it.

    `least`: so many cells a name may take without need.
    """
    different = len(set(names))
    for width in range(least, most, _STEP):
        shown = shown_names(names, width)
        if len(set(shown)) == different:
            break
    else:
        shown = shown_names(names, most)
    return max(map(width_of, shown), default=0)


def shown_names(names: Sequence[str], width: int) -> list[str]:
    """Names for a column of `width` cells, in the same order.

    When one does not fit, what all names share is left out first (a port at the end, a network or a pool at
    the front, up to a separator), so that the cut does not take the part that differs.
    """
    if len(names) < 2 or all(width_of(name) <= width for name in names):
        return [cut_middle(name, width) for name in names]
    shared_end = _shared_end(names)
    stems = [name[: len(name) - shared_end] for name in names]
    if any(width_of(stem) > width for stem in stems):
        start = _shared_start(stems)
        if start > 1:
            return [_without_start(stem[start:], width) for stem in stems]
    return [cut_middle(stem, width) for stem in stems]


def _without_start(stem: str, width: int) -> str:
    """A name of which the start is left out, and in few cells more of it: names differ at their ends."""
    if width_of(stem) < width:
        return ELLIPSIS + stem
    return ELLIPSIS + cut_middle(stem, width - 1) if width > 4 else cut_start(ELLIPSIS + stem, width)


def _shared_start(names: Sequence[str]) -> int:
    common = _common_start(names)
    at = max((common.rfind(separator) for separator in _SEPARATORS), default=-1)
    return at + 1 if all(len(name) > at + 1 for name in names) else 0


def _shared_end(names: Sequence[str]) -> int:
    common = _common_start([name[::-1] for name in names])[::-1]
    at = common.find(":")
    return len(common) - at if at >= 0 and all(len(name) > len(common) - at for name in names) else 0


def _common_start(names: Sequence[str]) -> str:
    first, last = min(names), max(names)
    for position, (one, other) in enumerate(zip(first, last, strict=False)):
        if one != other:
            return first[:position]
    return first[: len(last)]
