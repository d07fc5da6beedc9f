"""Recent values of the few figures that screens draw over time, in memory of known size."""

from __future__ import annotations

import math
from abc import abstractmethod
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TypeVar, overload

from enginetop.fleet.model import Quality
from enginetop.fleet.snapshot import NO_GOODPUT, Goodput, Scalar, Signals

TREND_NAMES: tuple[str, ...] = (
    "kv_usage_ratio",
    "requests_running",
    "requests_waiting",
    "generation_tokens_per_second",
    "prompt_tokens_per_second",
    "requests_finished_per_second",
    "preemptions_per_second",
    "prefix_hit_ratio",
    "spec_accepted_length",
    "ttft_seconds.p95",
    "ttft_seconds.p99",
    "tpot_seconds.p95",
    "goodput.attainment",
    "goodput.good_per_second",
)
"""All that is kept: a signal's name, a distribution's name with the quantile, or what goodput tells."""

RATES: Mapping[str, str] = MappingProxyType(
    {"generation_tokens_per_second": "generation_tokens", "preemptions_per_second": "preemptions"}
)
"""Signals whose trend is a rate between neighbouring pages, and the running total behind each."""

KEPT_SECONDS = 900.0
"""How far back trends reach."""

MOST_POINTS = 4096
"""However short the interval."""

_FRESH = (Quality.OK, Quality.ESTIMATED)
_JITTER = 0.9
"""Points nearer to each other than this share of the interval are one."""

T_co = TypeVar("T_co", covariant=True)


def trend_points(interval_seconds: float) -> int:
    """How many points are kept of a replica that is looked at every `interval_seconds`."""
    return min(MOST_POINTS, math.ceil(KEPT_SECONDS / interval_seconds) + 1)


def trend_bytes(interval_seconds: float) -> int:
    """The most that the trends of one replica take: 8 bytes of time and 4 a figure, with room to move on."""
    room = _room(trend_points(interval_seconds))
    return (room + room // 16) * (8 + 4 * len(TREND_NAMES))  # an array that grows holds a sixteenth more


def trend_values(
    signals: Signals, recent: Mapping[str, float | None], goodput: Goodput = NO_GOODPUT
) -> Mapping[str, float | None]:
    """One point: values of `signals` and `goodput`, with the rates of `recent` in the place of the window's.

    A figure that is null or not fresh gives None, so that a plot has a hole while a target is away. Of
    goodput it is what was counted, else the estimate between the bounds.
    """
    values: dict[str, float | None] = {}
    for name in TREND_NAMES:
        base, _, part = name.partition(".")
        if base == "goodput":
            values[name] = _of_goodput(goodput, part)
            continue
        signal = signals[base]
        if signal.quality not in _FRESH:
            values[name] = None
        elif not isinstance(signal, Scalar):
            values[name] = signal.quantiles[part].value
        else:
            values[name] = recent.get(name) if name in RATES else signal.number
    return values


def _of_goodput(goodput: Goodput, part: str) -> float | None:
    if goodput.quality not in _FRESH:
        return None
    if part == "attainment":
        return goodput.joint.independent if goodput.exact is None else goodput.exact
    exact = goodput.good_per_second
    return goodput.within_per_second.independent if exact is None else exact


class _Span(Sequence[T_co]):
    """A stretch of an array that only grows; nothing is copied until it is read."""

    __slots__ = ("_numbers", "_start", "_stop")

    def __init__(self, numbers: array[float], start: int, stop: int) -> None:
        self._numbers, self._start, self._stop = numbers, start, stop

    def __len__(self) -> int:
        return self._stop - self._start

    def __iter__(self) -> Iterator[T_co]:
        return iter(self._read(self._numbers[self._start : self._stop]))

    @overload
    def __getitem__(self, index: int) -> T_co: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[T_co]: ...

    def __getitem__(self, index: int | slice) -> T_co | Sequence[T_co]:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            wanted = slice(self._start + start, self._start + stop, step)
            if step < 0:
                return self._read(self._numbers[self._start : self._stop][index])
            return self._read(self._numbers[wanted])
        place = index if index >= 0 else index + len(self)
        if not 0 <= place < len(self):
            raise IndexError(index)
        place += self._start
        return self._read(self._numbers[place : place + 1])[0]

    @abstractmethod
    def _read(self, numbers: array[float]) -> Sequence[T_co]: ...


class _Times(_Span[float]):
    __slots__ = ()

    def _read(self, numbers: array[float]) -> Sequence[float]:
        return numbers


class _Values(_Span[float | None]):
    __slots__ = ()

    def _read(self, numbers: array[float]) -> Sequence[float | None]:
        return [number if math.isfinite(number) else None for number in numbers]


class _View(Mapping[str, Sequence[float | None]]):
    """The trends as they were when the view was made."""

    __slots__ = ("_columns", "_start", "_stop")

    def __init__(self, columns: Mapping[str, array[float]], start: int, stop: int) -> None:
        self._columns, self._start, self._stop = columns, start, stop

    def __getitem__(self, name: str) -> Sequence[float | None]:
        return _Values(self._columns[name], self._start, self._stop)

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)


class Trends:
    """The points of the last 15 minutes: every figure of `TREND_NAMES`, None where nothing was known.

    Memory is `trend_bytes(interval_seconds)` at most: closer points than the interval replace one another,
    unless the newest two. Figures are kept in single precision. What `times` and `values` give never changes,
    and costs a few words: points are written once, behind all that was given away before.
    """

    __slots__ = ("_closest", "_columns", "_points", "_start", "_times")

    def __init__(self, interval_seconds: float = 2.0) -> None:
        self._points = trend_points(interval_seconds)
        self._closest = _JITTER * KEPT_SECONDS / (self._points - 1)
        self._start = 0
        self._begin(array("d"), {name: array("f") for name in TREND_NAMES})

    def add(self, at: float, values: Mapping[str, float | None]) -> None:
        """Append one point of time `at`; names that `values` lacks are None there.

        Points that are not older than it (a clock that was set back) are dropped.
        """
        times, stop = self._times, len(self._times)
        while stop > self._start and (
            times[stop - 1] >= at
            or (stop - 1 > self._start and times[stop - 1] - times[stop - 2] < self._closest)
        ):
            stop -= 1
        start = bisect_left(times, at - KEPT_SECONDS, self._start, stop)
        start = max(start, stop + 1 - self._points)
        if stop < len(times) or stop == _room(self._points):
            self._begin(times[start:stop], {n: old[start:stop] for n, old in self._columns.items()})
        else:
            self._start = start
        self._times.append(at)
        for name, column in self._columns.items():
            value = values.get(name)
            column.append(math.nan if value is None else value)

    def _begin(self, times: array[float], columns: Mapping[str, array[float]]) -> None:
        """Go on in other arrays: those given away stay as they are."""
        self._start, self._times, self._columns = 0, times, columns

    @property
    def times(self) -> Sequence[float]:
        """Unix seconds of the points, oldest first."""
        return _Times(self._times, self._start, len(self._times))

    @property
    def values(self) -> Mapping[str, Sequence[float | None]]:
        """For each name its values at `times`."""
        return _View(self._columns, self._start, len(self._times))


def _room(points: int) -> int:
    """Points an array holds before the newest move on to another one."""
    return points + points // 4 + 1
