"""Advice rows for every replica of a snapshot."""

from __future__ import annotations

from dataclasses import replace

from enginetop.fleet.model import EngineKind
from enginetop.fleet.signals import KNOBS
from enginetop.fleet.snapshot import Advice, FleetSnapshot

_WITHOUT_KNOBS = frozenset({EngineKind.ROUTER, EngineKind.UNKNOWN})

_NOT_BUILT = tuple(Advice(knob=knob, action="withheld", because=("not built yet",)) for knob in KNOBS)


def with_advice(snapshot: FleetSnapshot) -> FleetSnapshot:
    """The snapshot with one advice row a knob for every engine replica.

    No rule is built yet, so every row is `withheld` and says so; routers and unknown pages have no knobs.
    """
    replicas = tuple(
        replica if replica.engine in _WITHOUT_KNOBS else replace(replica, advice=_NOT_BUILT)
        for replica in snapshot.replicas
    )
    return replace(snapshot, replicas=replicas)
