"""Whether a replica misses one half of its objective, TTFT or TPOT: one judgement for screen and alerts.

What is known best decides: counts of single requests, else the shares of a histogram (exact where a bucket
ends at the objective, else between bounds that hold, else linear inside the bucket), else a percentile.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from enginetop.fleet.frozen import frozen
from enginetop.fleet.signals import PERCENTILES
from enginetop.fleet.snapshot import NO_QUANTILE, Distribution, Goodput, Quantile, ReplicaSnapshot, Slo

LEAST_REQUESTS = 20
"""Fewer requests in the window say nothing about a 95th percentile."""

_ROUNDING = 1e-9


@frozen
class Half:
    """One half of the objective: its distribution, its bound in seconds, and the share of requests within."""

    signal: str
    title: str
    limit_seconds: Callable[[Slo], float]
    share: Callable[[Goodput], Quantile]


TTFT = Half("ttft_seconds", "TTFT", lambda slo: slo.ttft_seconds, lambda goodput: goodput.ttft)
TPOT = Half("tpot_seconds", "TPOT", lambda slo: slo.tpot_seconds, lambda goodput: goodput.tpot)


class Miss(NamedTuple):
    """A half that is missed. `seconds`: what is above the bound, None where it is known by a share alone.

    In words: `shown` (`TTFT p95 1.4 s`), and what is `allowed`.
    """

    seconds: float | None
    shown: str
    allowed: str


def is_missed(half: Half, replica: ReplicaSnapshot, times: Distribution, wanted: float) -> bool | None:
    """Whether less than the share `wanted` of requests is within the bound; None: nobody knows.

    Where only percentiles are known, the largest that is not above `wanted` decides, so that a breach is sure
    (0.97: p95); one past the last finite bucket is at least that bucket's bound.
    """
    slo, goodput = replica.slo, replica.goodput
    both = goodput.exact  # who is within both halves is within each
    if both is not None and both >= wanted and goodput.counted_for == slo.limits:
        return False
    share = half.share(goodput)
    if share.value is not None:
        return share.value < wanted - _ROUNDING
    if share.low is not None and share.low >= wanted - _ROUNDING:
        return False
    quantile = times.quantiles.get(_percentile_at(wanted), NO_QUANTILE)
    value = quantile.low if quantile.censored else quantile.value
    if value is None:
        return None
    limit = half.limit_seconds(slo)
    if quantile.censored:
        return True if value >= limit else None
    return value > limit


def miss_of(
    half: Half, replica: ReplicaSnapshot, times: Distribution, wanted: float, write: Callable[[float], str]
) -> Miss:
    """A half that `is_missed`; `write` writes seconds.

    Told by its percentile, as people are used to hear it, unless that (one of other requests, or inside a
    wide bucket) is not above the bound.
    """
    name, limit = _percentile_at(wanted), half.limit_seconds(replica.slo)
    quantile = times.quantiles.get(name, NO_QUANTILE)
    value = quantile.at_least
    if value is not None and (value > limit or quantile.censored):
        shown = f"{half.title} {name} {'≥' if quantile.censored else ''}{write(value)}"
        return Miss(value, shown, f"the SLO allows {write(limit)}")
    shown = f"{half.title} in time for {100 * (half.share(replica.goodput).value or 0.0):.3g} %"
    return Miss(None, shown, f"the SLO wants {100 * wanted:g} % within {write(limit)}")


@cache
def _percentile_at(wanted: float) -> str:
    return next((key for key, q in reversed(PERCENTILES) if q <= wanted + _ROUNDING), "")
