"""Recent values of the few signals that screens draw over time."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from types import MappingProxyType

from enginetop.fleet.model import Quality
from enginetop.fleet.snapshot import Scalar, Signals

TREND_NAMES: tuple[str, ...] = (
    "kv_usage_ratio",
    "requests_running",
    "requests_waiting",
    "generation_tokens_per_second",
    "preemptions_per_second",
    "ttft_seconds.p95",
    "tpot_seconds.p95",
)
"""A signal's name, or a distribution's name with the quantile."""

RATES: Mapping[str, str] = MappingProxyType(
    {"generation_tokens_per_second": "generation_tokens", "preemptions_per_second": "preemptions"}
)
"""Signals whose trend is a rate between neighbouring pages, and the running total behind each."""


def trend_values(signals: Signals, recent: Mapping[str, float | None]) -> Mapping[str, float | None]:
    """One point: values of `signals`, with the rates of `recent` in the place of the window's.

    A signal that is null or not fresh gives None, so that a plot has a hole while a target is away.
    """
    values: dict[str, float | None] = {}
    for name in TREND_NAMES:
        base, _, quantile = name.partition(".")
        signal = signals[base]
        if signal.quality not in (Quality.OK, Quality.ESTIMATED):
            values[name] = None
        elif not isinstance(signal, Scalar):
            values[name] = signal.quantiles[quantile].value
        else:
            values[name] = recent.get(name) if name in RATES else signal.number
    return values


class Trends:
    """The last `points` values of every name in `TREND_NAMES`; None where nothing was known."""

    __slots__ = ("_times", "_values")

    def __init__(self, points: int = 150) -> None:
        self._times: deque[float] = deque(maxlen=points)
        self._values: dict[str, deque[float | None]] = {name: deque(maxlen=points) for name in TREND_NAMES}

    def add(self, at: float, values: Mapping[str, float | None]) -> None:
        """Append one point of time `at`; names that `values` lacks are None there."""
        self._times.append(at)
        for name, series in self._values.items():
            series.append(values.get(name))

    @property
    def times(self) -> tuple[float, ...]:
        """Unix seconds of the points, oldest first."""
        return tuple(self._times)

    @property
    def values(self) -> Mapping[str, tuple[float | None, ...]]:
        """For each name its values at `times`."""
        return MappingProxyType({name: tuple(series) for name, series in self._values.items()})
