"""Steps of raw series from page to page: differences, resets, first sights, and counters that flip.

Every raw series of a target has a *slot*. `SeriesTotals` keeps, for each slot, the last value and a running
total of its steps; the increase over any window is the difference of two totals, so resets inside it count.
"""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from weakref import WeakKeyDictionary

from enginetop.fleet.reading import Columns, Part, Reading, Series
from enginetop.fleet.signals import MEASURES, MeasureKind

_SUM_NOISE = 1e-9  # relative; a float sum added up in another order may seem to fall by less than this
_TOKENS_KEPT = 8
_LAYOUTS_KEPT = 8
NONE: frozenset[int] = frozenset()


class Kind(IntEnum):
    """How a slot's value is read over time."""

    GAUGE = 0
    SUM = 1  # of a histogram: may fall without a reset
    COUNTER = 2
    COUNT = 3  # of a histogram
    BUCKET = 4


_KIND_OF_PART = {Part.BUCKET: Kind.BUCKET, Part.SUM: Kind.SUM, Part.COUNT: Kind.COUNT}


class Slots:
    """The slots of a target's raw series, in order of first sight; never changed once built.

    `label_set[slot]` lists the slots that restart together with `slot`: the whole label set of a histogram,
    the slot alone for a counter. Targets whose first pages have the same columns share one object.
    """

    __slots__ = ("index", "kinds", "label_set", "series")

    def __init__(self, series: Sequence[Series]) -> None:
        self.series = tuple(series)
        self.index = {_identity(one): slot for slot, one in enumerate(self.series)}
        self.kinds = [_kind(one) for one in self.series]
        sets: dict[tuple[str, str, str], list[int]] = {}
        for slot, one in enumerate(self.series):
            if self.kinds[slot] not in (Kind.GAUGE, Kind.COUNTER):
                sets.setdefault((one.measure, one.rank, one.group), []).append(slot)
        self.label_set: list[tuple[int, ...]] = [(slot,) for slot in range(len(self.series))]
        for members in sets.values():
            together = tuple(members)
            for slot in members:
                self.label_set[slot] = together

    def places(self, columns: Columns) -> list[int] | None:
        """The slot of each column; None if one of them has no slot yet."""
        try:
            return [self.index[_identity(one)] for one in columns.series]
        except KeyError:
            return None

    def extended(self, columns: Columns) -> Slots:
        """These slots and one for each series of `columns` that had none."""
        new = {_identity(one): one for one in columns.series if _identity(one) not in self.index}
        return Slots((*self.series, *new.values()))


_shared: WeakKeyDictionary[Columns, Slots] = WeakKeyDictionary()


def slots_of(columns: Columns) -> Slots:
    """Slots in the order of `columns`, one object for all who ask."""
    slots = _shared.get(columns)
    if slots is None:
        slots = _shared[columns] = Slots(tuple({_identity(one): one for one in columns.series}.values()))
    return slots


def _identity(series: Series) -> tuple[str, Part, str]:
    return series.measure, series.part, series.key


def _kind(series: Series) -> Kind:
    if series.part is not Part.VALUE:
        return _KIND_OF_PART[series.part]
    return Kind.COUNTER if MEASURES.get(series.measure) is MeasureKind.COUNTER else Kind.GAUGE


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """What one page added.

    `totals` (by slot) is never changed afterwards; pages that change nothing share it. `returned` are slots
    that came back to where they were before a fall, `sums_fallen` slots of sums that fell without a reset.
    `restarted` is why the engine seems to have begun anew, or empty.
    """

    totals: array[float]
    page: Sequence[float]
    returned: frozenset[int] = NONE
    sums_fallen: frozenset[int] = NONE
    restarted: str = ""


@dataclass(frozen=True, slots=True)
class _Fall:
    """A fall that may turn out to be a flip. `token` is the start token that explains it, if one does."""

    at: float
    level: float
    floor: float
    token: float | None


class SeriesTotals:
    """Last values and running totals of all series of one target, by slot.

    `memory_seconds` is how long a fall waits for its return, and how long a return forbids to take another
    fall for a restart.
    """

    def __init__(self, memory_seconds: float) -> None:
        self._memory_seconds = memory_seconds
        self.slots = Slots(())
        self.last: list[float] = []
        self._totals: array[float] = array("d")
        self._places: dict[Columns, list[int]] = {}
        self._in_order: dict[Columns, bool] = {}
        self._columns: Columns | None = None
        self._token: float | None = None
        self._tokens: deque[float] = deque(maxlen=_TOKENS_KEPT)
        self._births: Sequence[float] = ()
        self._birth: dict[int, float] = {}
        self._falls: dict[int, _Fall] = {}
        self._returned_at = -math.inf

    def advance(self, reading: Reading) -> Step:
        """Take the steps from the previous page to this one."""
        first = self._columns is None
        page = self._by_slot(reading)
        token = reading.start_token
        new_process = token is not None and self._token is not None and token != self._token
        seen_before = new_process and token in self._tokens
        reborn = self._reborn(reading)
        last, kinds = self.last, self.slots.kinds
        changed = [slot for slot, (value, old) in enumerate(zip(page, last, strict=True)) if value != old]
        fallen = [
            slot for slot in changed if -math.inf < page[slot] < last[slot] and kinds[slot] >= Kind.COUNTER
        ]
        returned = self._returns(reading, page, fallen) if self._falls else NONE
        for slot in fallen:
            self._remember_fall(slot, page[slot], reading.at, token if new_process else None)
        if returned:
            self._returned_at = reading.at

        resets: set[int] = set()
        if new_process:
            resets.update(slot for slot, kind in enumerate(kinds) if kind is not Kind.GAUGE)
        else:
            for slot in (*fallen, *reborn):
                resets.update(self.slots.label_set[slot])
        restarted = self._restart(reading, resets, new_process=new_process, seen_before=seen_before)
        totals, sums_fallen = self._add_steps(page, changed, resets, first=first)
        if token is not None and token != self._token:
            self._token = token
            self._tokens.append(token)
        self._columns = reading.columns
        return Step(totals, page, returned, sums_fallen, restarted)

    def _by_slot(self, reading: Reading) -> Sequence[float]:
        """The page's values by slot, NaN where the page lacks one; makes slots for new series."""
        columns = reading.columns
        if columns not in self._places:
            self._make_places(columns)
        places = self._places[columns]
        if len(places) == len(self.last) and self._in_order[columns]:
            return reading.values
        page = [math.nan] * len(self.last)
        for slot, value in zip(places, reading.values, strict=True):
            page[slot] = value
        return page

    def _make_places(self, columns: Columns) -> None:
        if self._columns is None:
            self.slots = slots_of(columns)
        places = self.slots.places(columns)
        if places is None:
            self.slots = self.slots.extended(columns)
            places = [self.slots.index[_identity(one)] for one in columns.series]
        new = len(self.slots.series) - len(self.last)
        if new:
            self.last.extend([math.nan] * new)
            self._totals = self._totals + array("d", bytes(8 * new))
        if len(self._places) == _LAYOUTS_KEPT:
            self._places.clear()
            self._in_order.clear()
        self._places[columns] = places
        self._in_order[columns] = places == list(range(len(places)))

    def _reborn(self, reading: Reading) -> list[int]:
        """Slots whose counting began anew since the previous page, as their birth tells."""
        if reading.columns is self._columns and reading.births == self._births:
            return []
        self._births = reading.births
        places = self._places[reading.columns]
        reborn = []
        for birth, group in zip(reading.births, reading.columns.birth_groups, strict=True):
            if math.isnan(birth):
                continue
            for position in group:
                slot = places[position]
                if self._birth.get(slot, birth) != birth:
                    reborn.append(slot)
                self._birth[slot] = birth
        return reborn

    def _returns(self, reading: Reading, page: Sequence[float], fallen: Sequence[int]) -> frozenset[int]:
        """Slots that are back at their level before a fall, in one leap rather than by counting up again.

        A restarted process climbs past its old level too; it does so in several steps, or under the start
        token that explained the fall.
        """
        returned = set()
        for slot, fall in list(self._falls.items()):
            if page[slot] >= fall.level and slot not in fallen:
                del self._falls[slot]
                climbed = fall.token is not None and reading.start_token == fall.token
                if not climbed and (page[slot] - self.last[slot]) * 2 >= fall.level - fall.floor:
                    returned.add(slot)
            elif reading.at - fall.at > self._memory_seconds:
                del self._falls[slot]
        return frozenset(returned)

    def _remember_fall(self, slot: int, floor: float, at: float, token: float | None) -> None:
        earlier = self._falls.get(slot)
        level = self.last[slot] if earlier is None else max(earlier.level, self.last[slot])
        self._falls[slot] = _Fall(at, level, floor, token)

    def _restart(self, reading: Reading, resets: set[int], *, new_process: bool, seen_before: bool) -> str:
        """Why the engine seems to have restarted, or empty.

        A start token that was there before, and falls among flips, are several processes behind one address.
        Under an unchanged start token a few series that begin anew are those series' own affair.
        """
        flipping = reading.at - self._returned_at <= self._memory_seconds
        if not resets or seen_before or flipping:
            return ""
        if new_process:
            return "process start changed"
        if reading.start_token is not None:
            kinds = self.slots.kinds
            counting = [
                slot
                for slot, value in enumerate(self.last)
                if value > 0 and kinds[slot] in (Kind.COUNTER, Kind.COUNT)
            ]
            if 2 * sum(slot in resets for slot in counting) < len(counting):
                return ""
        return "counters began anew"

    def _add_steps(
        self, page: Sequence[float], changed: Sequence[int], resets: set[int], *, first: bool
    ) -> tuple[array[float], frozenset[int]]:
        last, kinds = self.last, self.slots.kinds
        totals = self._totals[:]
        sums_fallen = set()
        for slot in changed:
            kind = kinds[slot]
            value = page[slot]
            if kind == Kind.GAUGE or slot in resets or not math.isfinite(value):
                continue
            before = last[slot]
            last[slot] = value
            from_zero = math.isnan(before)
            if from_zero and first:
                continue
            step = value if from_zero else value - before
            if step < 0:
                if kind != Kind.SUM:
                    continue
                if step < -_SUM_NOISE * max(1.0, abs(before)):
                    sums_fallen.add(slot)
            totals[slot] += step
        for slot in resets:
            value = page[slot] if math.isfinite(page[slot]) else 0.0
            last[slot] = value
            totals[slot] += value if kinds[slot] == Kind.SUM else max(0.0, value)
        self._totals = totals
        return totals, frozenset(sums_fallen) if sums_fallen else NONE
