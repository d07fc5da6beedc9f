"""Numbers in few cells. A missing number is `–`, never 0; a small one is never rounded to 0."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from enginetop.fleet.durations import tenths
from enginetop.fleet.model import Quality
from enginetop.fleet.snapshot import NO_QUANTILE, Distribution, Quantile, Scalar
from tui.view.cells import UNKNOWN

CENSORED = "≥"
ESTIMATED = "?"

_DOUBTFUL = (Quality.ESTIMATED, Quality.SUSPECT)
_THOUSANDS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def count(value: float | None) -> str:
    """A whole number: `9999`, then `12.3k`, `104k`, `1.2M`."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    if abs(value) < 9999.5:
        return f"{value:.0f}" if value else "0"
    for scale, letter in _THOUSANDS:
        if abs(value) >= scale * 0.9995:
            scaled = value / scale
            return f"{scaled:.0f}{letter}" if abs(scaled) >= 99.95 else f"{scaled:.1f}{letter}"
    return f"{value:.0f}"


def rate(value: float | None) -> str:
    """A rate, three digits: `0`, `<.01`, `0.25`, `12.3`, `1812`."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    if value == 0:
        return "0"
    if 0 < value < 0.005:
        return "<.01"
    if abs(value) < 9.995:
        return f"{value:.2f}"
    return f"{value:.1f}" if abs(value) < 99.95 else count(value)


def one_decimal(value: float | None) -> str:
    """A number of a few units: `3.1`."""
    return UNKNOWN if value is None or not math.isfinite(value) else f"{value:.1f}"


def percent(ratio: float | None) -> str:
    """A ratio as a whole percentage without its sign; 0 and 100 only when it is exactly that."""
    if ratio is None or not math.isfinite(ratio):
        return UNKNOWN
    if 0 < ratio < 0.005:
        return "<1"
    if 0.995 <= ratio < 1:
        return "99"
    return f"{ratio * 100:.0f}"


def fine_percent(ratio: float | None) -> str:
    """A ratio as a percentage with one decimal; 0.0 and 100.0 only when it is exactly that."""
    if ratio is None or not math.isfinite(ratio):
        return UNKNOWN
    if 0 < ratio < 0.0005:
        return "<0.1"
    return "99.9" if 0.9995 <= ratio < 1 else f"{ratio * 100:.1f}"


def target_percent(ratio: float) -> str:
    """A ratio that somebody has set, as a percentage with all its digits: `95`, `99.9`."""
    return knob(round(ratio * 100, 6))


def milliseconds(seconds: float | None) -> str:
    """Seconds as milliseconds, one decimal below 10."""
    if seconds is None or not math.isfinite(seconds):
        return UNKNOWN
    value = seconds * 1000
    if value == 0:
        return "0"
    return f"{value:.1f}" if value < 9.95 else count(value) if value >= 99999.5 else f"{value:.0f}"


def seconds_text(seconds: float | None) -> str:
    """A duration in words of measure for running text: `61 ms`, `1.4 s`, `72 s`, `2.9 min`, `2.5 h`, `3 d`.

    Rounded to the nearest: a latency is no age, of which only what is over counts.
    """
    if seconds is None or not math.isfinite(seconds):
        return UNKNOWN
    seconds = max(seconds, 0.0)
    if seconds == 0:
        return "0 s"
    if seconds < 0.0995:
        return f"{seconds * 1000:.0f} ms" if seconds >= 0.00995 else f"{seconds * 1000:.1f} ms"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    if seconds < 119.5:
        return f"{seconds:.0f} s"
    size, unit = (60, "min") if seconds < 7170.0 else (3600, "h") if seconds < 171_000.0 else (86400, "d")
    return f"{tenths(seconds / size)} {unit}"


def knob(value: float | None, missing: str = UNKNOWN) -> str:
    """A setting, all its digits: `8192`, `-1`, `0.9`; `missing` where there is none."""
    return missing if value is None or not math.isfinite(value) else f"{value:.12g}"


def many(number: int, one: str) -> str:
    """A number with its noun: `1 replica`, `2 replicas`."""
    return f"{number} {one}{'' if number == 1 else 's'}"


def between(low: str, high: str, joint: str = "–") -> str:
    """A range of two written numbers; a unit that both have is written once: `46–50 ms`."""
    return high if low == high else f"{without_unit(low, high)}{joint}{high}"


def without_unit(number: str, other: str) -> str:
    """`number` without its unit when `other` has the same."""
    bare, _, unit = number.partition(" ")
    return bare if unit and other.endswith(f" {unit}") else number


def age(seconds: float | None) -> str:
    """An age in at most four cells: `4s`, `72s`, `12m`, `3h`, `21d`."""
    if seconds is None:
        return UNKNOWN
    whole = max(int(seconds), 0)
    for limit, unit, letter in ((120, 1, "s"), (7200, 60, "m"), (172800, 3600, "h")):
        if whole < limit:
            return f"{whole // unit}{letter}"
    return f"{min(whole // 86400, 999)}d"


def byte_count(value: float | None) -> str:
    """Bytes in GiB, as memory of a GPU is named."""
    return UNKNOWN if value is None or not math.isfinite(value) else f"{value / 2**30:.1f}"


def time_of_day(at: float) -> str:
    """Wall-clock time in the local zone."""
    return _local_time(at, "%H:%M:%S")


def date_and_time(at: float) -> str:
    """Date and wall-clock time in the local zone, to the minute."""
    return _local_time(at, "%Y-%m-%d %H:%M")


def _local_time(at: float, form: str) -> str:
    try:
        return time.strftime(form, time.localtime(at))
    except (OverflowError, ValueError, OSError):
        return UNKNOWN


def marked(text: str, quality: Quality) -> str:
    """`text` with the mark of its quality: `?` after an estimate or a suspect value."""
    return text + ESTIMATED if quality in _DOUBTFUL and text != UNKNOWN else text


def scalar_number(signal: object) -> float | None:
    """The finite number of a scalar signal, None for anything else."""
    if not isinstance(signal, Scalar):
        return None
    number = signal.value
    return number if isinstance(number, (int, float)) and math.isfinite(number) else None


def quantile_of(signal: object, name: str) -> Quantile:
    """The quantile `name` (`p95`, or `mean`) of a distribution; an empty one for anything else."""
    if not isinstance(signal, Distribution):
        return NO_QUANTILE
    return signal.mean if name == "mean" else signal.quantiles.get(name, NO_QUANTILE)


def bounded(quantile: Quantile, write: Callable[[float | None], str]) -> str:
    """A quantile as `write` has its number, with `≥` before one that is past the last bucket."""
    number = quantile_number(quantile)
    return (CENSORED if quantile.censored and number is not None else "") + write(number)


def quantile_number(quantile: Quantile) -> float | None:
    """The number to judge and sort by: the value, or the bound that it is known to exceed."""
    number = quantile.low if quantile.censored else quantile.value
    return number if number is not None and math.isfinite(number) else None
