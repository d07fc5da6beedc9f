"""Counts how long requests thought over the last hours: longer than the window of a snapshot.

A thought is counted when it ends, so that a log that begins with its engine misses the long ones of its last
minutes: one that takes d seconds is seen of each life of the engine but in the last d, and before the log
began only where the engine was seen to live then. Each bucket is therefore weighted by the inverse of the
share of the time in which its thoughts could begin and still be counted (inverse probability weighting), with
the mean TPOT for the time of a token.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from itertools import accumulate, pairwise

from enginetop.fleet.snapshot import ReplicaSnapshot
from enginetop.fleet.totals import bucket_total, bucket_totals
from tuners.thoughts import Thoughts

KEPT_SECONDS = 12 * 3600.0
_MARK_SECONDS = 300.0
_MEASURE = "reasoning_tokens"
_ALL = bucket_total(_MEASURE, math.inf)
_LEAST_SEEN_RATIO = 0.1
"""What could be seen of a bucket for less of the time is not blown up any further."""


class ThoughtLog:
    """Buckets of reasoning tokens of one replica, a mark every five minutes. Feed it snapshots in order.

    Begun anew when the model or the buckets change, and when a budget that cut thoughts is raised or taken
    away: what it cut was not seen whole.
    """

    def __init__(self) -> None:
        self._bounds: tuple[float, ...] = ()
        self._marks: list[tuple[float, Sequence[float]]] = []
        self._latest: tuple[float, Sequence[float]] = (0.0, ())
        self._lives: list[tuple[float, float]] = []
        self._restarted_at = -math.inf
        self._tpot = (0.0, 0)
        self._model: str | None = None
        self._budget = math.inf

    @property
    def thoughts(self) -> Thoughts | None:
        """Thoughts of the last hours; None where they are not counted."""
        if not self._marks:
            return None
        (began, before), (at, now) = self._marks[0], self._latest
        gained = [after - earlier for after, earlier in zip(now, before, strict=True)]
        return Thoughts(dict(zip(self._bounds, self._weighted(gained), strict=True)), at - began)

    def take(self, replica: ReplicaSnapshot, budget: int | None, restarted_at: float = -math.inf) -> None:
        """Take the newest snapshot of the replica, the thinking budget (None or below 0: no limit), and when
        the engine was last seen to restart.
        """
        at = replica.scraped_at
        now = bucket_totals(replica.totals, _MEASURE) if _ALL in replica.totals else {}
        limit = math.inf if budget is None or budget < 0 else budget
        if replica.model != self._model or limit > self._budget:
            self._begin_anew()
            self._model = replica.model
        self._budget = limit
        if at is None or not now:
            return
        if tuple(now) != self._bounds:
            self._begin_anew()
            self._bounds = tuple(now)
        if at < self._latest[0]:
            self._set_back(at)
        self._latest = (at, array("d", now.values()))
        if not self._marks or at - self._marks[-1][0] >= _MARK_SECONDS:
            self._marks.append(self._latest)
        while self._marks[0][0] < at - KEPT_SECONDS:
            del self._marks[0]
        self._live(at, restarted_at)
        if (tpot := replica.distribution("tpot_seconds").mean.value) is not None and 0 < tpot < math.inf:
            self._tpot = (self._tpot[0] + tpot, self._tpot[1] + 1)

    def _begin_anew(self) -> None:
        self._marks.clear()
        self._lives.clear()
        self._tpot = (0.0, 0)

    def _set_back(self, at: float) -> None:
        """The clock was: times of the future count as now."""
        self._marks = [(min(then, at), counts) for then, counts in self._marks]
        self._lives = [(min(began, at), min(ended, at)) for began, ended in self._lives]

    def _live(self, at: float, restarted_at: float) -> None:
        """Note that the engine lives, or lives again."""
        if not self._lives or restarted_at > self._restarted_at:
            self._lives.append((at, at))
        else:
            self._lives[-1] = (self._lives[-1][0], at)
        self._restarted_at = restarted_at
        while self._lives[0][1] < self._marks[0][0]:
            del self._lives[0]

    def _weighted(self, at_most: Sequence[float]) -> Sequence[float]:
        """The same number of requests, each bucket with the share that it would have if all were seen."""
        total, pages = self._tpot
        if not pages:
            return at_most
        buckets = list(zip(pairwise((0.0, *self._bounds)), pairwise((0.0, *at_most)), strict=True))
        weights = [
            (upto - below) / self._seen_ratio(_middle(low, high) * total / pages)
            for (low, high), (below, upto) in buckets
        ]
        if not (every := sum(weights)) > 0:
            return at_most
        return [at_most[-1] * reached / every for reached in accumulate(weights)]

    def _seen_ratio(self, seconds: float) -> float:
        """Share of the time of which a thought that takes so long is counted if it begins then."""
        began = self._marks[0][0]
        lived = math.fsum(end - max(birth, began) for birth, end in self._lives)
        seen = math.fsum(max(0.0, end - seconds - max(birth, began - seconds)) for birth, end in self._lives)
        return max(_LEAST_SEEN_RATIO, seen / lived) if lived > 0 else 1.0


def _middle(low: float, high: float) -> float:
    """The length that stands for a bucket."""
    if not math.isfinite(high):
        return low
    return math.sqrt(low * high) if low > 0 else high / 2
