"""Laws of quantiles and merges."""

from __future__ import annotations

from itertools import accumulate

from hypothesis import given, settings
from hypothesis import strategies as st

from enginetop.fleet.histogram import HistogramIncrease, merge_histograms

BOUNDS = st.lists(st.integers(-5, 40), min_size=0, max_size=8, unique=True).map(
    lambda bounds: tuple(0.5 * bound for bound in sorted(bounds))
)


@st.composite
def histograms(draw: st.DrawFn) -> HistogramIncrease:
    bounds = draw(BOUNDS)
    counts = draw(st.lists(st.integers(0, 50), min_size=len(bounds) + 1, max_size=len(bounds) + 1))
    cumulative = tuple(float(n) for n in accumulate(counts))
    return HistogramIncrease(bounds, cumulative[:-1], cumulative[-1], float(draw(st.integers(0, 1000))))


@settings(max_examples=80, deadline=None)
@given(histograms(), st.floats(0, 1))
def test_a_quantile_lies_in_its_bucket_and_its_bucket_holds_the_rank(
    histogram: HistogramIncrease, q: float
) -> None:
    found = histogram.quantile(q)
    if histogram.count == 0:
        assert found.value is None
        assert not found.censored
        return
    rank = q * histogram.count
    if found.censored:
        assert found.value is None
        assert not histogram.cumulative or histogram.cumulative[-1] < rank
        return
    assert found.value is not None
    assert found.high is not None
    assert found.low is None or found.low <= found.value
    assert found.value <= found.high
    index = histogram.bounds.index(found.high)
    assert histogram.cumulative[index] >= rank * (1 - 1e-9)
    assert index == 0 or histogram.cumulative[index - 1] <= rank


@settings(max_examples=80, deadline=None)
@given(histograms(), st.floats(0, 1), st.floats(0, 1))
def test_quantiles_rise_with_q(histogram: HistogramIncrease, one: float, other: float) -> None:
    low, high = histogram.quantile(min(one, other)), histogram.quantile(max(one, other))
    if low.censored:
        assert high.censored
    elif low.value is not None and high.value is not None:
        assert low.value <= high.value + 1e-9


@settings(max_examples=80, deadline=None)
@given(histograms(), histograms(), histograms())
def test_merging_is_associative_and_commutative(
    one: HistogramIncrease, two: HistogramIncrease, three: HistogramIncrease
) -> None:
    flat = merge_histograms([one, two, three])
    left = merge_histograms([merge_histograms([one, two]), three])
    right = merge_histograms([one, merge_histograms([two, three])])
    turned = merge_histograms([three, one, two])
    for other in (left, right, turned):
        assert other.count == flat.count
        if flat.count:
            assert other == flat


@settings(max_examples=80, deadline=None)
@given(histograms(), histograms())
def test_a_merge_counts_what_its_parts_count_at_every_bound(
    one: HistogramIncrease, other: HistogramIncrease
) -> None:
    merged = merge_histograms([one, other])
    if one.count and other.count:
        assert set(merged.bounds) == set(one.bounds) & set(other.bounds)
    at = [dict(zip(part.bounds, part.cumulative, strict=True)) for part in (one, other)]
    for bound, count in zip(merged.bounds, merged.cumulative, strict=True):
        assert count == sum(part.get(bound, 0) for part in at)
