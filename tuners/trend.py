"""Where a gauge is going: a straight line through its last values, or why there is none to believe."""

from __future__ import annotations

import math
from collections.abc import Sequence

from enginetop.fleet.frozen import frozen

FEWEST_POINTS = 5
LEAST_R_SQUARED = 0.6


@frozen
class Trend:
    """A value now, by the line, and its change per second."""

    now: float
    per_second: float
    r_squared: float


def trend_of(points: Sequence[tuple[float, float]]) -> Trend | None:
    """The line through (seconds, value) points by least squares, told at the last one.

    None with fewer than five points, no time between them, or a line that explains less than 60 % of them.
    """
    if len(points) < FEWEST_POINTS:
        return None
    times = [at - points[-1][0] for at, _ in points]
    values = [value for _, value in points]
    count = len(points)
    mean_time, mean_value = math.fsum(times) / count, math.fsum(values) / count
    squares = math.fsum((time - mean_time) ** 2 for time in times)
    if squares <= 0:
        return None
    products = math.fsum((t - mean_time) * (v - mean_value) for t, v in zip(times, values, strict=True))
    slope = products / squares
    total = math.fsum((value - mean_value) ** 2 for value in values)
    if total <= 0:
        return Trend(mean_value, 0.0, 1.0)
    r_squared = slope * products / total
    return Trend(mean_value - slope * mean_time, slope, r_squared) if r_squared >= LEAST_R_SQUARED else None


def seconds_to_full(usage: Trend | None) -> float | None:
    """How long a KV cache of this usage ratio lasts: (1 - KV) / slope. None: it does not fill up."""
    if usage is None or usage.per_second <= 0:
        return None
    return max(0.0, 1.0 - usage.now) / usage.per_second
