"""Reasoning tokens and exact shares from records of single requests; figures worked out by hand."""

from __future__ import annotations

import weakref
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enginetop.fleet.derive import no_signals
from enginetop.fleet.model import Quality
from enginetop.fleet.request_records import (
    MOST_RECORDS,
    RequestFigures,
    RequestLog,
    judged_by_records,
    with_records,
)
from enginetop.fleet.snapshot import NO_QUANTILE, Distribution, Goodput, Quantile, Scalar, Slo

SLO = Slo(0.6, 0.05)
BUDGET_SAMPLE = (200, 400, 800, 1600, 3200, 6400, 12800)


def reasoning(*tokens: float) -> list[RequestFigures]:
    return [RequestFigures(float(i), 20_000, one) for i, one in enumerate(tokens)]


def told(records: Sequence[RequestFigures]) -> Distribution:
    found = with_records(no_signals(), records)["reasoning_tokens"]
    assert isinstance(found, Distribution)
    return found


def share(records: Sequence[RequestFigures]) -> Scalar:
    found = with_records(no_signals(), records)["reasoning_share_ratio"]
    assert isinstance(found, Scalar)
    return found


def exactly(value: float) -> Quantile:
    return Quantile(value, value, value)


def test_seven_requests() -> None:
    found = told(reasoning(*BUDGET_SAMPLE))
    assert (found.count, found.sum) == (7, 25400)
    assert found.mean.value == pytest.approx(3628.6, abs=0.05)
    assert found.quantiles["p50"] == exactly(1600)  # the 4th: ceil 3.5
    assert found.quantiles["p90"] == exactly(12800)  # the 7th: ceil 6.3
    assert (found.quantiles["p95"], found.quantiles["p99"]) == (NO_QUANTILE, NO_QUANTILE)
    assert (found.quality, found.unit) == (Quality.OK, "tokens")
    assert found.note == "request records: 7 counted; p95 needs 60; p99 needs 300"


@pytest.mark.parametrize(
    ("n", "p95", "p99"),
    [(59, None, None), (60, 57, None), (61, 58, None), (299, 285, None), (300, 285, 297), (301, 286, 298)],
)
def test_tails_need_requests(n: int, p95: float | None, p99: float | None) -> None:
    found = told(reasoning(*range(1, n + 1)))
    assert (found.quantiles["p95"].value, found.quantiles["p99"].value) == (p95, p99)


def test_zero_beside_reasoning_text_is_unknown_and_other_zeros_are_not() -> None:
    records = [
        RequestFigures(1.0, 700, 0, reasoning_chars=2053),
        RequestFigures(2.0, 700, None, reasoning_chars=2053),
        RequestFigures(3.0, 700, 0, reasoning_chars=0),
        RequestFigures(4.0, 700, 0),
        RequestFigures(5.0, 700, 350),
    ]
    found = told(records)
    assert (found.count, found.sum) == (3, 350)
    assert found.note.startswith("request records: 3 counted, 2 unknown")
    assert share(records).value == pytest.approx(350 / 2100)
    nothing = told(records[:2])
    assert (nothing.count, nothing.mean, nothing.quality) == (0, NO_QUANTILE, Quality.UNKNOWN)
    assert (share(records[:2]).value, share(records[:2]).quality) == (None, Quality.UNKNOWN)


def test_what_an_engine_side_counts_itself_goes_first() -> None:
    own = Distribution(9, 900, Quantile(100), {}, "tokens", Quality.OK)
    signals = {**no_signals(), "reasoning_tokens": own}
    assert with_records(signals, reasoning(5))["reasoning_tokens"] is own
    quiet = {**no_signals(), "reasoning_tokens": Distribution(0, 0, NO_QUANTILE, {}, "tokens", Quality.OK)}
    found = with_records(quiet, reasoning(5))["reasoning_tokens"]
    assert isinstance(found, Distribution)
    assert found.count == 1
    assert with_records(signals, ()) is signals


class TestJudged:
    GOOD = RequestFigures(1.0, 700, ttft_seconds=0.6, tpot_seconds=0.05, finish="stop")
    LATE = RequestFigures(2.0, 700, ttft_seconds=0.61, tpot_seconds=0.01, finish="length")
    SLOW = RequestFigures(3.0, 700, ttft_seconds=0.1, tpot_seconds=0.06, finish="stop")
    GONE = RequestFigures(4.0, 700, ttft_seconds=0.1, tpot_seconds=0.01, finish="abort")
    ONE_TOKEN = RequestFigures(5.0, 1, ttft_seconds=0.1, finish="stop")
    SILENT = RequestFigures(6.0, 700, ttft_seconds=0.1, finish="stop")

    def of(self, *records: RequestFigures, goodput: Goodput | None = None) -> Goodput:
        told = goodput or Goodput(4.0, quality=Quality.ESTIMATED, completed_per_second=3.0)
        return judged_by_records(told, [(record, SLO) for record in records])

    def test_share_of_completed_requests_within_both_halves(self) -> None:
        found = self.of(self.GOOD, self.LATE, self.SLOW, self.GONE, self.ONE_TOKEN)
        assert (found.exact, found.good_per_second, found.quality) == (0.5, 1.5, Quality.OK)
        assert found.note == "exact share of 4 request records"

    def test_a_record_without_times_makes_it_an_estimate(self) -> None:
        found = self.of(self.GOOD, self.SILENT)
        assert (found.exact, found.quality) == (1.0, Quality.ESTIMATED)

    def test_counters_of_an_engine_side_go_first(self) -> None:
        counted = Goodput(4.0, 3.0, 0.9, quality=Quality.OK)
        assert self.of(self.LATE, goodput=counted) is counted
        doubtful = Goodput(4.0, quality=Quality.SUSPECT)
        assert self.of(self.GOOD, goodput=doubtful) is doubtful

    def test_records_that_judge_nothing_change_nothing(self) -> None:
        told = Goodput(4.0)
        assert self.of(self.GONE, self.SILENT, goodput=told) is told


class TestLog:
    def test_the_window_is_open_at_its_beginning(self) -> None:
        log = RequestLog(60.0)
        for at in (160.0, 100.0, 101.0, 161.0):
            log.add(RequestFigures(at))
        assert [one.at for one in log.counted(160.0)] == [101.0, 160.0]
        assert log.counted(160.5) is log.counted(160.9)
        assert log.counted(1000.0) == ()

    def test_what_is_older_than_the_window_takes_no_memory(self) -> None:
        class Watched(RequestFigures):
            """Can be weakly referred to."""

        log = RequestLog(60.0)
        old = Watched(0.0)
        known = weakref.ref(old)
        log.add(old)
        assert log.counted(30.0) == (old,)
        del old
        for at in range(1, 100):
            log.add(RequestFigures(float(at)))
            log.counted(float(at))
        assert known() is None
        assert len(log.counted(99.0)) == 60

    def test_it_is_bounded(self) -> None:
        log = RequestLog(1e9)
        for at in range(MOST_RECORDS + 1):
            log.add(RequestFigures(float(at)))
        assert len(log.counted(1e9)) <= MOST_RECORDS
        assert log.counted(1e9)[-1].at == MOST_RECORDS


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 5000), min_size=1, max_size=80))
def test_a_quantile_is_one_of_the_requests_and_enough_lie_at_or_below_it(tokens: list[int]) -> None:
    found = told(reasoning(*tokens))
    for key, q in (("p50", 0.5), ("p90", 0.9)):
        value = found.quantiles[key].value
        assert value in tokens
        assert sum(one <= value for one in tokens) >= q * len(tokens) - 1e-9
        assert sum(one < value for one in tokens) < q * len(tokens)
