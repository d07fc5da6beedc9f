"""What a replica achieved at which load: one point a window, for its load curve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from enginetop.fleet.facts import WindowFacts
from enginetop.fleet.figure_ring import FigureRing, ring_bytes
from enginetop.fleet.model import BELIEVED
from enginetop.fleet.snapshot import Distribution, Goodput, Scalar, Signals

LOAD_NAMES: tuple[str, ...] = ("running", "good_per_second", "attainment", "ttft_p99_seconds", "estimated")
"""Mean of the running requests over the window; then of the same window the requests within the objective per
second, their share of the completed ones, TTFT p99 (its lower bound where it lies past the last bucket), and
1 where goodput is the estimate between the bounds.
"""

KEPT_SECONDS = 6 * 3600.0
_WHOLE = 0.75
"""A window that covers less than this share of its time tells of no load."""


def load_log_bytes(window_seconds: float) -> int:
    """The most that the log of one replica takes."""
    return ring_bytes(window_seconds, KEPT_SECONDS, len(LOAD_NAMES))


class LoadLog:
    """Points of windows that do not overlap, of the last six hours.

    What another configuration achieved is another curve: begin a new log then.
    """

    def __init__(self, window_seconds: float) -> None:
        self._window_seconds = window_seconds
        self._ring = FigureRing(LOAD_NAMES, window_seconds, KEPT_SECONDS)
        self._begin: float | None = None
        self._running: list[float] = []

    @property
    def points(self) -> Mapping[str, Sequence[float | None]]:
        """For each of `LOAD_NAMES` its values, oldest first."""
        return self._ring.values

    def away(self) -> None:
        """Nothing is known of now: the window that began is given up."""
        self._begin = None
        self._running.clear()

    def take(self, now: float, signals: Signals, facts: WindowFacts, goodput: Goodput) -> None:
        """Take what a screen shows at `now` of the window `facts`."""
        running = signals["requests_running"]
        if self._begin is None or now < self._begin:
            self._begin = now
            self._running.clear()
        if isinstance(running, Scalar) and running.number is not None and running.quality in BELIEVED:
            self._running.append(running.number)
        if now - self._begin < self._window_seconds:
            return
        if self._running and facts.seconds >= _WHOLE * self._window_seconds:
            good, attainment, estimated = _achieved(goodput)
            if good is not None:
                self._ring.add(
                    now,
                    {
                        "running": sum(self._running) / len(self._running),
                        "good_per_second": good,
                        "attainment": attainment,
                        "ttft_p99_seconds": _ttft_p99(signals),
                        "estimated": float(estimated),
                    },
                )
        self._begin = now
        self._running.clear()


def _achieved(goodput: Goodput) -> tuple[float | None, float | None, bool]:
    if goodput.quality not in BELIEVED:
        return None, None, False
    if goodput.good_per_second is not None:
        return goodput.good_per_second, goodput.exact, False
    return goodput.within_per_second.independent, goodput.joint.independent, True


def _ttft_p99(signals: Signals) -> float | None:
    ttft = signals["ttft_seconds"]
    if not isinstance(ttft, Distribution) or ttft.quality not in BELIEVED or not ttft.count:
        return None
    return ttft.quantiles["p99"].at_least
