"""Steps of raw series from page to page: differences, resets, first sights, and counters that flip.

Each step is added to a running total of its series. The increase over any window is then the difference of
two totals (`reached`), and resets inside the window are part of it.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Collection, Sequence
from operator import le
from typing import NamedTuple

from enginetop.fleet.frozen import frozen
from enginetop.fleet.reached import Reached
from enginetop.fleet.reading import Columns, Reading
from enginetop.fleet.slots import Kind, Slots, slots_of

LARGEST = 1e200
"""Greater numbers count as missing: sums and rates of them would not be finite."""

_SUM_NOISE = 1e-9  # relative; a float sum that is added up in another order may seem to fall a little
_TOKENS_KEPT = 8
_LAYOUTS_KEPT = 8
NONE: frozenset[int] = frozenset()


class Step(NamedTuple):
    """What one page added.

    `reached` is never changed afterwards; pages on which nothing was counted share it. `returned` are slots
    that came back to where they were before a fall, `sums_fallen` slots of sums that fell without a reset.
    `unnumbered` are counting slots that have not had a number yet: nobody knows from where they count.
    `restarted` is why the engine seems to have begun anew, or empty.
    """

    reached: Reached
    page: Sequence[float]
    returned: frozenset[int] = NONE
    sums_fallen: frozenset[int] = NONE
    unnumbered: frozenset[int] = NONE
    restarted: str = ""


@frozen
class _Fall:
    """A fall that may turn out to be a flip. `token` is the new start token that explains it, if one does."""

    at: float
    level: float
    floor: float
    token: float | None


def _alike(one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether these are the same numbers: those of two arrays are compared without being made objects."""
    if isinstance(one, array) and isinstance(other, array) and one.tobytes() == other.tobytes():
        return True
    return one == other


class SeriesTotals:
    """Last values and running totals of all series of one target, by slot.

    `memory_seconds`: how long a fall waits for its return, and how long after a return no fall is taken for a
    restart.
    """

    def __init__(self, memory_seconds: float) -> None:
        self._memory_seconds = memory_seconds
        self.slots = Slots(())
        self.last: Sequence[float] = ()
        """The last number of each series. Before its first one: 0 if it came after other series, else NaN.

        It may be a page's own list, and is never changed.
        """
        self.reached = Reached.at(array("d"))
        """How far all series have come at the last page."""
        self._seen = False  # a page with series: only after one does a new series start from zero
        self._columns: Columns | None = None
        self._places: dict[Columns, list[int]] = {}
        self._token: float | None = None
        self._tokens: tuple[float, ...] = ()
        self._births: Sequence[float] = ()
        self._birth = array("d")  # by slot; NaN: not known
        self._falls: dict[int, _Fall] = {}
        self._returned_at = -math.inf
        self._unnumbered: frozenset[int] = NONE

    def advance(self, reading: Reading) -> Step:
        """Take the steps from the previous page to this one."""
        page = self._by_slot(reading)
        return self._counted_on(reading, page) or self._step(reading, page)

    def _counted_on(self, reading: Reading, page: Sequence[float]) -> Step | None:
        """The step to a page that only counted on, as nearly every one does; None where anything else may be.

        It is taken for all series at once: this is most of what a page costs here.
        """
        counting, token = self.slots.counting, reading.start_token
        if (
            counting is None
            or self._falls
            or self._unnumbered
            or reading.columns is not self._columns
            or (token is not None and token != self._token)
            or not _alike(reading.births, self._births)
        ):
            return None
        before, now = counting(self.last), counting(page)
        if now != before:
            # a vector is at least as long as its largest number, and NaN where one of them is
            if not math.hypot(*now) <= LARGEST or not all(map(le, before, now)):
                return None
            self.reached = self.reached.counted_on(self.last, page)
        self.last = page
        return Step(self.reached, page)

    def _step(self, reading: Reading, page: Sequence[float]) -> Step:
        """The step to any page."""
        last, only_rises = self.last, self.slots.only_rises
        changed = [slot for slot, (value, old) in enumerate(zip(page, last, strict=True)) if value != old]
        fallen = [slot for slot in changed if -LARGEST <= page[slot] < last[slot] and only_rises[slot]]

        token = reading.start_token
        new_process = token is not None and self._token is not None and token != self._token
        returned = self._returns(reading, page) if self._falls else NONE
        for slot in fallen:
            self._remember_fall(
                slot, _Fall(reading.at, last[slot], page[slot], token if new_process else None)
            )

        reborn = self._reborn(reading)
        resets: set[int] = set()
        if new_process:
            resets.update(slot for slot, kind in enumerate(self.slots.kinds) if kind is not Kind.GAUGE)
        else:
            for slot in (*fallen, *reborn):
                resets.update(self.slots.label_set[slot])
        restarted = self._restart(reading, resets, new_process=new_process) if resets else ""
        sums_fallen = self._add_steps(page, changed, resets)
        if token is not None and token != self._token:
            self._token = token
            self._tokens = (*self._tokens, token)[-_TOKENS_KEPT:]
        self._columns = reading.columns
        self._note_unnumbered()
        self._seen = self._seen or bool(reading.columns.series)
        return Step(self.reached, page, returned, sums_fallen, self._unnumbered, restarted)

    def _note_unnumbered(self) -> None:
        last = self.last
        if self._unnumbered:
            self._unnumbered = frozenset(slot for slot in self._unnumbered if last[slot] != last[slot])
        elif not self._seen:
            kinds = self.slots.kinds
            self._unnumbered = frozenset(
                slot for slot, value in enumerate(last) if value != value and kinds[slot] is not Kind.GAUGE
            )

    def _by_slot(self, reading: Reading) -> Sequence[float]:
        """The page's values by slot, NaN where the page lacks one; makes slots for new series."""
        columns = reading.columns
        places = self._places.get(columns)
        if places is None:
            places = self._make_places(columns)
        if not places and len(self.last) == len(columns.series):
            return reading.values
        page = [math.nan] * len(self.last)
        for slot, value in zip(places or range(len(columns.series)), reading.values, strict=True):
            page[slot] = value
        return page

    def _make_places(self, columns: Columns) -> list[int]:
        """The slot of each column; empty when they are 0, 1, 2, ..."""
        if not len(self.slots):
            self.slots = slots_of(columns)
        places = self.slots.places(columns)
        if places is None:
            self.slots = self.slots.extended(columns)
            places = self.slots.places(columns) or []
        new = len(self.slots) - len(self.last)
        if new:
            self.last = [*self.last, *([0.0 if self._seen else math.nan] * new)]
            self.reached = Reached.at(self.reached.totals + array("d", bytes(8 * new)))
        if places == list(range(len(places))):
            places = []
        if len(self._places) == _LAYOUTS_KEPT:
            self._places.clear()
        self._places[columns] = places
        return places

    def _reborn(self, reading: Reading) -> list[int]:
        """Slots whose counting began anew since the previous page, as their birth tells."""
        columns = reading.columns
        if columns is self._columns and _alike(reading.births, self._births):
            return []
        self._births = reading.births
        places = self._places[columns] or range(len(columns.series))
        reborn = []
        known = self._birth
        known.extend([math.nan] * (len(self.slots) - len(known)))
        for birth, group in zip(reading.births, columns.birth_groups, strict=True):
            if math.isnan(birth):
                continue
            for position in group:
                slot = places[position]
                before = known[slot]
                if before == before and before != birth:
                    reborn.append(slot)
                known[slot] = birth
        return reborn

    def _returns(self, reading: Reading, page: Sequence[float]) -> frozenset[int]:
        """Slots that are back at their level before a fall, in one leap rather than by counting up again.

        A restarted process climbs past its old level too; it does so in several steps, or under the start
        token that explained the fall.
        """
        returned = set()
        for slot, fall in list(self._falls.items()):
            if page[slot] >= fall.level:
                del self._falls[slot]
                climbed = fall.token is not None and fall.token == reading.start_token
                if not climbed and (page[slot] - self.last[slot]) * 2 >= fall.level - fall.floor:
                    returned.add(slot)
            elif reading.at - fall.at > self._memory_seconds:
                del self._falls[slot]
        if returned:
            self._returned_at = reading.at
        return frozenset(returned)

    def _remember_fall(self, slot: int, fall: _Fall) -> None:
        earlier = self._falls.get(slot)
        if earlier is not None and earlier.level > fall.level:
            fall = _Fall(fall.at, earlier.level, fall.floor, fall.token)
        self._falls[slot] = fall

    def _restart(self, reading: Reading, resets: Collection[int], *, new_process: bool) -> str:
        """Why the engine seems to have restarted, or empty.

        A start token that was there before, and falls among flips, are several processes behind one address.
        Under an unchanged start token a few series that begin anew are those series' own affair.
        """
        if reading.at - self._returned_at <= self._memory_seconds:
            return ""
        if new_process:
            return "" if reading.start_token in self._tokens else "process start changed"
        if reading.start_token is not None:
            kinds = self.slots.kinds
            counting = [
                slot
                for slot, value in enumerate(self.last)
                if value > 0 and (kinds[slot] is Kind.COUNTER or kinds[slot] is Kind.COUNT)
            ]
            if 2 * sum(slot in resets for slot in counting) < len(counting):
                return ""
        return "counters began anew"

    def _add_steps(
        self, page: Sequence[float], changed: Sequence[int], resets: Collection[int]
    ) -> frozenset[int]:
        """Move `last` and the totals on; tells which sums fell without a reset."""
        kinds, gauge, total = self.slots.kinds, Kind.GAUGE, Kind.SUM
        last = list(self.last)
        sums_fallen = set()
        steps: list[tuple[int, float]] = []
        for slot in changed:
            value = page[slot]
            if kinds[slot] is gauge:
                last[slot] = value
                continue
            if (resets and slot in resets) or not -LARGEST <= value <= LARGEST:
                continue
            before = last[slot]
            last[slot] = value
            if before != before:  # NaN: the series' first number
                continue
            step = value - before
            if step < -_SUM_NOISE * max(1.0, abs(before)):
                sums_fallen.add(slot)
            steps.append((slot, step))
        for slot in resets:
            value = page[slot] if -LARGEST <= page[slot] <= LARGEST else 0.0
            last[slot] = value
            if value > 0 or kinds[slot] is total:
                steps.append((slot, value))
        self.last = last
        totals = self.reached.totals
        if steps:
            totals = totals[:]
            for slot, step in steps:
                totals[slot] += step
        self.reached = Reached.at(totals)
        return frozenset(sums_fallen) if sums_fallen else NONE
