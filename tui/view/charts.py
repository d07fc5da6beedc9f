"""Bars and plots in eighth blocks. Gaps stay gaps: an unknown value draws nothing, not zero."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence

_LEFT_EIGHTHS = " ▏▎▍▌▋▊▉█"
_LOWER_EIGHTHS = " ▁▂▃▄▅▆▇█"

_STEPS = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)

Values = Sequence[float | None]


def bar(ratio: float | None, width: int) -> str:
    """A horizontal bar of `width` cells for a ratio of 0 to 1."""
    if ratio is None or math.isnan(ratio):
        return " " * width
    eighths = round(min(max(ratio, 0.0), 1.0) * width * 8)
    if ratio > 0:
        eighths = max(eighths, 1)
    full, part = divmod(eighths, 8)
    return ("█" * full + (_LEFT_EIGHTHS[part] if part else "")).ljust(width)


def scale_of(values: Values, floor: float = 0.0) -> float:
    """The largest known value, at least `floor`: the top of a plot that starts at zero."""
    try:
        return max(floor, max(values, default=floor))  # type: ignore[type-var,return-value]
    except TypeError:  # some are not known
        return max(floor, max(filter(None, values), default=floor))


def round_up(top: float) -> float:
    """The next of 1, 1.5, 2, 3, 5, 7 times a power of ten: a scale that stands still while values move."""
    if top <= 0 or not math.isfinite(top):
        return top
    decade = 10.0 ** math.floor(math.log10(top))
    return next((step * decade for step in _STEPS if top <= step * decade), 10 * decade)


def resample(
    values: Values, times: Sequence[float], at: float, step: float, width: int
) -> list[float | None]:
    """Means of the known values in each of the `width` steps of `step` seconds up to the one that holds `at`.

    Steps start at multiples of `step`, so a plot only moves once a step and not with every sample.
    """
    end = (math.floor(at / step) + 1) * step
    means: list[float | None] = []
    first = bisect_left(times, end - width * step)
    values, times = values[first:], times[first:]  # histories are read in one go more quickly than bit by bit
    start = 0
    for column in range(width):
        stop = bisect_left(times, end - (width - 1 - column) * step, start)
        known = values[start:stop]
        if None in known:
            known = [value for value in known if value is not None]
        means.append(sum(known) / len(known) if known else None)  # type: ignore[arg-type]
        start = stop
    return means


def spark(values: Values, width: int, top: float) -> str:
    """The newest `width` values as one row of eighth blocks from 0 to `top`, newest at the right edge."""
    recent = values[-width:] if width > 0 else ()
    return "".join([_LOWER_EIGHTHS[_level(value, 8, top)] for value in recent]).rjust(width)


def area(values: Values, width: int, height: int, top: float) -> list[str]:
    """An area plot of `height` rows, top row first; one column a value, newest at the right edge."""
    recent = list(values)[-width:] if width > 0 else []
    levels = [_level(value, height * 8, top) for value in recent]
    rows = []
    for row in range(height):
        base = (height - 1 - row) * 8
        rows.append("".join(_LOWER_EIGHTHS[min(max(level - base, 0), 8)] for level in levels).rjust(width))
    return rows


def row_of(value: float, height: int, top: float) -> int:
    """The row of an area plot, counted from its top, in which `value` lies; one on an edge is below it."""
    return height - 1 - (_level(value, height * 8, top) - 1) // 8


def _level(value: float | None, steps: int, top: float) -> int:
    if value is None:
        return 0
    if top <= 0:
        return 1
    if value >= top:
        return steps
    # A known zero still leaves a line at the foot, so that it differs from "unknown".
    return max(round(value / top * steps), 1)
