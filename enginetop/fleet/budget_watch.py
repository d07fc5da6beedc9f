"""The error budget of one replica: what its pages count of requests, and how fast that burns the budget."""

from __future__ import annotations

from collections.abc import Sequence

from enginetop.fleet.burn import FINEST_SECONDS, BurnHistory, Counts, RequestCounter
from enginetop.fleet.history import TargetHistory
from enginetop.fleet.snapshot import BurnRow, Slo

Ended = Sequence[tuple[float, Counts]]
"""Times of pages and what was counted on them since the page before, oldest first."""


class BudgetWatch:
    """Counts what the pages in `history` tell of requests against an objective, first of all `slo`.

    Counts are taken at the first page of every span of `FINEST_SECONDS`, as histories of them keep no more.
    Another objective begins another history.
    """

    def __init__(self, history: TargetHistory, slo: Slo) -> None:
        self._history = history
        self._counter = RequestCounter(slo)
        self._burn = BurnHistory()
        self._rows: tuple[float, tuple[BurnRow, ...]] | None = None
        self._ended: Ended = ()
        self.counted_at: float | None = None
        """Time of the newest page that was counted."""

    def is_due(self, at: float) -> bool:
        """Whether the page of Unix time `at` is the first of its span."""
        counted_at = self.counted_at
        return counted_at is None or at // FINEST_SECONDS != counted_at // FINEST_SECONDS

    def count(self, at: float, slo: Slo) -> None:
        """Count the newest page, of Unix time `at`, against the objective that now holds."""
        if self._counter.limits != slo.limits:
            self._counter, self._burn, self._rows = RequestCounter(slo), BurnHistory(), None
        self.counted_at = at
        counts = self._counter.take(*self._history.counted, self._history.totals)
        self._burn.add(at, counts)
        self._ended = (*self._ended, (at, counts))

    def take_ended(self) -> Ended:
        """What was counted since the former call."""
        ended, self._ended = self._ended, ()
        return ended

    def rows(self, now: float, target: float) -> tuple[BurnRow, ...]:
        """How fast the budget of the objective's `target` burns at Unix time `now` (`BurnHistory.rows`).

        Worked out anew once in the finest spacing of the history; the fleet's rows are at every tick.
        """
        span = now // FINEST_SECONDS
        if self._rows is None or self._rows[0] != span:
            self._rows = (span, self._burn.rows(now, target))
        return self._rows[1]
