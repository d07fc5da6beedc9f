"""The JSON form of load curves: `enginetop.curve/1`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from enginetop.fleet.frozen import frozen
from enginetop.fleet.load_curve import Bin, LoadCurve, Spread, load_curve, points_of
from enginetop.fleet.pools import pools
from enginetop.fleet.snapshot import FleetSnapshot, ReplicaSnapshot, Slo

SCHEMA = "enginetop.curve/1"


@frozen
class NamedCurve:
    """A curve and what it is of: `scope` is `replica`, `pool` or `overlay`; a pool's load is that of one of
    its `replicas`. `name` is for people, `target` the URL of a replica, or the file of an overlay.
    """

    scope: str
    name: str
    curve: LoadCurve
    slo: Slo
    replicas: int = 1
    target: str = ""
    model: str | None = None
    role: str = ""


def curves_of(snapshot: FleetSnapshot) -> list[NamedCurve]:
    """A curve for each model and role, then one for each replica that has a window to show."""
    of_replicas = (curve_of(one) for one in snapshot.replicas)
    return [*pool_curves(snapshot), *(found for found in of_replicas if found is not None)]


def pool_curves(snapshot: FleetSnapshot) -> list[NamedCurve]:
    """A curve for each model and role."""
    found = []
    for (model, role), members in pools(snapshot.replicas).items():
        points = [point for member in members for point in points_of(member)]
        slo = members[0].slo
        name = f"{model or 'model not known'} · {role.value}"
        curve = load_curve(points, slo.ttft_seconds)
        found.append(NamedCurve("pool", name, curve, slo, len(members), model=model, role=role.value))
    return found


def curve_of(one: ReplicaSnapshot) -> NamedCurve | None:
    """The curve of one replica; None while it has no window to show."""
    points = points_of(one)
    if not points:
        return None
    curve = load_curve(points, one.slo.ttft_seconds)
    url, name = one.target.url, one.target.name
    return NamedCurve("replica", name, curve, one.slo, 1, url, one.model, one.role.value)


def curves_document(at: float, window_seconds: float, curves: Iterable[NamedCurve]) -> dict[str, Any]:
    """The object that `enginetop curve --format json` prints."""
    return {
        "schema": SCHEMA,
        "at": at,
        "window_seconds": window_seconds,
        "curves": [_curve(named) for named in curves],
    }


def _curve(named: NamedCurve) -> dict[str, Any]:
    knee = named.curve.knee
    return {
        "scope": named.scope,
        "name": named.name,
        "target": named.target,
        "model": named.model,
        "role": named.role,
        "replicas": named.replicas,
        "slo": {"ttft_seconds": named.slo.ttft_seconds, "tpot_seconds": named.slo.tpot_seconds},
        "quality": "estimated" if named.curve.estimated else "ok",
        "bins": [_bin(one) for one in named.curve.bins],
        "knee": None
        if knee is None
        else {
            "requests_running": knee.running,
            "good_per_second": knee.good_per_second,
            "ttft_p99_seconds": knee.ttft_p99_seconds,
            "because": knee.because,
        },
        "withheld": named.curve.withheld,
    }


def _bin(one: Bin) -> dict[str, Any]:
    return {
        "requests_running": {"mean": one.running, "low": one.low, "high": one.high},
        "points": one.points,
        "good_per_second": _spread(one.good_per_second),
        "attainment": _spread(one.attainment),
        "ttft_p99_seconds": _spread(one.ttft_p99_seconds),
    }


def _spread(spread: Spread | None) -> dict[str, float] | None:
    return None if spread is None else {"median": spread.median, "low": spread.low, "high": spread.high}
