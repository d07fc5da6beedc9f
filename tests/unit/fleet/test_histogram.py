"""Quantiles, means and merges of bucket increases; every figure worked out by hand."""

from __future__ import annotations

import math

import pytest

from enginetop.fleet.histogram import HistogramIncrease, canonical_bound, merge_histograms
from enginetop.fleet.snapshot import NO_QUANTILE, Quantile

HALF_TO_TWO = HistogramIncrease((0.5, 1.0, 2.0), (50, 80, 95), 100, 90.0)


@pytest.mark.parametrize(
    ("q", "expected"),
    [
        (0.50, Quantile(0.5, 0.0, 0.5)),  # the 50th of 50 in (0, .5]
        (0.25, Quantile(0.25, 0.0, 0.5)),  # half way into the first bucket
        (0.65, Quantile(0.75, 0.5, 1.0)),  # the 15th of the 30 in (.5, 1]
        (0.90, Quantile(1.0 + 10 / 15, 1.0, 2.0)),
        (0.95, Quantile(2.0, 1.0, 2.0)),
        (0.99, Quantile(None, 2.0, None, censored=True)),
    ],
)
def test_rank_reached_first_then_linear_inside(q: float, expected: Quantile) -> None:
    found = HALF_TO_TWO.quantile(q)
    assert (found.low, found.high, found.censored) == (expected.low, expected.high, expected.censored)
    assert found.value == (None if expected.value is None else pytest.approx(expected.value))


def test_empty_buckets_are_passed_over() -> None:
    sparse = HistogramIncrease((1.0, 2.0, 5.0, 10.0), (4, 4, 4, 8), 8, None)
    assert sparse.quantile(0.5) == Quantile(1.0, 0.0, 1.0)  # rank 4 is reached by the first bucket
    assert sparse.quantile(0.75) == Quantile(7.5, 5.0, 10.0)


@pytest.mark.parametrize("count", range(20, 2001, 20))
def test_a_rank_that_is_whole_stays_in_its_bucket(count: int) -> None:
    """The product 0.95 x n is rounded, and must not slip into the next bucket."""
    below = count * 95 // 100
    histogram = HistogramIncrease((1.0, 100.0), (below, count), count, None)
    assert histogram.quantile(0.95) == Quantile(1.0, 0.0, 1.0)


def test_a_first_bound_of_zero_or_less_is_the_answer_itself() -> None:
    assert HistogramIncrease((0.0, 1.0), (9, 10), 10, None).quantile(0.5) == Quantile(0.0, None, 0.0)
    below_zero = HistogramIncrease((-2.0, -1.0), (5, 10), 10, None)
    assert below_zero.quantile(0.5) == Quantile(-2.0, None, -2.0)
    assert below_zero.quantile(0.75) == Quantile(-1.5, -2.0, -1.0)


def test_without_observations_there_is_neither_quantile_nor_mean() -> None:
    nothing = HistogramIncrease((1.0,), (0,), 0, 0.0)
    assert nothing.quantile(0.5) == NO_QUANTILE
    assert nothing.mean is None


def test_everything_past_the_last_finite_bound_is_censored() -> None:
    top_heavy = HistogramIncrease((5.0, 10.0), (0, 0), 7, 700.0)
    assert top_heavy.quantile(0.5) == Quantile(None, 10.0, None, censored=True)
    assert top_heavy.mean == 100.0


def test_without_finite_bounds_only_zero_is_known() -> None:
    assert HistogramIncrease((), (), 3, 6.0).quantile(0.5) == Quantile(None, 0.0, None, censored=True)


def test_means() -> None:
    assert HALF_TO_TWO.mean == pytest.approx(0.9)
    assert HistogramIncrease((1.0,), (1,), 1, None).mean is None
    assert HistogramIncrease((1.0,), (3,), 3, -46.0, sum_fell=True).mean is None


class TestMerge:
    """Percentiles of a fleet come from added buckets at common bounds, never from percentiles."""

    def test_same_bounds_add_up(self) -> None:
        merged = merge_histograms([HALF_TO_TWO, HistogramIncrease((0.5, 1.0, 2.0), (0, 0, 300), 300, 450.0)])
        assert merged == HistogramIncrease((0.5, 1.0, 2.0), (50, 80, 395), 400, 540.0)
        assert merged.quantile(0.5) == Quantile(pytest.approx(1 + 120 / 315), 1.0, 2.0)  # type: ignore[arg-type]

    def test_only_common_bounds_remain(self) -> None:
        other = HistogramIncrease((0.25, 1.0, 4.0), (1, 2, 3), 4, 9.0)
        assert merge_histograms([HALF_TO_TWO, other]) == HistogramIncrease((1.0,), (82,), 104, 99.0)

    def test_without_common_bounds_count_and_mean_remain(self) -> None:
        merged = merge_histograms([HALF_TO_TWO, HistogramIncrease((7.0,), (10,), 10, 20.0)])
        assert (merged.bounds, merged.count, merged.mean) == ((), 110, 1.0)
        assert merged.quantile(0.5) == Quantile(None, 0.0, None, censored=True)

    def test_a_part_without_observations_takes_no_bound_away(self) -> None:
        idle = HistogramIncrease((7.0,), (0,), 0, 0.0)
        assert merge_histograms([idle, HALF_TO_TWO, idle]) == HALF_TO_TWO

    def test_only_parts_without_observations(self) -> None:
        idle = HistogramIncrease((7.0,), (0,), 0, 0.0)
        assert merge_histograms([idle, idle]).count == 0

    def test_a_sum_that_one_part_lacks_or_lost_is_lost(self) -> None:
        bad = HistogramIncrease((0.5, 1.0, 2.0), (1, 1, 1), 1, -40.0, sum_fell=True)
        none = HistogramIncrease((0.5, 1.0, 2.0), (1, 1, 1), 1, None)
        assert merge_histograms([HALF_TO_TWO, bad]).mean is None
        assert merge_histograms([HALF_TO_TWO, none]).mean is None

    def test_nothing_to_merge(self) -> None:
        with pytest.raises(ValueError, match="nothing"):
            merge_histograms([])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (0.15, 0.15000000000000002),
        (0.3, 0.1 + 0.2),
        (1e-05, 1.0000000000000001e-05),
        (2560.0, 2560.0000000000005),
    ],
)
def test_bounds_that_differ_by_rounding_are_one(one: float, other: float) -> None:
    assert canonical_bound(one) == canonical_bound(other)


def test_bounds_that_differ_are_two() -> None:
    assert canonical_bound(0.15) != canonical_bound(0.1501)
    assert canonical_bound(math.inf) == math.inf
