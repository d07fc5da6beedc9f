"""How evenly the experts of SGLang are loaded: a summary over its passes of mean over maximum load."""

from __future__ import annotations

import math

from enginetop.fleet.reading import Series

BALANCE = Series("expert_balance_ratio", "", "sglang eplb_balancedness")
FAMILY = "eplb_balancedness"


class ExpertBalance:
    """The mean of the passes since the page before; while there were none it stays."""

    def __init__(self) -> None:
        self._total = self._count = 0.0
        self._mean = math.nan

    def update(self, total: float, count: float) -> float:
        """The mean after a page with the summary's sum and count; NaN before the first pass."""
        if count < self._count:
            self._total = self._count = 0.0
        if count > self._count and math.isfinite(total):
            self._mean = (total - self._total) / (count - self._count)
            self._total, self._count = total, count
        return self._mean
