"""A frozen object with some fields changed, for objects that are made anew a thousand times a second."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import lru_cache
from operator import attrgetter
from typing import Any, TypeVar

from enginetop.fleet.frozen import frozen

T = TypeVar("T")


@frozen
class _Plan:
    read: Callable[[Any], tuple[Any, ...]]
    place: Mapping[str, int]


def changed(one: T, **changes: object) -> T:
    """`dataclasses.replace` for classes of at least two fields, all of them arguments in their order.

    It reads all fields at once, where `replace` looks at each: a third of the time for a replica's forty.
    Raises KeyError for a name that is no field.
    """
    kind: Any = type(one)
    plan = _plan(kind)
    values = list(plan.read(one))
    for name, value in changes.items():
        values[plan.place[name]] = value
    again: T = kind(*values)
    return again


@lru_cache(maxsize=64)
def _plan(kind: Any) -> _Plan:
    names = [field.name for field in fields(kind)]
    return _Plan(attrgetter(*names), {name: place for place, name in enumerate(names)})
