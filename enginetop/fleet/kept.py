"""Snapshots in a tenth of their memory, to be looked at again later."""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from io import BytesIO
from itertools import islice
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Final, Protocol

from enginetop.fleet.lazy import Lazy
from enginetop.fleet.snapshot import (
    Distribution,
    FleetSnapshot,
    Goodput,
    Quantile,
    RankSnapshot,
    ReplicaSnapshot,
    Scalar,
    Slo,
    Span,
)

_SHARED: Final = ("target", "slo", "trends", "trend_times", "load", "what_if")
"""Parts of a replica that its pictures share, or that stand for much that is not theirs: they are not packed.
"""

_OWN: Final = tuple(field.name for field in fields(ReplicaSnapshot) if field.name not in _SHARED)
_shared_of, _own_of = attrgetter(*_SHARED), attrgetter(*_OWN)

_MEMBERS_TOGETHER: Final = 4
"""So many replicas are packed in one go. All their figures are there until it is done: those of a whole fleet
would leave holes in the heap. What the next ones say alike is still within the reach of deflate, 32 KiB.
"""


class Divisible(Protocol):
    """A part of a replica that stands for things that other pictures hold too: it is made again of these."""

    def divided(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """What others hold too, and what is its own: what its class is called with, in this order."""


def _read_only(values: dict[Any, Any]) -> Mapping[Any, Any]:
    return MappingProxyType(values)


def _by_fields(kind: type) -> Callable[[Any], tuple[type, tuple[Any, ...]]]:
    """How an instance of a data class is made again: quicker than by what data classes tell of themselves."""
    values = attrgetter(*(field.name for field in fields(kind)))
    return lambda one: (kind, values(one))


_MADE_AGAIN: Final[dict[type, Callable[[Any], tuple[Any, ...]]]] = {
    Lazy: lambda one: (dict, (one.whole(),)),
    MappingProxyType: lambda one: (_read_only, (dict(one),)),
    **{kind: _by_fields(kind) for kind in (Distribution, Goodput, Quantile, RankSnapshot, Scalar, Slo, Span)},
}


_Recipe = tuple[type | None, int, tuple[Any, ...]]
"""Of what a part is made again: its class, and what that is called with: so many of the shared objects, then
what is its own. Without a class it is the next shared object itself.
"""


def _recipe(part: Any, shared: list[Any]) -> _Recipe:
    """That of a part; what it shares is put behind the shared objects so far."""
    if not hasattr(type(part), "divided"):
        shared.append(part)
        return None, 1, ()
    others, own = part.divided()
    shared += others
    return type(part), len(others), own


def _made(recipe: _Recipe, shared: Iterator[Any]) -> Any:
    kind, count, own = recipe
    return next(shared) if kind is None else kind(*islice(shared, count), *own)


class KeptSnapshot:
    """One snapshot. To keep it, every figure of it is worked out.

    `at`, and `members`, the number of its replicas, are read without opening it.
    """

    __slots__ = ("_packed", "_shared", "at", "members")

    def __init__(self, snapshot: FleetSnapshot) -> None:
        self.at, self.members = snapshot.at, len(snapshot.replicas)
        shared = list[Any]()
        press = zlib.compressobj(6)
        packed = [press.compress(_pickled([replace(snapshot, replicas=())]))]
        replicas = iter(snapshot.replicas)
        while some := tuple(islice(replicas, _MEMBERS_TOGETHER)):
            parts = (
                ([_recipe(part, shared) for part in _shared_of(replica)], _own_of(replica))
                for replica in some
            )
            packed.append(press.compress(_pickled(parts)))
        self._packed = b"".join((*packed, press.flush()))
        self._shared = tuple(shared)

    def open(self) -> FleetSnapshot:
        """The snapshot, equal to the one that was kept."""
        file, shared = BytesIO(zlib.decompress(self._packed)), iter(self._shared)
        snapshot: FleetSnapshot = _unpickled(file, 1)[0]
        replicas = (
            ReplicaSnapshot(
                **{name: _made(recipe, shared) for name, recipe in zip(_SHARED, recipes, strict=True)},
                **dict(zip(_OWN, own, strict=True)),
            )
            for begin in range(0, self.members, _MEMBERS_TOGETHER)
            for recipes, own in _unpickled(file, min(_MEMBERS_TOGETHER, self.members - begin))
        )
        return replace(snapshot, replicas=tuple(replicas))


def _pickled(things: Iterable[object]) -> memoryview:
    """These, one by one, so that other threads have their turn; what they have in common is told once."""
    file = BytesIO()
    pickler = pickle.Pickler(file, pickle.HIGHEST_PROTOCOL)
    pickler.dispatch_table = _MADE_AGAIN
    for one in things:
        pickler.dump(one)
    return file.getbuffer()


def _unpickled(file: BytesIO, count: int) -> Sequence[Any]:
    """The next so many things that were pickled together."""
    unpickler = pickle.Unpickler(file)  # noqa: S301 - our own bytes, of memory
    return [unpickler.load() for _ in range(count)]
