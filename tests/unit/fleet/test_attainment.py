"""Attainment from histograms: the figures of published worked examples, and the truth inside its bounds."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enginetop.fleet.attainment import joint_share
from enginetop.fleet.derive import signals
from enginetop.fleet.facts import WindowFacts, merge_facts
from enginetop.fleet.goodput import Part, fleet_goodput, fleet_objective, goodput
from enginetop.fleet.histogram import HistogramIncrease
from enginetop.fleet.model import Quality
from enginetop.fleet.reading import Series
from enginetop.fleet.snapshot import NO_QUANTILE, NO_SPAN, Goodput, Quantile, Slo, Span
from tests.support.history_pages import INF, Told, columns, histogram, value

SLO = Slo(0.6, 0.05)
TTFT, TPOT = (0.25, 0.5, 0.75, 1.0), (0.025, 0.05, 0.1)
EXACTLY_90 = Quantile(0.9, 0.9, 0.9)


def near(found: Span, low: float, high: float, independent: float | None) -> None:
    assert found.low == pytest.approx(low)
    assert found.high == pytest.approx(high)
    assert found.independent == (None if independent is None else pytest.approx(independent))


class TestWithinALimit:
    half_to_top = HistogramIncrease((0.5, 0.75), (900, 960), 1000, None)

    def test_inside_a_bucket_linear_with_the_edges_as_hard_bounds(self) -> None:
        # 900 + 60 x (.6 - .5) / .25 = 924 of 1000
        found = self.half_to_top.share_within(0.6)
        assert found.value == pytest.approx(0.924)
        assert (found.low, found.high, found.censored) == (0.9, 0.96, False)

    def test_on_an_edge_it_is_known(self) -> None:
        assert self.half_to_top.share_within(0.5) == EXACTLY_90
        noisy = HistogramIncrease((0.3,), (1,), 4, None)
        assert noisy.share_within(0.1 + 0.2) == Quantile(0.25, 0.25, 0.25)

    def test_past_the_last_finite_edge_only_a_lower_bound_is_known(self) -> None:
        assert self.half_to_top.share_within(3.0) == Quantile(None, 0.96, 1.0, censored=True)
        assert HistogramIncrease((), (), 7, None).share_within(3.0) == Quantile(None, 0.0, 1.0, censored=True)

    def test_the_first_bucket_begins_at_zero(self) -> None:
        assert HistogramIncrease((0.5,), (8,), 16, None).share_within(0.25) == Quantile(0.25, 0.0, 0.5)

    def test_nothing_observed_is_no_share(self) -> None:
        assert HistogramIncrease((0.5,), (0,), 0, 0.0).share_within(0.25) == NO_QUANTILE

    @settings(max_examples=50, deadline=None)
    @given(st.lists(st.floats(0.01, 3.0), min_size=1, max_size=40), st.floats(0.01, 3.0))
    def test_the_truth_lies_between_the_bounds(self, observed: Sequence[float], limit: float) -> None:
        bounds = (0.1, 0.3, 0.5, 1.0, 2.0)
        cumulative = tuple(float(sum(one <= bound for one in observed)) for bound in bounds)
        found = HistogramIncrease(bounds, cumulative, len(observed), None).share_within(limit)
        assert found.low is not None
        assert found.high is not None
        assert found.low <= sum(one <= limit for one in observed) / len(observed) <= found.high
        assert found.value is None or found.low <= found.value <= found.high


class TestJoint:
    def test_hard_bounds_and_the_independent_reference(self) -> None:
        # [.900 + .90 - 1, min(.960, .90)] and .924 x .90
        near(joint_share(Quantile(0.924, 0.9, 0.96), EXACTLY_90), 0.8, 0.9, 0.8316)

    def test_both_on_an_edge(self) -> None:
        near(joint_share(Quantile(0.924, 0.924, 0.924), EXACTLY_90), 0.824, 0.9, 0.8316)

    def test_of_three_limits_two_are_taken_off(self) -> None:
        near(joint_share(EXACTLY_90, EXACTLY_90, EXACTLY_90), 0.7, 0.9, 0.729)

    def test_rounding_never_crosses_the_bounds(self) -> None:
        odd = Quantile(154 / 173, 154 / 173, 154 / 173)
        found = joint_share(Quantile(1.0, 1.0, 1.0), odd)
        assert found.low == found.high == 154 / 173

    def test_never_below_zero(self) -> None:
        rare = Quantile(0.3, 0.3, 0.3)
        near(joint_share(rare, rare), 0.0, 0.3, 0.09)

    def test_what_is_only_bounded_has_no_independent_reference(self) -> None:
        near(joint_share(Quantile(None, 0.96, 1.0, censored=True), EXACTLY_90), 0.86, 0.9, None)

    def test_one_limit_without_figures_leaves_nothing(self) -> None:
        assert joint_share(NO_QUANTILE, EXACTLY_90) == NO_SPAN

    @settings(max_examples=50, deadline=None)
    @given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=60))
    def test_the_truth_lies_between_the_bounds(self, requests: Sequence[tuple[bool, bool]]) -> None:
        n = len(requests)
        first, second = sum(a for a, _ in requests) / n, sum(b for _, b in requests) / n
        found = joint_share(Quantile(first, first, first), Quantile(second, second, second))
        assert found.low is not None
        assert found.high is not None
        assert found.low - 1e-9 <= sum(a and b for a, b in requests) / n <= found.high + 1e-9


def shape(*more: Series, ttft: Sequence[float] = TTFT, tpot: Sequence[float] = TPOT) -> tuple[Series, ...]:
    return (
        value("requests_finished"),
        value("requests_aborted"),
        *histogram("ttft_seconds", (*ttft, INF)),
        *histogram("tpot_seconds", (*tpot, INF)),
        *more,
    )


def window(series: tuple[Series, ...], *last: float, seconds: float = 100.0) -> WindowFacts:
    told = Told(columns(*series))
    told.page(0, *[0.0] * len(last))
    told.page(seconds, *last)
    found = told.history.window(600.0)
    assert found is not None
    return found


# 1100 ended, 100 of them aborted. TTFT within .6 s: 924 of [900, 960]; TPOT within .05 s: exactly 900.
BUSY = (1100, 100, 500, 900, 960, 1000, 1000, 400, 1000, 600, 900, 990, 1000, 40, 1000)


def of(facts: WindowFacts, slo: Slo = SLO) -> Goodput:
    return goodput(signals(facts), facts, slo)


class TestReplica:
    def test_a_replica_without_exact_counts(self) -> None:
        found = of(window(shape(), *BUSY))
        assert (found.offered_per_second, found.exact, found.good_per_second) == (11.0, None, None)
        near(found.joint, 0.8, 0.9, 0.8316)
        near(found.within_per_second, 8.0, 9.0, 8.316)  # (1100 - 100) / 100 s x joint: aborts are not good
        assert (found.quality, found.note) == (Quality.ESTIMATED, "")

    def test_counts_that_differ_by_more_than_a_twentieth_are_named(self) -> None:
        fewer = [*BUSY[:9], *(0.94 * figure for figure in BUSY[9:])]
        assert of(window(shape(), *fewer)).note == "TTFT of 1000 and TPOT of 940 requests: not the same ones"
        close = [*BUSY[:9], *(0.95 * figure for figure in BUSY[9:])]
        assert of(window(shape(), *close)).note == ""

    def test_implausible_times_are_not_judged(self) -> None:
        # every first token within 73 us: broken clocks
        broken = (1000, 0, 1000, 1000, 1000, 1000, 1000, 0.073, 1000, *BUSY[9:])
        found = of(window(shape(), *broken))
        assert (found.ttft, found.joint, found.quality) == (NO_QUANTILE, NO_SPAN, Quality.UNKNOWN)
        assert "TTFT is not judged" in found.note

    def test_speculation_is_judged_by_requests_never_by_events(self) -> None:
        series = (
            value("requests_finished"),
            *histogram("ttft_seconds", (0.6, INF)),
            *histogram("itl_seconds", (0.05, INF)),
            value("spec_drafts"),
        )
        found = of(window(series, 10, 9, 10, 5, 10, 90, 100, 5, 100, 40))
        assert (found.tpot, found.joint, found.quality) == (NO_QUANTILE, NO_SPAN, Quality.UNKNOWN)
        assert "ITL is per output event with speculation" in found.note

    def test_nothing_in_the_window_is_unknown_and_not_bad(self) -> None:
        found = of(window(shape(), *[0.0] * len(BUSY)))
        assert (found.joint, found.quality, found.offered_per_second) == (NO_SPAN, Quality.UNKNOWN, 0.0)
        assert found.note == "no TTFT in the window; no TPOT in the window"

    def test_exact_counts_lead_and_bounds_stand_beside_them(self) -> None:
        counters = (value("requests_judged"), value("requests_within_slo"))
        found = of(window(shape(*counters), *BUSY, 1000, 850))
        assert (found.exact, found.quality) == (0.85, Quality.OK)
        assert found.good_per_second == pytest.approx(8.5)
        near(found.joint, 0.8, 0.9, 0.8316)


def test_histograms_of_completed_requests_go_first() -> None:
    # 5 of 10 first tokens in time, but of the 8 requests that ended 6 had theirs in time: 5 kept TPOT too
    series = shape(
        *histogram("completed_ttft_seconds", (0.6, INF)), *histogram("completed_tpot_seconds", (0.05, INF))
    )
    own = (10, 0, 5, 5, 5, 10, 10, 9, 10, 6, 6, 8, 8, 1, 8)
    found = of(window(series, *own, 6, 8, 9, 8, 7, 8, 1, 8))
    assert (found.ttft, found.tpot) == (Quantile(0.75, 0.75, 0.75), Quantile(0.875, 0.875, 0.875))
    near(found.joint, 0.625, 0.75, 0.65625)
    assert found.note == ""  # the engine's own counts differ, and are not used


class TestFleet:
    def fleet(self, *replicas: tuple[WindowFacts, Slo], slo: Slo = SLO) -> Goodput:
        facts = merge_facts([one for one, _ in replicas])
        parts = [Part(of(one, own), one.total, own) for one, own in replicas]
        return fleet_goodput(signals(facts), facts, slo, parts)

    def test_buckets_are_merged_and_shares_never_averaged(self) -> None:
        slow = [100, 0, 0, 0, 100, 100, 100, 70, 100, 0, 0, 100, 100, 8, 100]
        found = self.fleet((window(shape(), *BUSY), SLO), (window(shape(), *slow), SLO))
        # of 1100 first tokens 900 by .5 s and 1060 by .75 s; of 1100 requests 900 within .05 s
        assert (found.ttft.low, found.ttft.high) == (900 / 1100, 1060 / 1100)
        assert found.ttft.value == pytest.approx((900 + 160 * 0.4) / 1100)
        assert found.tpot == Quantile(900 / 1100, 900 / 1100, 900 / 1100)
        assert found.quality is Quality.ESTIMATED

    def test_other_buckets_leave_the_common_bounds(self) -> None:
        coarse = (100, 0, 50, 100, 100, 60, 100, 100, 100, 100, 100, 1, 100)
        found = self.fleet((window(shape(), *BUSY), SLO), (window(shape(ttft=(0.5, 1.0)), *coarse), SLO))
        # common: .5 and 1 s; .6 s lies a fifth of the way from 950 to 1100 of 1100
        assert found.ttft.value == pytest.approx((950 + 150 * 0.2) / 1100)

    def test_each_model_against_its_own_objective(self) -> None:
        relaxed = Slo(1.0, 0.1)
        found = self.fleet((window(shape(), *BUSY), SLO), (window(shape(), *BUSY), relaxed), slo=Slo())
        # TTFT: 924 in [900, 960], and all 1000; TPOT: 900, and 990
        assert (found.ttft.low, found.ttft.high) == (0.95, 0.98)
        assert found.ttft.value == pytest.approx(0.962)
        assert found.tpot.value == pytest.approx(0.945)
        assert found.note == "each replica against its own objective"

    def test_completed_requests_of_some_replicas_are_not_taken_for_all(self) -> None:
        companion = shape(
            *histogram("completed_ttft_seconds", (0.6, INF)),
            *histogram("completed_tpot_seconds", (0.05, INF)),
        )
        found = self.fleet(
            (window(companion, *BUSY, 1000, 1000, 100, 1000, 1000, 1000, 10, 1000), SLO),
            (window(shape(), *BUSY), SLO),
        )
        assert found.ttft.value == pytest.approx(0.924)

    def test_the_objective_of_a_fleet_is_the_one_that_all_have(self) -> None:
        assert fleet_objective([SLO, SLO], Slo()) == SLO
        assert fleet_objective([SLO, Slo(2.0)], Slo()) == Slo()
        assert fleet_objective([], SLO) == SLO
