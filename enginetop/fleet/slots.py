"""Slots: where each raw series of a target is kept from page to page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from operator import itemgetter
from weakref import WeakKeyDictionary

from enginetop.fleet.beyond_catalogue import MEASURE_KINDS
from enginetop.fleet.reading import Columns, Part, Series
from enginetop.fleet.signals import MeasureKind


class Kind(Enum):
    """How a slot's value is read over time."""

    GAUGE = "gauge"
    COUNTER = "counter"
    BUCKET = "bucket"
    COUNT = "count"
    SUM = "sum"  # of a histogram: may fall without a reset


_KIND_OF_PART = {Part.BUCKET: Kind.BUCKET, Part.SUM: Kind.SUM, Part.COUNT: Kind.COUNT}


Pick = Callable[[Sequence[float]], Sequence[float]]
"""Takes numbers at known places, all at once."""


def pick_of(places: Sequence[int]) -> Pick:
    """Takes the numbers at these places."""
    if len(places) > 1:
        return itemgetter(*places)
    return lambda numbers: [numbers[place] for place in places]


class Slots:
    """The slots of a target's raw series, in order of first sight; never changed once built.

    By slot: `series`, `kinds`, `only_rises` (whether a fall means a reset) and `label_set` (the slots that
    restart together with this one: a histogram's whole label set, a counter alone). `counting` picks from a
    page, by slot, the numbers of all that is no gauge; None where fewer than two do.
    """

    __slots__ = ("__weakref__", "_index", "counting", "kinds", "label_set", "only_rises", "series")

    def __init__(self, series: Sequence[Series]) -> None:
        self._index: dict[tuple[str, Part, str], int] = {}
        for one in series:
            self._index.setdefault(_identity(one), len(self._index))
        first_of: dict[int, Series] = {}
        for one in series:
            first_of.setdefault(self._index[_identity(one)], one)
        self.series = tuple(first_of.values())
        self.kinds = [_kind(one) for one in self.series]
        self.only_rises = [kind in (Kind.COUNTER, Kind.COUNT, Kind.BUCKET) for kind in self.kinds]
        counting = [slot for slot, kind in enumerate(self.kinds) if kind is not Kind.GAUGE]
        self.counting: Pick | None = itemgetter(*counting) if len(counting) > 1 else None
        sets: dict[tuple[str, str, str], list[int]] = {}
        for slot, one in enumerate(self.series):
            if one.part is not Part.VALUE:
                sets.setdefault((one.measure, one.rank, one.group), []).append(slot)
        self.label_set: list[tuple[int, ...]] = [(slot,) for slot in range(len(self.series))]
        for members in sets.values():
            together = tuple(members)
            for slot in members:
                self.label_set[slot] = together

    def __len__(self) -> int:
        return len(self.series)

    def places(self, columns: Columns) -> list[int] | None:
        """The slot of each column; None if one of them has no slot yet."""
        places = [self._index.get(_identity(one)) for one in columns.series]
        known = [slot for slot in places if slot is not None]
        return known if len(known) == len(places) else None

    def extended(self, columns: Columns) -> Slots:
        """These slots, and new ones for the series of `columns` that have none."""
        return Slots((*self.series, *columns.series))


_shared: WeakKeyDictionary[Columns, Slots] = WeakKeyDictionary()


def slots_of(columns: Columns) -> Slots:
    """Slots in the order of `columns`; one object for all targets that have the same columns."""
    slots = _shared.get(columns)
    if slots is None:
        slots = _shared[columns] = Slots(columns.series)
    return slots


def _identity(series: Series) -> tuple[str, Part, str]:
    return series.measure, series.part, series.key


def _kind(series: Series) -> Kind:
    if series.part is not Part.VALUE:
        return _KIND_OF_PART[series.part]
    return Kind.COUNTER if MEASURE_KINDS.get(series.measure) is MeasureKind.COUNTER else Kind.GAUGE
