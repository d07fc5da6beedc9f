"""Published worked numbers of goodput, attainment, burn and capacity, each through the code that is used.

Others stand with what they belong to: time to full, capacity and preempted share in `test_kv_maths`, burn
windows in `test_burn`, the two knee tables in `test_load_curve`, energy and cost in `test_efficiency`.
"""

from __future__ import annotations

import pytest

from enginetop.fleet.attainment import joint_share, times
from enginetop.fleet.burn import WINDOWS, is_reachable
from enginetop.fleet.histogram import HistogramIncrease, merge_histograms
from enginetop.fleet.snapshot import Quantile, Span


def test_the_share_within_an_objective_inside_a_bucket() -> None:
    # 900 up to .5, 960 up to .75, 1000 in all: at .6 s 900 + 60 x .1 / .25 = 924
    ttft = HistogramIncrease((0.5, 0.75), (900.0, 960.0), 1000.0, None)
    found = ttft.share_within(0.6)
    assert found.value == pytest.approx(0.924)
    assert (found.low, found.high) == (0.9, 0.96)


def test_joint_bounds_of_two_shares() -> None:
    sure = joint_share(Quantile(0.924, 0.924, 0.924), Quantile(0.9, 0.9, 0.9))
    assert sure.low == pytest.approx(0.824)
    assert sure.high == 0.9
    assert sure.independent == pytest.approx(0.8316)
    hard = joint_share(Quantile(0.924, 0.9, 0.96), Quantile(0.9, 0.9, 0.9))
    assert hard.low == pytest.approx(0.8)
    assert hard.high == 0.9


@pytest.mark.parametrize(("offered", "share", "good"), [(100, 0.99, 99), (200, 0.4, 80)])
def test_more_load_may_be_less_goodput(offered: float, share: float, good: float) -> None:
    assert times(Span(share, share, share), offered) == Span(good, good, good)


def test_a_token_weighted_mean_is_not_the_median() -> None:
    # 900 events of 20 ms and 100 of 200 ms: mean 38 ms, and half of them at most 20 ms
    itl = HistogramIncrease((0.02, 0.2), (900.0, 1000.0), 1000.0, 900 * 0.02 + 100 * 0.2)
    assert itl.mean == pytest.approx(0.038)
    assert itl.quantile(0.5).high == 0.02


def test_percentiles_are_merged_and_never_averaged() -> None:
    # 99 quick requests and one slow one here, all slow there: p99 of both is not the mean of .1 and 1
    quick = HistogramIncrease((0.1, 1.0), (99.0, 100.0), 100.0, None)
    slow = HistogramIncrease((0.1, 1.0), (0.0, 10.0), 10.0, None)
    assert quick.quantile(0.99).value == pytest.approx(0.1)
    # rank 108.9 of 110: .1 + .9 x (108.9 - 99) / 11
    assert merge_histograms([quick, slow]).quantile(0.99).value == pytest.approx(0.1 + 0.9 * 9.9 / 11)


def test_what_a_burn_rate_spends_of_a_month() -> None:
    spent = {rate: rate * long_seconds / 3600 / 720 for long_seconds, _, rate in WINDOWS}
    assert spent == {14.4: pytest.approx(0.02), 6.0: pytest.approx(0.05), 3.0: pytest.approx(0.1), 1.0: 0.1}
    assert all(short * 12 == long_seconds for long_seconds, short, _ in WINDOWS)


@pytest.mark.parametrize(("target", "most"), [(0.9, 10.0), (0.95, 20.0), (0.99, 100.0), (0.9306, 14.41)])
def test_the_most_that_a_budget_can_burn(target: float, most: float) -> None:
    assert is_reachable(most - 0.01, target)
    assert not is_reachable(most + 0.01, target)
