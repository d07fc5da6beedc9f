"""Snapshots in a tenth of their memory, to be looked at again later."""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from io import BytesIO
from itertools import islice
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Final

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
"""Parts of a replica that its pictures share, or that stand for much that is not theirs: kept as they are."""

_OWN: Final = tuple(field.name for field in fields(ReplicaSnapshot) if field.name not in _SHARED)
_shared_of, _own_of = attrgetter(*_SHARED), attrgetter(*_OWN)


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


class KeptSnapshot:
    """One snapshot. To keep it, every figure of it is worked out.

    `at`, and `members`, the number of its replicas, are read without opening it.
    """

    __slots__ = ("_packed", "_shared", "at", "members")

    def __init__(self, snapshot: FleetSnapshot) -> None:
        self.at, self.members = snapshot.at, len(snapshot.replicas)
        self._shared = [part for replica in snapshot.replicas for part in _shared_of(replica)]
        file = BytesIO()
        pickler = pickle.Pickler(file, pickle.HIGHEST_PROTOCOL)
        pickler.dispatch_table = _MADE_AGAIN
        pickler.dump(replace(snapshot, replicas=()))
        for replica in snapshot.replicas:  # one by one, so that other threads have their turn
            pickler.dump(_own_of(replica))
        self._packed = zlib.compress(file.getbuffer(), 6)

    def open(self) -> FleetSnapshot:
        """The snapshot, equal to the one that was kept."""
        unpickler = pickle.Unpickler(BytesIO(zlib.decompress(self._packed)))  # noqa: S301 - our own bytes, of memory
        snapshot: FleetSnapshot = unpickler.load()
        parts = iter(self._shared)
        replicas = (
            ReplicaSnapshot(
                **dict(zip(_SHARED, islice(parts, len(_SHARED)), strict=True)),
                **dict(zip(_OWN, unpickler.load(), strict=True)),
            )
            for _ in range(self.members)
        )
        return replace(snapshot, replicas=tuple(replicas))
