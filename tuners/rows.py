"""Records of numbers in 8 bytes a field: evidence of many replicas is kept for long and read seldom."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class _Shape(Generic[T]):
    """The fields of a data class whose fields are numbers; those that are None by default may be None."""

    __slots__ = ("kind", "numbers", "optional", "places", "width")

    def __init__(self, kind: type[T]) -> None:
        told = fields(kind)  # type: ignore[arg-type]
        self.kind = kind
        self.width = len(told)
        self.places = {one.name: place for place, one in enumerate(told)}
        self.optional = frozenset(place for place, one in enumerate(told) if one.default is None)
        self.numbers: Callable[[T], tuple[float | None, ...]] = attrgetter(*self.places)


_shapes: dict[type, _Shape[Any]] = {}


class Rows(Sequence[T]):
    """Records, oldest first, which never change; they are made when one is looked at."""

    __slots__ = ("_made", "_numbers", "_shape")

    def __init__(self, shape: _Shape[T], numbers: array[float]) -> None:
        self._shape, self._numbers = shape, numbers
        self._made: tuple[T, ...] | None = None

    def __len__(self) -> int:
        return len(self._numbers) // self._shape.width

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...

    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        if isinstance(index, slice) or self._made is not None:
            return self._rows[index]
        place = range(len(self))[index] * self._shape.width
        return Rows(self._shape, self._numbers[place : place + self._shape.width])._rows[0]

    def __iter__(self) -> Iterator[T]:
        return iter(self._rows)

    @property
    def _rows(self) -> tuple[T, ...]:
        if self._made is None:
            columns = map(self.column, self._shape.places)
            self._made = tuple([self._shape.kind(*row) for row in zip(*columns, strict=True)])
        return self._made

    def column(self, name: str) -> Sequence[float | None]:
        """A field of all records."""
        numbers = self.numbers(name)
        return [None if one != one else one for one in numbers] if self.is_optional(name) else numbers

    def numbers(self, name: str) -> array[float]:
        """The same, NaN for what is not known."""
        return self._numbers[self._shape.places[name] :: self._shape.width]

    def is_optional(self, name: str) -> bool:
        """Whether the field may not be known."""
        return self._shape.places[name] in self._shape.optional


class RowLog(Generic[T]):
    """The newest `most` records of one kind."""

    __slots__ = ("_numbers", "_shape", "_size")

    def __init__(self, kind: type[T], most: int) -> None:
        self._shape: _Shape[T] = _shapes.setdefault(kind, _Shape(kind))
        self._size = most * self._shape.width
        self._numbers = array("d")

    def __len__(self) -> int:
        return len(self._numbers) // self._shape.width

    def append(self, row: T) -> None:
        """Take the next record; the oldest goes where there are too many."""
        numbers = self._numbers
        numbers.extend([math.nan if one is None else one for one in self._shape.numbers(row)])
        del numbers[: max(0, len(numbers) - self._size)]

    def drop(self, *, newest: int = 0, oldest: int = 0) -> None:
        """Forget so many records at the ends."""
        width = self._shape.width
        del self._numbers[len(self._numbers) - newest * width :], self._numbers[: oldest * width]

    def clear(self) -> None:
        """Forget all."""
        del self._numbers[:]

    def number(self, row: int, name: str) -> float:
        """A field of a record: 0 is the oldest, -1 the newest. NaN: it is None."""
        return self._numbers[row * self._shape.width + self._shape.places[name]]

    @property
    def rows(self) -> Rows[T]:
        """The records so far."""
        return Rows(self._shape, self._numbers[:])


def column(rows: Sequence[T], name: str) -> Sequence[float | None]:
    """A field of all records; of `Rows` none of these is made for it."""
    return rows.column(name) if isinstance(rows, Rows) else [getattr(one, name) for one in rows]


def known(rows: Sequence[T], name: str) -> Sequence[float]:
    """A field of the records of which it is known."""
    if isinstance(rows, Rows):
        numbers = rows.numbers(name)
        return [one for one in numbers if one == one] if rows.is_optional(name) else numbers
    return [one for one in column(rows, name) if one is not None]


def known_points(rows: Sequence[T], name: str, other: str) -> Sequence[tuple[float, float]]:
    """Two fields of the records of which both are known."""
    pairs = zip(column(rows, name), column(rows, other), strict=True)
    return [(one, two) for one, two in pairs if one is not None and two is not None]
