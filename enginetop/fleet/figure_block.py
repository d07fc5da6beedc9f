"""Some points in time of several figures, in single precision; a full block is put away in less memory."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from enginetop.fleet.deflate import deflated, inflated

BLOCK_POINTS: Final = 64
"""A block holds so many at most."""

_SLACK_POINTS: Final = 11
"""The arrays of a block that grows have room for so many more at most."""
_HEADER_BYTES: Final = 80
_LEVEL: Final = 6
_WORTH_RATIO: Final = 0.9
"""A block that takes more than this share when it is packed stays as it is."""
_UNPACKED_BLOCKS: Final = 64
"""So many of the blocks that were read last stay as they are, of all replicas together."""


def blocks_bytes(blocks: int, figures: int) -> int:
    """The most that so many blocks take, of which one grows: 8 bytes of time and 4 a figure for each point,
    and two headers a block.
    """
    points = blocks * BLOCK_POINTS + _SLACK_POINTS
    return points * (8 + 4 * figures) + blocks * 2 * _HEADER_BYTES


class FigureBlock:
    """Points are added at its end and never changed. `times` are theirs, in Unix seconds, oldest first."""

    __slots__ = ("_figures", "_held", "times")

    def __init__(self, figures: int) -> None:
        self._figures = figures
        self.times = array("d")
        self._held: tuple[array[float] | bytes, tuple[int, ...] | None] = (array("f"), None)
        """The numbers point by point; of a block that was put away figure by figure, and where they begin.
        Bytes are the latter packed.
        """

    def __len__(self) -> int:
        return len(self.times)

    def add(self, at: float, numbers: Iterable[float]) -> None:
        """Take the next point; a block that was put away takes none."""
        held = self._held[0]
        assert isinstance(held, array)
        held.extend(numbers)
        self.times.append(at)

    def put_away(self) -> None:
        """Let a figure that is the same at all points be one number. What is read stays the same."""
        numbers, begins = self._held
        if begins is not None or isinstance(numbers, bytes):
            return
        kept, level = array("f"), []
        for place in range(self._figures):
            column = numbers[place :: self._figures]
            level.append(column.tobytes() == column[:1].tobytes() * len(column))
            kept.extend(column[:1] if level[-1] else column)
        self.times = _same_times(self.times.tobytes())
        self._held = (kept[:], _begins(tuple(level), len(self)))

    def pack(self) -> None:
        """Compress a block that was put away, where that is worth it: to read it takes 15 µs more."""
        numbers, begins = self._held
        if begins is None or isinstance(numbers, bytes):
            return
        packed = deflated(numbers, _LEVEL)
        if len(packed) < _WORTH_RATIO * numbers.itemsize * len(numbers):
            self._held = (packed, begins)

    def figures(self, place: int, start: int, stop: int) -> array[float]:
        """The numbers of a figure at the points from `start` to `stop`."""
        numbers, begins = self._held  # one look: another thread may put the block away
        if isinstance(numbers, bytes):
            numbers = _unpacked(numbers)
        if begins is None:
            return numbers[place + start * self._figures : place + stop * self._figures : self._figures]
        begin, end = begins[place], begins[place + 1]
        if end - begin == 1:
            return numbers[begin:end] * (stop - start)
        return numbers[begin + start : begin + stop]

    def beginning(self, points: int) -> FigureBlock:
        """Another block with the first so many points of this one."""
        block = FigureBlock(self._figures)
        block.times = self.times[:points]
        rows = array("f", bytes(4 * points * self._figures))
        for place in range(self._figures):
            rows[place :: self._figures] = self.figures(place, 0, points)
        block._held = (rows, None)
        return block


@lru_cache(maxsize=_UNPACKED_BLOCKS)
def _unpacked(packed: bytes) -> array[float]:
    """The numbers of a block, for its other figures, which are mostly asked for next."""
    return array("f", inflated(packed))


@lru_cache(maxsize=64)
def _same_times(times: bytes) -> array[float]:
    """These times, without room for more: one array for all replicas that have a point at each tick."""
    return array("d", times)


@lru_cache(maxsize=256)
def _begins(level: tuple[bool, ...], points: int) -> tuple[int, ...]:
    """Where the numbers of each figure begin, and where the last ones end; `level` ones are one number."""
    begins = [0]
    for one in level:
        begins.append(begins[-1] + (1 if one else points))
    return tuple(begins)
