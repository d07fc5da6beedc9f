"""Figures over time in memory of known size; nothing is copied before it is read."""

from __future__ import annotations

import math
from abc import abstractmethod
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar, overload

MOST_POINTS = 4096
"""However short the spacing."""

_JITTER = 0.9
"""Points nearer to each other than this share of the spacing are one."""

T_co = TypeVar("T_co", covariant=True)


def points_kept(spacing_seconds: float, kept_seconds: float) -> int:
    """How many points, `spacing_seconds` apart, are kept of the last `kept_seconds`."""
    return min(MOST_POINTS, math.ceil(kept_seconds / spacing_seconds) + 1)


def ring_bytes(spacing_seconds: float, kept_seconds: float, figures: int) -> int:
    """The most that one ring takes: 8 bytes of time and 4 a figure for each point, with room to move on."""
    room = _room(points_kept(spacing_seconds, kept_seconds))
    return (room + room // 16) * (8 + 4 * figures)  # an array that grows holds a sixteenth more


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


class FigureRing:
    """The points of the last `kept_seconds`: every figure of `names`, None where nothing was known.

    Memory is at most `ring_bytes`: points closer than the spacing replace one another, unless the newest two.
    Figures are kept in single precision. What `times` and `values` give costs a few words and never changes:
    points are written once, behind all that was given away before.
    """

    __slots__ = ("_closest", "_columns", "_kept_seconds", "_points", "_start", "_times")

    def __init__(self, names: Sequence[str], spacing_seconds: float, kept_seconds: float) -> None:
        self._points = points_kept(spacing_seconds, kept_seconds)
        self._kept_seconds = kept_seconds
        self._closest = _JITTER * kept_seconds / (self._points - 1)
        self._start = 0
        self._times = array("d")
        self._columns: Mapping[str, array[float]] = {name: array("f") for name in names}

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
        start = bisect_left(times, at - self._kept_seconds, self._start, stop)
        start = max(start, stop + 1 - self._points)
        if stop < len(times) or stop == _room(self._points):
            # go on in other arrays: those given away stay as they are
            self._times = times[start:stop]
            self._columns = {name: old[start:stop] for name, old in self._columns.items()}
            start = 0
        self._start = start
        self._times.append(at)
        for name, column in self._columns.items():
            value = values.get(name)
            column.append(math.nan if value is None else value)

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
