"""Checks of routers and gateways: whether there are backends to route to, by their own health gauges."""

from __future__ import annotations

from enginetop.alerts.rule import Finding, untold
from enginetop.alerts.seen import number
from enginetop.alerts.standing import EachReplica
from enginetop.fleet.reading import UNHEALTHY_BACKENDS
from enginetop.fleet.snapshot import ReplicaSnapshot


def backends_down(*, every: bool) -> EachReplica:
    """A gateway that cannot route to some of its backends, or (`every`) to any. Value: the healthy ones."""
    return EachReplica(
        lambda replica, _: _finding(replica, every) if "backends_healthy" in replica.beyond else None
    )


def _finding(replica: ReplicaSnapshot, every: bool) -> Finding | None:
    healthy, known = number(replica, "backends_healthy"), number(replica, "backends_total")
    if healthy is None:
        return untold(replica.target.url)
    if healthy > 0 if every else (known is None or healthy >= known):
        return None
    return Finding(replica.target.url, True, healthy, known, _said(replica, healthy, known))


def _said(replica: ReplicaSnapshot, healthy: float, known: float | None) -> str:
    if not known:
        return "no backend to route to"
    named = replica.config.get(UNHEALTHY_BACKENDS)
    which = f", not {named.value}" if named is not None else ""
    return f"{healthy:.0f} of {known:.0f} backends healthy{which}"
