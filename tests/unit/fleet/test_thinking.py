"""Requests that reach their thinking budget, and the KV tokens of reasoning; figures worked out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enginetop.fleet.derive import no_signals
from enginetop.fleet.histogram import HistogramIncrease
from enginetop.fleet.model import Quality
from enginetop.fleet.reading import ConfigValue
from enginetop.fleet.request_records import RequestFigures, with_records
from enginetop.fleet.snapshot import Scalar, Signals
from enginetop.fleet.thinking import (
    BudgetHits,
    budget_of,
    hit_ratio,
    hits_in_histogram,
    hits_in_records,
    kv_tokens,
)

SAMPLE = (200, 400, 800, 1600, 3200, 6400, 12800)


def records(*tokens: int, budget: float | None = None) -> list[RequestFigures]:
    return [RequestFigures(1.0, 20_000, one, thinking_token_budget=budget) for one in tokens]


def test_two_of_seven_reach_a_budget_of_4096() -> None:
    assert hits_in_records(records(*SAMPLE), 4096) == BudgetHits(2, 2, 7)
    found = hit_ratio([hits_in_records(records(*SAMPLE), 4096)])
    assert found.value == pytest.approx(0.286, abs=0.0005)
    assert (found.quality, found.note) == (Quality.OK, "of 7 requests")


def test_exactly_the_budget_has_reached_it_and_each_request_has_its_own() -> None:
    mixed = [*records(4096, 4095), *records(512, 511, budget=512), *records(10, budget=-1)]
    assert hits_in_records(mixed, 4096) == BudgetHits(2, 2, 5)  # -1 limits nothing: the server's counts
    assert hits_in_records(mixed, None) == BudgetHits(1, 1, 2)


def test_without_a_budget_or_a_count_nothing_is_told() -> None:
    assert hits_in_records(records(*SAMPLE), None) is None
    assert hits_in_records([RequestFigures(1.0, 9, 0, reasoning_chars=5)], 100) is None
    found = hit_ratio([None])
    assert (found.value, found.quality) == (None, Quality.UNKNOWN)


@pytest.mark.parametrize(
    ("value", "budget"),
    [(4096, 4096.0), (-1, None), (0, None), (None, None), ("4096", None), (True, None)],
)
def test_a_budget_that_limits_anything(value: float | str | bool | None, budget: float | None) -> None:
    assert budget_of({"thinking_token_budget": ConfigValue(value, "page")}) == budget
    assert budget_of({}) is None


class TestHistogram:
    #             up to 256: 40, to 512: 60, to 1024: 90, beyond: 10 of 100
    FOUND = HistogramIncrease((256.0, 512.0, 1024.0), (40.0, 60.0, 90.0), 100.0, 50_000.0)

    @pytest.mark.parametrize(
        ("budget", "least", "most"),
        [
            (513, 40, 40),  # who counts more than 512 has reached 513
            (512, 40, 60),  # those in (256, 512] may have
            (1024, 10, 40),
            (1025, 10, 10),
            (2048, 0, 10),
            (100, 60, 100),
        ],
    )
    def test_bounds(self, budget: float, least: float, most: float) -> None:
        assert hits_in_histogram(self.FOUND, budget) == BudgetHits(least, most, 100)

    def test_what_is_told_of_bounds(self) -> None:
        near = hit_ratio([BudgetHits(10, 20, 100)])
        assert near.value == pytest.approx(0.15)
        assert near.quality is Quality.ESTIMATED
        assert near.note == "between 10.0 and 20.0 % of 100 requests"
        far = hit_ratio([hits_in_histogram(self.FOUND, 1024)])
        assert (far.value, far.quality) == (None, Quality.UNKNOWN)
        assert far.note == "between 10.0 and 40.0 % of 100 requests: the budget lies inside a bucket"

    def test_nothing_of_nothing(self) -> None:
        assert hits_in_histogram(self.FOUND, None) is None
        assert hits_in_histogram(HistogramIncrease((1.0,), (0.0,), 0.0, 0.0), 5) is None

    def test_parts_of_a_fleet_are_added(self) -> None:
        assert hit_ratio([BudgetHits(1, 1, 4), None, BudgetHits(1, 1, 12)]).value == 2 / 16

    @settings(max_examples=80, deadline=None)
    @given(
        st.lists(st.integers(0, 40), min_size=1, max_size=30),
        st.lists(st.integers(1, 30), min_size=1, max_size=5, unique=True),
        st.integers(1, 35),
    )
    def test_the_truth_lies_between_the_bounds(
        self, tokens: list[int], edges: list[int], budget: int
    ) -> None:
        bounds = tuple(float(edge) for edge in sorted(edges))
        counts = tuple(float(sum(one <= bound for one in tokens)) for bound in bounds)
        found = hits_in_histogram(HistogramIncrease(bounds, counts, float(len(tokens)), None), budget)
        assert found is not None
        assert found.least <= sum(one >= budget for one in tokens) <= found.most


class TestKvTokens:
    def of(self, running: float | None, *tokens: int, capacity: float | None = None) -> Scalar:
        signals: Signals = {
            **no_signals(),
            "requests_running": Scalar(running, "requests", Quality.OK),
            "kv_capacity_tokens": Scalar(capacity, "tokens", Quality.OK),
        }
        return kv_tokens(with_records(signals, records(*tokens)))

    def test_half_of_the_mean_in_each_running_request(self) -> None:
        # 1600 tokens fewer of output are 800 fewer resident ones: 3500 against 2700 of a request
        found = self.of(50, 1600, 1600, capacity=200_000)
        assert (found.value, found.unit, found.quality) == (40_000, "tokens", Quality.ESTIMATED)
        assert found.note == (
            "at least: half of 1600 tokens in each of 50 running requests, 20.0 % of the KV cache"
        )

    def test_unknown_where_either_is(self) -> None:
        assert self.of(None, 1600).note == "requests running not known"
        assert self.of(50).note == "reasoning tokens not known"
        assert self.of(50).value is None
        assert self.of(0, 1600).value == 0
