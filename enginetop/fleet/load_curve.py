"""The load curve: goodput and TTFT p99 against running requests, and its knee where the data cover it.

Goodput rises with the load until requests miss the objective, then falls although throughput may still rise:
the load of the most goodput is the knee, the defensible capacity. Pure; nothing is drawn here.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import median

from enginetop.fleet.frozen import frozen
from enginetop.fleet.snapshot import ReplicaSnapshot

BINS_PER_DOUBLING = 2
"""Bins are a factor of the square root of 2 wide, at the same places for every curve."""

LEAST_BINS = 3
LEAST_POINTS = 3
"""Windows in a bin; one alone may be anything."""
LEAST_RANGE = 2.0
"""Of the loads seen, highest to lowest."""
NOISE = 0.05
"""Goodput this close to the best is the same (heuristic); more, where the spread of the bins says so."""

_NORMAL = 1.4826
"""From a median absolute deviation to a standard deviation, for normal noise."""
_OF_MEDIAN = 1.2533
"""From the standard error of a mean to that of a median."""
_SURE = 3.0
"""Standard errors: several bins are compared with the best of them."""


@frozen
class LoadPoint:
    """What was achieved over one window, or one run of a load generator, at `running` requests at a time."""

    running: float
    good_per_second: float
    attainment: float | None = None
    ttft_p99_seconds: float | None = None
    estimated: bool = False


@frozen
class Spread:
    """Median and quartiles of the points of a bin."""

    median: float
    low: float
    high: float


@frozen
class Bin:
    """The points with `low` <= running < `high`; `running` is their mean."""

    low: float
    high: float
    running: float
    points: int
    good_per_second: Spread
    attainment: Spread | None
    ttft_p99_seconds: Spread | None

    @property
    def error_per_second(self) -> float:
        """Standard error of the median goodput, from the quartiles of the points."""
        spread = (self.good_per_second.high - self.good_per_second.low) / 2
        return _OF_MEDIAN * _NORMAL * spread / math.sqrt(self.points)


@frozen
class Knee:
    """The lowest load whose goodput is not told from the best one, and why more load is no better."""

    running: float
    good_per_second: float
    ttft_p99_seconds: float | None
    because: str


@frozen
class LoadCurve:
    """Bins by rising load. Without a knee `withheld` says why."""

    bins: tuple[Bin, ...]
    knee: Knee | None
    withheld: str = ""
    estimated: bool = False


def points_of(replica: ReplicaSnapshot) -> list[LoadPoint]:
    """The windows of a replica since it runs with its present settings, oldest first."""
    load = replica.load
    if not load:
        return []
    columns = (load["running"], load["good_per_second"], load["attainment"])
    others = (load["ttft_p99_seconds"], load["estimated"])
    return [
        LoadPoint(running, good, attainment, ttft, bool(estimated))
        for running, good, attainment, ttft, estimated in zip(*columns, *others, strict=True)
        if running is not None and good is not None
    ]


def load_curve(
    points: Iterable[LoadPoint], ttft_seconds: float, *, least_points: int = LEAST_POINTS
) -> LoadCurve:
    """The curve of these points against an objective of `ttft_seconds`.

    `least_points`: a bin with fewer is left out; 1 for the runs of a load generator, which are long.
    """
    known = [point for point in points if point.running > 0 and math.isfinite(point.running)]
    groups: defaultdict[int, list[LoadPoint]] = defaultdict(list)
    for point in known:
        groups[math.floor(BINS_PER_DOUBLING * math.log2(point.running) + 1e-9)].append(point)
    bins = tuple(_bin(place, group) for place, group in sorted(groups.items()) if len(group) >= least_points)
    knee, withheld = _knee(bins, ttft_seconds)
    return LoadCurve(bins, knee, withheld, any(point.estimated for point in known))


def _bin(place: int, points: Sequence[LoadPoint]) -> Bin:
    return Bin(
        low=2.0 ** (place / BINS_PER_DOUBLING),
        high=2.0 ** ((place + 1) / BINS_PER_DOUBLING),
        running=sum(point.running for point in points) / len(points),
        points=len(points),
        good_per_second=_spread([point.good_per_second for point in points]),
        attainment=_known([point.attainment for point in points]),
        ttft_p99_seconds=_known([point.ttft_p99_seconds for point in points]),
    )


def _known(values: Iterable[float | None]) -> Spread | None:
    known = [value for value in values if value is not None]
    return _spread(known) if known else None


def _spread(values: Sequence[float]) -> Spread:
    ordered = sorted(values)
    return Spread(median(ordered), _quantile(ordered, 0.25), _quantile(ordered, 0.75))


def _quantile(ordered: Sequence[float], q: float) -> float:
    place = q * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def _knee(bins: Sequence[Bin], ttft_seconds: float) -> tuple[Knee | None, str]:
    if len(bins) < LEAST_BINS:
        return None, f"{len(bins)} of {LEAST_BINS} loads seen"
    lowest, highest = bins[0].running, bins[-1].running
    if highest < LEAST_RANGE * lowest:
        return None, f"only loads of {lowest:.3g} to {highest:.3g} running requests seen"
    best = max(bins, key=lambda one: one.good_per_second.median)
    if best.good_per_second.median <= 0:
        return None, "no request was within the objective"
    first = next(place for place, one in enumerate(bins) if not _below(one, best))
    past = [one for one in bins[first + 1 :] if _below(one, best) or _late(one, ttft_seconds)]
    if not past:
        return None, f"goodput does not fall up to {highest:.3g} running requests"
    knee = bins[first]
    if first == 0:
        how = "best" if knee is best else "within noise of the best"
        return None, f"goodput is {how} at the lowest load seen, {knee.running:.3g} running requests"
    worse = past[0]
    because = f"at {worse.running:.3g} goodput is {worse.good_per_second.median:.3g}/s"
    if worse.ttft_p99_seconds is not None:
        because += f", TTFT p99 {worse.ttft_p99_seconds.median:.3g} s"
    ttft = knee.ttft_p99_seconds
    return Knee(knee.running, knee.good_per_second.median, ttft.median if ttft else None, because), ""


def _below(one: Bin, best: Bin) -> bool:
    """Whether goodput is less than the best by more than noise."""
    error = math.hypot(one.error_per_second, best.error_per_second) if one is not best else 0.0
    top = best.good_per_second.median
    return top - one.good_per_second.median > max(NOISE * top, _SURE * error)


def _late(one: Bin, ttft_seconds: float) -> bool:
    return one.ttft_p99_seconds is not None and one.ttft_p99_seconds.median > ttft_seconds
