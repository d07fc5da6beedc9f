"""What checks ask of a replica: fresh numbers, recent values, and whether a queue grows."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from operator import mul

from enginetop.fleet.beyond_catalogue import BEYOND
from enginetop.fleet.lazy import Lazy
from enginetop.fleet.model import BELIEVED, UP_STATES, is_router
from enginetop.fleet.signals import SIGNALS
from enginetop.fleet.snapshot import Distribution, FleetSnapshot, ReplicaSnapshot, Scalar, Signals

_CATALOGUES = frozenset((*SIGNALS, *(row.name for row in BEYOND)))

Points = Sequence[tuple[float, float]]
"""Times and values, oldest first."""

_FEWEST_POINTS = 5
_LEAST_FIT = 0.6
"""R² of a line through a growing queue; below it the queue only jumps about."""


def is_up(replica: ReplicaSnapshot) -> bool:
    """Whether its numbers say something about now."""
    return replica.state in UP_STATES


def engines_told(snapshot: FleetSnapshot) -> bool:
    """Whether an engine's own page was read."""
    return any(
        replica.scraped_at is not None and not is_router(replica.engine, replica.role)
        for replica in snapshot.replicas
    )


def is_judged_engine(replica: ReplicaSnapshot, told: bool) -> bool:
    """Whether the load and speed of a replica are judged; `told`: an engine's own page was read.

    A router or gateway shows the requests of its engines a second time; it is judged while no engine's own
    page was read, as it counts in the fleet's sums only then.
    """
    return not told or not is_router(replica.engine, replica.role)


def engines(snapshot: FleetSnapshot) -> Sequence[ReplicaSnapshot]:
    """The replicas whose load and speed are judged: those that are engines."""
    told = engines_told(snapshot)
    return [replica for replica in snapshot.replicas if is_judged_engine(replica, told)]


def told_by(replica: ReplicaSnapshot) -> Signals:
    """The signals of both catalogues."""
    return Lazy(_CATALOGUES, lambda name: replica.beyond.get(name) or replica.signals.get(name))


def number(replica: ReplicaSnapshot, name: str) -> float | None:
    """A scalar signal of either catalogue, None where it is not known or not to be believed."""
    signal = replica.signals.get(name) or replica.beyond.get(name)
    if not is_up(replica) or not isinstance(signal, Scalar) or signal.quality not in BELIEVED:
        return None
    return signal.number


def distribution(replica: ReplicaSnapshot, name: str) -> Distribution | None:
    """A distribution with at least one observation, None where there is none to be believed."""
    signal = replica.signals.get(name)
    if not is_up(replica) or not isinstance(signal, Distribution) or signal.quality not in BELIEVED:
        return None
    return signal if signal.count else None


def labels_of(replica: ReplicaSnapshot) -> Mapping[str, str]:
    """The labels of every alert about this replica, as far as they are known."""
    known = {"model": replica.model or "", "engine": replica.engine.value}
    return {name: value for name, value in known.items() if value and value != "unknown"}


def recent(replica: ReplicaSnapshot, name: str, since: float) -> Points:
    """The values of a trend from `since` on, gaps left out."""
    times = replica.trend_times
    first = bisect_left(times, since)
    pairs = zip(times[first:], replica.trends.get(name, ())[first:], strict=False)
    return [(at, value) for at, value in pairs if value is not None]


def newest(replica: ReplicaSnapshot, name: str) -> float | None:
    """The newest value of a trend, None in a gap."""
    values = replica.trends.get(name, ())
    return values[-1] if values else None


def grows(points: Points, span_seconds: float) -> float | None:
    """Growth per second of a rising series, 0 where it does not rise; None: too little is known.

    A straight line must fit (R² of 0.6), and lift the values by at least one over `span_seconds`, most of
    which the points must cover.
    """
    if len(points) < _FEWEST_POINTS or points[-1][0] - points[0][0] < 0.75 * span_seconds:
        return None
    times, values = [t for t, _ in points], [y for _, y in points]
    n = len(points)
    mean_t, mean_y = sum(times) / n, sum(values) / n
    from_t = [t - mean_t for t in times]
    from_y = [y - mean_y for y in values]
    tt, ty = sum(map(mul, from_t, from_t)), sum(map(mul, from_t, from_y))
    yy = sum(map(mul, from_y, from_y))
    slope: float = ty / tt
    if slope <= 0 or slope * span_seconds < 1 or ty * ty < _LEAST_FIT * tt * yy:
        return 0.0
    return slope
