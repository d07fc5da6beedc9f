"""Replicas that do not do what their like do: same model, same role, another figure.

A figure is held against the median of the group. It stands out when it is further away than scatter explains
(3.5 robust standard deviations, from the median absolute deviation), and far enough to matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from statistics import median
from typing import NamedTuple

from enginetop.fleet.changing import changed
from enginetop.fleet.frozen import frozen
from enginetop.fleet.model import BELIEVED, Quality, ReplicaState
from enginetop.fleet.pools import pools
from enginetop.fleet.snapshot import Outlier, ReplicaSnapshot, Scalar, Signals

LEAST_REPLICAS = 4
"""Of fewer nobody can say which one is odd."""
LEAST_COUNT = 20.0
"""Observations below which a 95th percentile is chance."""
UNEVEN_KV_RATIO = 0.25
"""KV use apart from that of its like: work is routed unevenly."""

_ROBUST_DEVIATIONS = 3.5
"""Iglewicz and Hoaglin's limit for a modified z-score."""
_NORMAL = 1.4826
_SERVING = frozenset({ReplicaState.OK, ReplicaState.IDLE, ReplicaState.NO_PROGRESS})


class Worse(Enum):
    """Which side is trouble."""

    HIGH = "high"
    LOW = "low"
    EITHER = "either"


@frozen
class Comparison:
    """One figure that is compared: a signal, or a distribution's quantile (`signal.p95`).

    It stands out by at least `least` in its own unit, and by `least_ratio` of the median.
    """

    name: str
    worse: Worse
    least: float
    least_ratio: float


COMPARED: tuple[Comparison, ...] = (
    Comparison("ttft_seconds.p95", Worse.HIGH, 0.1, 0.5),
    Comparison("tpot_seconds.p95", Worse.HIGH, 0.005, 0.25),
    Comparison("itl_seconds.p95", Worse.HIGH, 0.005, 0.25),
    Comparison("kv_usage_ratio", Worse.EITHER, UNEVEN_KV_RATIO, 0.0),
    Comparison("preemptions_per_second", Worse.HIGH, 0.05, 0.5),
    Comparison("generation_tokens_per_second", Worse.LOW, 10.0, 0.5),
    Comparison("spec_acceptance_ratio", Worse.LOW, 0.1, 0.25),
)


_PARTS = tuple((base, part) for base, _, part in (one.name.partition(".") for one in COMPARED))


class _Figure(NamedTuple):
    """A value, and the least that it can be: a percentile is only known by its bucket."""

    value: float
    least: float
    exact: bool = True
    """Not an estimate, such as an average over an outage."""


_Figures = tuple[_Figure | None, ...]


class OutlierBoard:
    """Marks the replicas of a fleet, with a memory: what did not change is the same object as before."""

    def __init__(self) -> None:
        self._figures: dict[str, tuple[ReplicaSnapshot, _Figures]] = {}
        self._marked: dict[str, tuple[ReplicaSnapshot, ReplicaSnapshot]] = {}

    def marked(self, replicas: Sequence[ReplicaSnapshot]) -> tuple[ReplicaSnapshot, ...]:
        """The replicas, each with its outliers."""
        before, self._figures = self._figures, {}
        for one in replicas:
            known = before.get(one.target.url)
            fresh = known if known is not None and known[0] is one else (one, figures_of(one))
            self._figures[one.target.url] = fresh
        found: dict[str, list[Outlier]] = {}
        for members in pools(replicas).values():
            if len(members) < LEAST_REPLICAS:
                continue
            table = [(one.target.url, self._figures[one.target.url][1]) for one in members]
            for url, outlier in compare(table):
                found.setdefault(url, []).append(outlier)
        old, self._marked = self._marked, {}
        return tuple(
            self._mark(one, tuple(found[one.target.url]), old) if one.target.url in found else one
            for one in replicas
        )

    def _mark(
        self,
        one: ReplicaSnapshot,
        outliers: tuple[Outlier, ...],
        old: Mapping[str, tuple[ReplicaSnapshot, ReplicaSnapshot]],
    ) -> ReplicaSnapshot:
        url = one.target.url
        before = old.get(url)
        if before is None or before[0] is not one or before[1].outliers != outliers:
            before = (one, changed(one, outliers=outliers))
        self._marked[url] = before
        return before[1]


def figures_of(replica: ReplicaSnapshot) -> _Figures:
    """What is compared of a replica, in the order of `COMPARED`; None: not known, not fresh, too few."""
    if replica.state not in _SERVING:
        return (None,) * len(COMPARED)
    return tuple([_figure(replica.signals, base, part) for base, part in _PARTS])


def compare(table: Sequence[tuple[str, _Figures]]) -> Iterable[tuple[str, Outlier]]:
    """The outliers of one group: its replicas by URL with their figures.

    Estimates are held against none that is exact.
    """
    for place, comparison in enumerate(COMPARED):
        known = [(url, figure) for url, figures in table if (figure := figures[place]) is not None]
        known = [one for one in known if one[1].exact] or known
        if len(known) < LEAST_REPLICAS:
            continue
        values = [figure.value for _, figure in known]
        middle = median(values)
        scatter = _NORMAL * median(abs(value - middle) for value in values)
        limit = max(comparison.least, comparison.least_ratio * abs(middle), _ROBUST_DEVIATIONS * scatter)
        for url, figure in known:
            if _stands_out(figure, middle, limit, comparison.worse):
                yield url, Outlier(comparison.name, figure.value, middle, len(known))


def _stands_out(figure: _Figure, middle: float, limit: float, worse: Worse) -> bool:
    above = figure.value - middle
    if worse is not Worse.LOW and above > limit:
        return figure.least >= middle
    return worse is not Worse.HIGH and -above > limit


def _figure(signals: Signals, base: str, part: str) -> _Figure | None:
    signal = signals.get(base)
    if signal is None or signal.quality not in BELIEVED:
        return None
    exact = signal.quality is Quality.OK
    if isinstance(signal, Scalar):
        return None if signal.number is None else _Figure(signal.number, signal.number, exact)
    quantile = signal.quantiles.get(part)
    if quantile is None or (signal.count or 0.0) < LEAST_COUNT:
        return None
    value = quantile.at_least
    if value is None:
        return None
    return _Figure(value, value if quantile.low is None else quantile.low, exact)
