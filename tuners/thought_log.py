"""Counts how long requests thought over the last hours: longer than the window of a snapshot."""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Sequence

from enginetop.fleet.snapshot import ReplicaSnapshot
from enginetop.fleet.totals import bucket_total, bucket_totals
from tuners.thoughts import Thoughts

KEPT_SECONDS = 12 * 3600.0
_MARK_SECONDS = 300.0
_MEASURE = "reasoning_tokens"
_ALL = bucket_total(_MEASURE, math.inf)


class ThoughtLog:
    """Buckets of reasoning tokens of one replica, a mark every five minutes. Feed it snapshots in order.

    Begun anew when the model or the buckets change, and when a budget that cut thoughts is raised or taken
    away: what it cut was not seen whole.
    """

    def __init__(self) -> None:
        self._bounds: tuple[float, ...] = ()
        self._marks: deque[tuple[float, Sequence[float]]] = deque()
        self._latest: tuple[float, Sequence[float]] = (0.0, ())
        self._model: str | None = None
        self._budget = math.inf

    @property
    def thoughts(self) -> Thoughts | None:
        """Thoughts of the last hours; None where they are not counted."""
        if not self._marks:
            return None
        (began, before), (at, now) = self._marks[0], self._latest
        gained = (after - earlier for after, earlier in zip(now, before, strict=True))
        return Thoughts(dict(zip(self._bounds, gained, strict=True)), at - began)

    def take(self, replica: ReplicaSnapshot, budget: int | None) -> None:
        """Take the newest snapshot of the replica, and the thinking budget (None or below 0: no limit)."""
        at = replica.scraped_at
        now = bucket_totals(replica.totals, _MEASURE) if _ALL in replica.totals else {}
        limit = math.inf if budget is None or budget < 0 else budget
        if replica.model != self._model or limit > self._budget:
            self._marks.clear()
            self._model = replica.model
        self._budget = limit
        if at is None or not now:
            return
        if tuple(now) != self._bounds:
            self._marks.clear()
            self._bounds = tuple(now)
        self._latest = (at, array("d", now.values()))
        if not self._marks or at - self._marks[-1][0] >= _MARK_SECONDS:
            self._marks.append(self._latest)
        while self._marks[0][0] < at - KEPT_SECONDS:
            self._marks.popleft()
