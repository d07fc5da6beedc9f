"""Durations as people write and read them, and what a latency without a unit may have meant."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from types import MappingProxyType

_MINUTE = 60.0
_HOUR = 3600.0
_DAY = 86400.0

LONGEST_SECONDS = 366 * 86400.0

_UNITS: Mapping[str, tuple[float, float]] = MappingProxyType(
    {"ms": (1.0, 1000.0), "s": (1.0, 1.0), "m": (60.0, 1.0), "h": (3600.0, 1.0), "d": (86400.0, 1.0)}
)
"""Seconds of one, as a fraction: 700 ms are 0.7 s, which a product with 0.001 misses."""

_DURATION = re.compile(r"([0-9]{1,8}(?:\.[0-9]{1,9})?)(ms|s|m|h|d)", re.ASCII)

LONGEST_PLAIN_SECONDS: Mapping[str, float] = MappingProxyType({"ttft": 60.0, "tpot": 5.0})
"""An objective beyond this, without a unit, is more likely milliseconds than meant."""


def duration_seconds(text: str) -> float | None:
    """A number and its unit, `300ms`, `0.3s`, `30m`, `2h`, above 0 and at most a year; None: it is none."""
    told = _DURATION.fullmatch(text)
    if told is None:
        return None
    times, parts = _UNITS[told[2]]
    seconds = float(told[1]) * times / parts
    return seconds if 0 < seconds <= LONGEST_SECONDS else None


def plain_seconds(text: str) -> float | None:
    """Seconds from a plain number, or from one with a unit; finite and above 0, else None."""
    seconds = duration_seconds(text)
    if seconds is not None:
        return seconds
    try:
        seconds = float(text)
    except ValueError:
        return None
    return seconds if 0 < seconds < float("inf") else None


def doubt_of(key: str, told: str | float, quote: str = "") -> str:
    """What speaks against a latency (`ttft`, `tpot`) as it was told, and the fix; empty: nothing does.

    `quote` goes around what is to be written instead.
    """
    if isinstance(told, str):
        if duration_seconds(told) is not None:
            return ""
        told = float(told)
    if told <= LONGEST_PLAIN_SECONDS[key]:
        return ""
    milliseconds, seconds = (f"{quote}{told:g}{unit}{quote}" for unit in ("ms", "s"))
    return f"{told:g} means {told:g} seconds; write {milliseconds} for milliseconds, or {seconds} if meant"


def tenths(number: float) -> str:
    """A number of minutes, hours or days, to the nearest: below ten with a tenth, `2.9`, `3`, `12`."""
    return f"{number:.1f}".removesuffix(".0") if number < 9.95 else f"{number:.0f}"


def duration_text(seconds: float) -> str:
    """A duration in one rounded-down unit: `45 s`, `3 min`, `5 h`, `2 d`. Negative ones read `0 s`."""
    seconds = max(seconds, 0.0)
    if seconds < 2 * _MINUTE:
        return f"{int(seconds)} s"
    if seconds < 2 * _HOUR:
        return f"{int(seconds / _MINUTE)} min"
    if seconds < 2 * _DAY:
        return f"{int(seconds / _HOUR)} h"
    return f"{int(seconds / _DAY)} d"


def countdown(seconds: float) -> str:
    """Time left or gone by: `48s`, `2m40s`, `1h05m`, `7d02h`.

    To the second below an hour, rounded up; then the whole minutes, from two days on the whole hours of it.
    """
    whole = max(math.ceil(seconds), 0)
    if whole < 60:
        return f"{whole}s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes}m{rest:02}s"
    hours = minutes // 60
    return f"{hours}h{minutes % 60:02}m" if hours < 48 else f"{hours // 24}d{hours % 24:02}h"
