"""Figures over time in memory of known size; nothing is copied before it is read."""

from __future__ import annotations

import math
from abc import abstractmethod
from array import array
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from types import MappingProxyType
from typing import Any, TypeVar, overload

from enginetop.fleet.figure_block import BLOCK_POINTS, FigureBlock, blocks_bytes

MOST_POINTS = 4096
"""However short the spacing."""

_QUICK_BLOCKS = 4
"""So many full blocks, which rows and alerts read at every look, are not packed."""
_JITTER = 0.9
"""Points nearer to each other than this share of the spacing are one."""

T_co = TypeVar("T_co", covariant=True)


def points_kept(spacing_seconds: float, kept_seconds: float) -> int:
    """How many points, `spacing_seconds` apart, are kept of the last `kept_seconds`."""
    return min(MOST_POINTS, math.ceil(kept_seconds / spacing_seconds) + 1)


def ring_bytes(spacing_seconds: float, kept_seconds: float, figures: int) -> int:
    """The most that one ring takes: its points, and the rest of the blocks at both ends."""
    blocks = math.ceil((points_kept(spacing_seconds, kept_seconds) - 1) / BLOCK_POINTS) + 1
    return blocks_bytes(blocks, figures)


class _Series(Sequence[T_co]):
    """Values that are read when they are asked for."""

    __slots__ = ()

    def __iter__(self) -> Iterator[T_co]:
        return iter(self._read(0, len(self)))

    @overload
    def __getitem__(self, index: int) -> T_co: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[T_co]: ...

    def __getitem__(self, index: int | slice) -> T_co | Sequence[T_co]:
        length = len(self)
        if isinstance(index, slice):
            start, stop, step = index.indices(length)
            if step > 0:
                read = self._read(start, max(start, stop))
                return read if step == 1 else read[::step]
            return self._read(0, length)[index]
        place = index if index >= 0 else index + length
        if not 0 <= place < length:
            raise IndexError(index)
        return self._at(place)

    @abstractmethod
    def _at(self, place: int) -> T_co: ...

    @abstractmethod
    def _read(self, start: int, stop: int) -> Sequence[T_co]: ...


class _Times(_Series[float]):
    """Times of the points in some blocks, from the `start`th of the first block on; all blocks but the last
    are full.
    """

    __slots__ = ("_blocks", "_start", "_stop")

    def __init__(self, blocks: tuple[FigureBlock, ...], start: int, stop: int) -> None:
        self._blocks, self._start, self._stop = blocks, start, stop

    def divided(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """See `kept.Divisible`."""
        return (self._blocks,), (self._start, self._stop)

    def __len__(self) -> int:
        return self._stop - self._start

    def _at(self, place: int) -> float:
        return _time(self._blocks, self._start + place)

    def _read(self, start: int, stop: int) -> Sequence[float]:
        return _joined([block.times[begin:end] for block, begin, end in self.parts(start, stop)])

    def parts(self, start: int, stop: int) -> Sequence[tuple[FigureBlock, int, int]]:
        """In which blocks these points lie, and where."""
        number, begin = divmod(start + self._start, BLOCK_POINTS)
        end = begin + stop - start
        if end <= BLOCK_POINTS:
            return ((self._blocks[number], begin, end),) if begin < end else ()
        parts = []
        while end > 0:
            parts.append((self._blocks[number], begin, min(end, BLOCK_POINTS)))
            number, begin, end = number + 1, 0, end - BLOCK_POINTS
        return parts


class _Values(_Series[float | None]):
    """A figure at these times."""

    __slots__ = ("_place", "_times")

    def __init__(self, times: _Times, place: int) -> None:
        self._times, self._place = times, place

    def __len__(self) -> int:
        return len(self._times)

    def _at(self, place: int) -> float | None:
        return self._read(place, place + 1)[0]

    def _read(self, start: int, stop: int) -> Sequence[float | None]:
        place = self._place
        numbers = _joined(
            [block.figures(place, begin, end) for block, begin, end in self._times.parts(start, stop)]
        )
        return [number if math.isfinite(number) else None for number in numbers]


class _View(Mapping[str, Sequence[float | None]]):
    """The figures as they were when the view was made."""

    __slots__ = ("_places", "times")

    def __init__(
        self, places: Mapping[str, int], blocks: tuple[FigureBlock, ...], start: int, stop: int
    ) -> None:
        self._places = places
        self.times = _Times(blocks, start, stop)

    def divided(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """See `kept.Divisible`."""
        blocks, own = self.times.divided()
        return (self._places, *blocks), own

    def __getitem__(self, name: str) -> Sequence[float | None]:
        return _Values(self.times, self._places[name])

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


class FigureRing:
    """The points of the last `kept_seconds`: every figure of `names`, None where nothing was known.

    Memory is at most `ring_bytes`: points closer than the spacing replace one another, unless the newest two.
    Figures are kept in single precision. What `times` and `values` give costs a few words and never changes:
    points are written once, behind all that was given away before.
    """

    __slots__ = ("_blocks", "_closest", "_kept_seconds", "_names", "_points", "_start", "_view")

    def __init__(self, names: Sequence[str], spacing_seconds: float, kept_seconds: float) -> None:
        self._points = points_kept(spacing_seconds, kept_seconds)
        self._kept_seconds = kept_seconds
        self._closest = _JITTER * kept_seconds / (self._points - 1)
        self._names = tuple(names)
        self._blocks: tuple[FigureBlock, ...] = (FigureBlock(len(self._names)),)
        self._start = 0
        self._show()

    def add(self, at: float, values: Mapping[str, float | None]) -> None:
        """Append one point of time `at`; names that `values` lacks are None there.

        Points that are not older than it (a clock that was set back) are dropped.
        """
        blocks, start = self._blocks, self._start
        stop = BLOCK_POINTS * (len(blocks) - 1) + len(blocks[-1])
        newest = _time(blocks, stop - 1) if stop > start else -math.inf
        while stop > start:
            before = _time(blocks, stop - 2) if stop - 1 > start else -math.inf
            if newest < at and newest - before >= self._closest:
                break
            newest, stop = before, stop - 1
        while start < stop and (
            _time(blocks, start) < at - self._kept_seconds or stop - start >= self._points
        ):
            start += 1
        self._cut(start, stop)
        self._blocks[-1].add(at, [_number(values.get(name)) for name in self._names])
        self._show()

    def _cut(self, start: int, stop: int) -> None:
        """Keep these points alone, with room for one more. Blocks that were given away stay as they are."""
        blocks = self._blocks
        last, points = divmod(stop, BLOCK_POINTS)
        if last < len(blocks) and points < len(blocks[last]):
            blocks = (*blocks[:last], blocks[last].beginning(points))
        elif last == len(blocks):
            blocks[-1].put_away()
            if len(blocks) > _QUICK_BLOCKS:
                blocks[-1 - _QUICK_BLOCKS].pack()
            blocks = (*blocks, FigureBlock(len(self._names)))
        first = min(start // BLOCK_POINTS, len(blocks) - 1)
        self._blocks = blocks[first:] if first else blocks
        self._start = start - first * BLOCK_POINTS

    def _show(self) -> None:
        stop = BLOCK_POINTS * (len(self._blocks) - 1) + len(self._blocks[-1])
        self._view = _View(_places(self._names), self._blocks, self._start, stop)

    @property
    def times(self) -> Sequence[float]:
        """Unix seconds of the points, oldest first."""
        return self._view.times

    @property
    def values(self) -> Mapping[str, Sequence[float | None]]:
        """For each name its values at `times`."""
        return self._view


def _time(blocks: Sequence[FigureBlock], point: int) -> float:
    """The time of a point, counted from the first one of the first block."""
    return blocks[point // BLOCK_POINTS].times[point % BLOCK_POINTS]


def _joined(parts: Sequence[array[float]]) -> Sequence[float]:
    return parts[0] if len(parts) == 1 else [*chain.from_iterable(parts)]


def _number(value: float | None) -> float:
    return math.nan if value is None else value


@lru_cache(maxsize=64)
def _places(names: tuple[str, ...]) -> Mapping[str, int]:
    return MappingProxyType({name: place for place, name in enumerate(names)})
