"""Requests at hand on one page, read without waiting for a window."""

from __future__ import annotations

import math
from typing import NamedTuple
from weakref import WeakKeyDictionary

from enginetop.fleet.frozen import frozen
from enginetop.fleet.model import Quality
from enginetop.fleet.reading import Columns, Reading

_GAUGES = ("requests_running", "requests_waiting")


class Work(NamedTuple):
    """Requests running and waiting over all ranks; None: the page does not tell.

    `busy` says whether there are any: None if no gauge is exported, or if one that is holds no number and the
    others are zero.
    """

    running: float | None
    waiting: float | None
    busy: bool | None


NO_WORK = Work(None, None, None)
"""Before the first page."""


@frozen
class _Gauge:
    places: tuple[int, ...]
    exported: bool


_gauges: WeakKeyDictionary[Columns, tuple[_Gauge, ...]] = WeakKeyDictionary()


def work_of(reading: Reading) -> Work:
    """The work that a reading shows."""
    gauges = _gauges.get(reading.columns)
    if gauges is None:
        gauges = _gauges[reading.columns] = tuple(_gauge(reading.columns, name) for name in _GAUGES)
    running, waiting = _sum(reading, gauges[0]), _sum(reading, gauges[1])
    if (running is not None and running > 0) or (waiting is not None and waiting > 0):
        return Work(running, waiting, True)
    told = (running is not None) + (waiting is not None)
    unsure = not told or told < sum(gauge.exported for gauge in gauges)
    return Work(running, waiting, None if unsure else False)


def _gauge(columns: Columns, measure: str) -> _Gauge:
    places = tuple(i for i, series in enumerate(columns.series) if series.measure == measure)
    absence = columns.absent.get(measure)
    late = absence is not None and absence.quality is not Quality.UNSUPPORTED
    return _Gauge(places, bool(places) or late)


def _sum(reading: Reading, gauge: _Gauge) -> float | None:
    """The sum over ranks, None without a series or if any rank holds no number."""
    values, places = reading.values, gauge.places
    if not places:
        return None
    # fsum refuses what pages can say
    total = values[places[0]] if len(places) == 1 else sum([values[place] for place in places])
    return total if math.isfinite(total) else None
