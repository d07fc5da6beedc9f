"""Distributions from bucket increases: merging at common bounds, mean, quantiles."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from operator import add

from enginetop.fleet.quickly_made import quickly_made
from enginetop.fleet.snapshot import NO_QUANTILE, Quantile


@quickly_made
class HistogramIncrease:
    """What a histogram gained over a window.

    `bounds` are the finite upper bounds, ascending and canonical (`canonical_bound`); `cumulative[i]` counts
    the observations at or below `bounds[i]`, never falls along the list and never exceeds `count`. `sum` is
    None where no sum is exported. `sum_fell`: the sum went down without a reset, so neither it nor a mean
    means anything. `corrected`: bucket counts contradicted each other and were raised to be monotone.
    """

    bounds: tuple[float, ...]
    cumulative: tuple[float, ...]
    count: float
    sum: float | None
    sum_fell: bool = False
    corrected: bool = False

    @property
    def mean(self) -> float | None:
        """Sum over count, or None without observations or without a sum that can be believed."""
        if self.count <= 0 or self.sum is None or self.sum_fell:
            return None
        return self.sum / self.count

    def quantile(self, q: float) -> Quantile:
        """The q-quantile (0 <= q <= 1) by Prometheus's rule, with the bounds of its bucket.

        Rank q x n, the first bucket whose cumulative count reaches it, linear inside; the first bucket begins
        at 0 unless its bound is 0 or less, where that bound is the answer and `low` is not known.
        """
        bounds, cumulative = self.bounds, self.cumulative
        if self.count <= 0:
            return NO_QUANTILE
        rank = q * self.count
        index = bisect_left(cumulative, rank)
        if index == len(bounds):
            return Quantile(None, bounds[-1] if bounds else 0.0, None, censored=True)
        high = bounds[index]
        if index:
            low, below = bounds[index - 1], cumulative[index - 1]
        elif high > 0:
            low, below = 0.0, 0.0
        else:
            return Quantile(high, None, high)
        inside = cumulative[index] - below
        if inside <= 0:  # rank 0 in an empty first bucket
            return Quantile(low, low, high)
        return Quantile(min(high, low + (high - low) * ((rank - below) / inside)), low, high)

    def share_within(self, limit: float) -> Quantile:
        """The share of observations at or below `limit` > 0, linear inside its bucket, `low` and `high` the
        shares at the bucket's edges.

        A limit on a finite bound is known exactly. Past the last one: value null, `high` 1, censored.
        """
        bounds, cumulative, count = self.bounds, self.cumulative, self.count
        if count <= 0:
            return NO_QUANTILE
        index = bisect_left(bounds, canonical_bound(limit))
        below = cumulative[index - 1] / count if index else 0.0
        if index == len(bounds):
            return Quantile(None, below, 1.0, censored=True)
        high, above = bounds[index], cumulative[index] / count
        if high == canonical_bound(limit):
            return Quantile(above, above, above)
        low = bounds[index - 1] if index else 0.0
        value = below + (above - below) * ((limit - low) / (high - low))
        return Quantile(min(max(value, below), above), below, above)


@lru_cache(maxsize=4096)
def canonical_bound(le: float) -> float:
    """A bucket bound without the noise of binary fractions: 0.15000000000000002 and 0.15 become one."""
    return float(f"{le:.12g}")


def merge_histograms(parts: Sequence[HistogramIncrease]) -> HistogramIncrease:
    """All parts as one, at the bounds that they share.

    A part without observations is zero at every bound and takes none away. Raises ValueError for no parts.
    """
    if not parts:
        raise ValueError("nothing to merge")
    if len(parts) == 1:
        return parts[0]
    filled = [part for part in parts if part.count > 0]
    if not filled:
        return parts[0]
    if len(filled) == 1:
        return filled[0]
    bounds = filled[0].bounds
    columns = [part.cumulative for part in filled]
    if any(part.bounds is not bounds and part.bounds != bounds for part in filled):
        common = set(bounds).intersection(*(part.bounds for part in filled))
        bounds = tuple(bound for bound in bounds if bound in common)
        columns = [
            tuple(count for bound, count in zip(part.bounds, part.cumulative, strict=True) if bound in common)
            for part in filled
        ]
    cumulative = columns[0]
    for column in columns[1:]:
        cumulative = tuple(map(add, cumulative, column))
    sums = [part.sum for part in filled if part.sum is not None]
    return HistogramIncrease(
        bounds=bounds,
        cumulative=cumulative,
        count=sum(part.count for part in filled),
        sum=sum(sums) if len(sums) == len(filled) else None,
        sum_fell=any(part.sum_fell for part in filled),
        corrected=any(part.corrected for part in filled),
    )
