"""How many drafted tokens SGLang accepted: worked out from what ended requests produced.

It counts the draft steps of ended requests. Each request has one token from its prefill, and each step one
beside the accepted drafts, so accepted = output tokens - requests - steps.
"""

from __future__ import annotations

import math

NOTE = "from the output tokens and draft steps of ended requests"


class AcceptedDrafts:
    """Counters of accepted and of drafted tokens, from page to page."""

    def __init__(self) -> None:
        self._start: float | None = None
        self._steps = 0.0
        self._accepted = 0.0
        self._drafted = 0.0

    def update(
        self, start: float | None, tokens: float, requests: float, steps: float, drafts_per_step: float
    ) -> tuple[float, float]:
        """Accepted and drafted tokens after a page; NaN where the page lacks a number.

        Neither falls while the process lives: a page that was read between the updates of its counters would
        otherwise pass for a restart.
        """
        accepted = tokens - requests - steps
        if math.isnan(accepted):
            return math.nan, math.nan
        if steps < self._steps or start != self._start:
            self._accepted = self._drafted = self._steps = 0.0
            self._start = start
        self._accepted = max(self._accepted, accepted, 0.0)
        if drafts_per_step > 0:
            self._drafted += (steps - self._steps) * drafts_per_step
        self._steps = steps
        return self._accepted, self._drafted if drafts_per_step > 0 else math.nan
