"""What histories take, known before anything is read."""

from __future__ import annotations

from collections.abc import Mapping

from enginetop.fleet.burn import burn_bytes
from enginetop.fleet.history import samples_bytes
from enginetop.fleet.load_log import load_log_bytes
from enginetop.fleet.trends import trend_bytes


def history_bytes(interval_seconds: float, window_seconds: float, series: int) -> Mapping[str, int]:
    """The most that one replica's histories take, by history, in bytes.

    `series`: how many series its page has that a table reads (vLLM with one rank: about 230). Samples are
    full after a window, trends after 15 min, budget burn after 3 days, the load curve after 6 h.
    """
    return {
        "samples": samples_bytes(interval_seconds, window_seconds, series),
        "trends": trend_bytes(interval_seconds),
        "load_curve": load_log_bytes(window_seconds),
        "burn": burn_bytes(),
    }
