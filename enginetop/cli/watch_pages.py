"""What a living watch answers over HTTP, and whether its loop still lives."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from enginetop.alerts.sinks.desk import SinkHealth
from enginetop.cli.own_metrics import own_text
from enginetop.cli.status_server import METRICS_TYPE, Page, Pages
from enginetop.fleet.prometheus_text import prometheus_text
from enginetop.fleet.snapshot import FleetSnapshot

_DEAD_TICKS = 5.0
"""Intervals without a snapshot after which the engine is taken for dead."""
_GRACE_SECONDS = 0.5


class WatchPages:
    """The newest snapshot that the loop dealt with, as pages. `sinks` tells how the sinks do.

    `take` is called by the loop, the pages are made in other threads.
    """

    def __init__(
        self, sinks: Callable[[], Sequence[SinkHealth]], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._sinks = sinks
        self._monotonic = monotonic
        self._taken: tuple[FleetSnapshot, float] | None = None

    def take(self, snapshot: FleetSnapshot) -> None:
        """The loop has dealt with this snapshot."""
        self._taken = snapshot, self._monotonic()

    @property
    def late(self) -> bool:
        """Whether there is no snapshot, or the last one is so long ago that the engine is taken for dead."""
        taken = self._taken
        return taken is None or self._late(*taken)

    @property
    def pages(self) -> Pages:
        """The pages by path."""
        return {"/metrics": self.metrics, "/healthz": self.health}

    def metrics(self) -> Page:
        """The fleet as `snapshot --format prometheus` has it, then our own figures."""
        taken = self._taken
        snapshot = None if taken is None else taken[0]
        age = None if taken is None else self._monotonic() - taken[1]
        fleet = "" if snapshot is None else prometheus_text(snapshot)
        return Page(200, fleet + own_text(snapshot, self._sinks(), age), METRICS_TYPE)

    def health(self) -> Page:
        """200 while the loop keeps up, else 503 and why."""
        taken = self._taken
        if taken is None:
            return Page(503, "no snapshot yet\n")
        if self._late(*taken):
            return Page(503, f"late: no snapshot for {self._monotonic() - taken[1]:.1f} s\n")
        return Page(200, "ok\n")

    def _late(self, snapshot: FleetSnapshot, at: float) -> bool:
        return self._monotonic() - at > _DEAD_TICKS * snapshot.interval_seconds + _GRACE_SECONDS
