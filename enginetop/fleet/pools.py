"""Replicas that are alike: one model, one role. What is compared, and drawn as one curve."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from enginetop.fleet.model import Role
from enginetop.fleet.snapshot import ReplicaSnapshot

Pool = tuple[str | None, Role]


def pools(replicas: Iterable[ReplicaSnapshot]) -> Mapping[Pool, list[ReplicaSnapshot]]:
    """Replicas by model and role, each group in the order of the fleet."""
    found: dict[Pool, list[ReplicaSnapshot]] = {}
    for replica in replicas:
        found.setdefault((replica.model, replica.role), []).append(replica)
    return found
