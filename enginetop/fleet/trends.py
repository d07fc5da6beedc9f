"""Recent values of the few figures that screens draw over time, in memory of known size."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from enginetop.fleet.figure_ring import FigureRing, ring_bytes
from enginetop.fleet.model import BELIEVED
from enginetop.fleet.snapshot import NO_GOODPUT, Goodput, Scalar, Signals

TREND_NAMES: tuple[str, ...] = (
    "kv_usage_ratio",
    "requests_running",
    "requests_waiting",
    "generation_tokens_per_second",
    "prompt_tokens_per_second",
    "requests_finished_per_second",
    "preemptions_per_second",
    "prefix_hit_ratio",
    "spec_accepted_length",
    "ttft_seconds.p95",
    "ttft_seconds.p99",
    "tpot_seconds.p95",
    "goodput.attainment",
    "goodput.good_per_second",
)
"""All that is kept: a signal's name, a distribution's name with the quantile, or what goodput tells."""

_PARTS = tuple((name, name.partition(".")[0], name.partition(".")[2]) for name in TREND_NAMES)

RATES: Mapping[str, str] = MappingProxyType(
    {"generation_tokens_per_second": "generation_tokens", "preemptions_per_second": "preemptions"}
)
"""Signals whose trend is a rate between neighbouring pages, and the running total behind each."""

KEPT_SECONDS = 900.0
"""How far back trends reach."""


def trend_bytes(interval_seconds: float) -> int:
    """The most that the trends of one replica take."""
    return ring_bytes(interval_seconds, KEPT_SECONDS, len(TREND_NAMES))


def trend_values(
    signals: Signals, recent: Mapping[str, float | None], goodput: Goodput = NO_GOODPUT
) -> Mapping[str, float | None]:
    """One point: values of `signals` and `goodput`, with the rates of `recent` in the place of the window's.

    A figure that is null or not fresh gives None, so that a plot has a hole while a target is away. Of
    goodput it is what was counted, else the estimate between the bounds.
    """
    values: dict[str, float | None] = {}
    for name, base, part in _PARTS:
        if base == "goodput":
            values[name] = _of_goodput(goodput, part)
            continue
        signal = signals[base]
        if signal.quality not in BELIEVED:
            values[name] = None
        elif not isinstance(signal, Scalar):
            values[name] = signal.quantiles[part].value
        else:
            values[name] = recent.get(name) if name in RATES else signal.number
    return values


def _of_goodput(goodput: Goodput, part: str) -> float | None:
    if goodput.quality not in BELIEVED:
        return None
    if part == "attainment":
        return goodput.joint.independent if goodput.exact is None else goodput.exact
    exact = goodput.good_per_second
    return goodput.within_per_second.independent if exact is None else exact


class Trends(FigureRing):
    """The figures of `TREND_NAMES` over the last 15 minutes, a point each `interval_seconds`."""

    __slots__ = ()

    def __init__(self, interval_seconds: float = 2.0) -> None:
        super().__init__(TREND_NAMES, interval_seconds, KEPT_SECONDS)
