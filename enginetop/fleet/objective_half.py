"""Whether a replica misses one half of its objective, TTFT or TPOT: one judgement for screen and alerts.

What is known best decides: counts of single requests, else the shares of a histogram (exact where a bucket
ends at the objective, else between bounds that hold, else linear inside the bucket), else a percentile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from enginetop.fleet.signals import PERCENTILES
from enginetop.fleet.snapshot import NO_QUANTILE, Distribution, Goodput, Quantile, ReplicaSnapshot, Slo

LEAST_REQUESTS = 20
"""Fewer requests in the window say nothing about a 95th percentile."""

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Half:
    """One half of the objective: its distribution, its bound in seconds, and the share of requests within."""

    signal: str
    title: str
    limit_seconds: Callable[[Slo], float]
    share: Callable[[Goodput], Quantile]


TTFT = Half("ttft_seconds", "TTFT", lambda slo: slo.ttft_seconds, lambda goodput: goodput.ttft)
TPOT = Half("tpot_seconds", "TPOT", lambda slo: slo.tpot_seconds, lambda goodput: goodput.tpot)


class Verdict(NamedTuple):
    """`missed` None: nobody knows. `share`: that of requests within the bound, where it decided.

    `percentile` is the one that is held against the bound (`p95`), with its `quantile`.
    """

    missed: bool | None
    percentile: str
    quantile: Quantile
    share: float | None = None


class Miss(NamedTuple):
    """A half that is missed. `seconds`: what is above the bound, None where it is known by a share alone.

    In words: `shown` (`TTFT p95 1.4 s`), and what is `allowed`.
    """

    seconds: float | None
    shown: str
    allowed: str


def judge(half: Half, replica: ReplicaSnapshot, times: Distribution, wanted: float) -> Verdict:
    """Whether less than the share `wanted` of requests is within the bound.

    Where only percentiles are known, the largest that is not above `wanted` decides, so that a breach is sure
    (0.97: p95); one past the last finite bucket is at least that bucket's bound.
    """
    slo, goodput = replica.slo, replica.goodput
    name = _percentile_at(wanted)
    quantile = times.quantiles.get(name, NO_QUANTILE)
    both = goodput.exact  # who is within both halves is within each
    if both is not None and both >= wanted and goodput.counted_for == (slo.ttft_seconds, slo.tpot_seconds):
        return Verdict(False, name, quantile, both)
    share = half.share(goodput)
    if share.value is not None:
        return Verdict(share.value < wanted - _ROUNDING, name, quantile, share.value)
    if share.low is not None and share.low >= wanted - _ROUNDING:
        return Verdict(False, name, quantile, share.low)
    value, limit = quantile.at_least, half.limit_seconds(slo)
    if value is None or (quantile.censored and value < limit):
        return Verdict(None, name, quantile)
    return Verdict(value > limit or quantile.censored, name, quantile)


def told(half: Half, slo: Slo, wanted: float, verdict: Verdict, write: Callable[[float], str]) -> Miss:
    """A missed half; `write` writes seconds.

    By its percentile, as people are used to hear it, unless that (one of other requests, or inside a wide
    bucket) is not above the bound.
    """
    limit, value = half.limit_seconds(slo), verdict.quantile.at_least
    if value is not None and (value > limit or verdict.quantile.censored):
        mark = "≥" if verdict.quantile.censored else ""
        shown = f"{half.title} {verdict.percentile} {mark}{write(value)}"
        return Miss(value, shown, f"the SLO allows {write(limit)}")
    shown = f"{half.title} in time for {100 * (verdict.share or 0.0):.3g} %"
    return Miss(None, shown, f"the SLO wants {100 * wanted:g} % within {write(limit)}")


@cache
def _percentile_at(wanted: float) -> str:
    return next((key for key, q in reversed(PERCENTILES) if q <= wanted + _ROUNDING), "")
