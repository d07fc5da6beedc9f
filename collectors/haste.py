"""Pictures before their turn: a target that fails, or answers again, is told at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from collectors.scrape import Scrape
from enginetop.fleet.state import FAILURES_UNTIL_DOWN

_GAP_SHARE = 0.5
"""Between two of them lies at least this share of an interval: in an outage there is news all the time."""

_COST_SHARE = 0.1
"""Drawing them takes at most this share of a core."""


class Wheel(Protocol):
    """What `wheel.Wheel` offers."""

    def at(self, due: float, call: Callable[[], None]) -> int:
        """Make the call when it is due."""


class Haste:
    """Fed with every scrape; calls `ring` when a picture is wanted now. Times are those of `monotonic`."""

    def __init__(
        self, interval_seconds: float, wheel: Wheel, monotonic: Callable[[], float], ring: Callable[[], None]
    ) -> None:
        self._gap = interval_seconds * _GAP_SHARE
        self._wheel = wheel
        self._monotonic = monotonic
        self._ring = ring
        self._failed: dict[str, int] = {}
        """Looks in a row that failed, of targets that fail."""
        self._untold = self._waits = False
        self._not_before = float("-inf")
        self._cost = 0.0

    def take(self, scrape: Scrape) -> None:
        """News are failures up to the one that makes a target `down`, and the look that ends a failure."""
        if scrape.observation.failure is None:
            if not self._failed.pop(scrape.url, 0):
                return
        else:
            count = self._failed[scrape.url] = self._failed.get(scrape.url, 0) + 1
            if count > FAILURES_UNTIL_DOWN:
                return
        self._untold = True
        if not self._waits:
            self._waits = True
            self._wheel.at(max(self._monotonic(), self._not_before), self._tell)

    def forget(self, url: str) -> None:
        """The target is looked at no more."""
        self._failed.pop(url, None)

    def drawn(self, cpu_seconds: float) -> None:
        """A picture was drawn, for whatever reason, at this cost: the news are told."""
        self._untold = False
        self._cost = cpu_seconds

    def _tell(self) -> None:
        self._waits = False
        if self._untold:
            self._not_before = self._monotonic() + max(self._gap, self._cost / _COST_SHARE)
            self._ring()
