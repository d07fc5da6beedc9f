"""Ranks into a replica, replicas into a fleet."""

from __future__ import annotations

import pytest

from enginetop.fleet.derive import rank_signals, signals
from enginetop.fleet.facts import Facts, WindowFacts, merge_facts
from enginetop.fleet.model import Quality
from enginetop.fleet.reading import Absence
from enginetop.fleet.snapshot import Distribution, Scalar, Signals
from tests.support.history_pages import INF, NAN, Told, columns, histogram, two_ranks, value


def window_of(told: Told) -> WindowFacts:
    window = told.history.window(600)
    assert window is not None
    return window


def scalar(found: Signals, name: str) -> Scalar:
    one = found[name]
    assert isinstance(one, Scalar)
    return one


def distribution(found: Signals, name: str) -> Distribution:
    one = found[name]
    assert isinstance(one, Distribution)
    return one


def ranked() -> WindowFacts:
    """Two ranks over 10 s: KV .5 and .9, running 4 and 7, 100 and 300 tokens, hits 10 of 40 and 90 of 160."""
    shape = columns(
        *(value(measure, rank=rank) for measure in RANKED for rank in ("0", "1")),
        *histogram("ttft_seconds", (1.0, INF), rank="0"),
        *histogram("ttft_seconds", (1.0, INF), rank="1"),
        ranks=two_ranks(),
    )
    told = Told(shape)
    told.page(0, *([0] * 18))
    told.page(10, 0.5, 0.9, 4, 7, 100, 300, 10, 90, 40, 160, 3, 4, 5.0, 4, 5, 6, 4.0, 6)
    return window_of(told)


RANKED = ("kv_usage_ratio", "requests_running", "generation_tokens", "prefix_hits", "prefix_queries")


class TestRanks:
    def test_gauges_and_counters_are_added_and_kv_is_the_maximum(self) -> None:
        found = signals(ranked())
        kv = scalar(found, "kv_usage_ratio")
        assert (kv.value, kv.worst) == (0.9, {"engine": "1"})
        assert kv.mean == pytest.approx(0.7)
        assert scalar(found, "requests_running").value == 11
        assert scalar(found, "generation_tokens_per_second").value == 40
        assert scalar(found, "prefix_hit_ratio").value == 0.5  # 100 of 200, not the mean of .25 and .5625
        assert {one.quality for one in (kv, scalar(found, "requests_running"))} == {Quality.OK}

    def test_distributions_merge(self) -> None:
        ttft = distribution(signals(ranked()), "ttft_seconds")
        assert (ttft.count, ttft.sum) == (10, 9.0)
        assert ttft.quantiles["p50"].value == pytest.approx(5 / 8)

    def test_each_rank_has_its_own_row(self) -> None:
        rows = rank_signals(ranked())
        assert [row.labels for row in rows] == [{"engine": "0"}, {"engine": "1"}]
        assert [scalar(row.signals, "requests_running").value for row in rows] == [4, 7]
        assert [scalar(row.signals, "prefix_hit_ratio").value for row in rows] == [0.25, 0.5625]
        assert scalar(rows[1].signals, "kv_usage_ratio").worst is None

    def test_a_single_rank_is_the_replica(self) -> None:
        told = Told(columns(value("requests_running", rank="0"), ranks={"0": {"engine": "0"}}))
        told.page(0, 3)
        window = window_of(told)
        whole = signals(window)
        (row,) = rank_signals(window, whole)
        assert row.signals is whole
        kv_free = scalar(whole, "kv_usage_ratio")
        assert (kv_free.value, kv_free.quality) == (None, Quality.UNSUPPORTED)

    def test_a_page_without_ranks_has_no_rows(self) -> None:
        told = Told(columns(value("requests_running")))
        told.page(0, 3)
        assert rank_signals(window_of(told)) == ()

    def test_a_series_without_rank_counts_for_the_replica_only(self) -> None:
        shape = columns(
            value("requests_running", rank="0"),
            value("requests_running", rank="1"),
            value("requests_waiting"),
            ranks=two_ranks(),
        )
        told = Told(shape)
        told.page(0, 1, 2, 9)
        window = window_of(told)
        waiting = scalar(signals(window), "requests_waiting")
        assert (waiting.value, waiting.quality) == (9, Quality.OK)
        row = scalar(rank_signals(window)[0].signals, "requests_waiting")
        assert (row.value, row.quality) == (None, Quality.UNKNOWN)

    def test_a_counter_that_one_rank_has_not_begun_is_whole_without_it(self) -> None:
        shape = columns(
            value("requests_running", rank="0"),
            value("requests_running", rank="1"),
            value("preemptions", rank="1"),
            ranks=two_ranks(),
        )
        told = Told(shape)
        told.page(0, 1, 1, 5)
        told.page(1, 1, 1, 7)
        preemptions = scalar(signals(window_of(told)), "preemptions")
        assert (preemptions.value, preemptions.quality) == (2, Quality.OK)

    def test_a_gauge_that_one_rank_lacks_is_part_of_the_truth(self) -> None:
        shape = columns(
            value("kv_usage_ratio", "a", "0"), value("kv_usage_ratio", "b", "1"), ranks=two_ranks()
        )
        told = Told(shape)
        told.page(0, 0.4, NAN)
        kv = scalar(signals(window_of(told)), "kv_usage_ratio")
        assert (kv.value, kv.mean, kv.quality) == (0.4, 0.4, Quality.ESTIMATED)
        assert "1 of 2" in kv.note

    def test_a_rank_that_has_gone_still_counts_in_the_window_but_has_no_row(self) -> None:
        both = columns(
            value("generation_tokens", rank="0"), value("generation_tokens", rank="1"), ranks=two_ranks()
        )
        one = columns(value("generation_tokens", rank="0"), ranks={"0": {"engine": "0"}})
        told = Told(both)
        told.page(0, 0, 0)
        told.page(1, 10, 40)
        told.page(2, 15, shape=one)
        window = window_of(told)
        assert window.total.increase("generation_tokens") == 55
        assert len(window.ranks) == 1


def replica(seconds: float, tokens: float, *, kv: float, hits: float, queries: float) -> WindowFacts:
    shape = columns(
        *(value(m) for m in ("generation_tokens", "kv_usage_ratio", "prefix_hits", "prefix_queries"))
    )
    told = Told(shape)
    told.page(0, 0, kv, 0, 0)
    told.page(seconds, tokens, kv, hits, queries)
    return window_of(told)


class TestFleet:
    def test_rates_are_taken_over_each_replicas_own_seconds(self) -> None:
        fleet = signals(
            merge_facts(
                [
                    replica(10, 1000, kv=0.2, hits=10, queries=100),
                    replica(40, 1000, kv=0.8, hits=90, queries=100),
                ]
            )
        )
        assert scalar(fleet, "generation_tokens_per_second").value == 100 + 25
        assert scalar(fleet, "prefix_hit_ratio").value == 0.5
        kv = scalar(fleet, "kv_usage_ratio")
        assert (kv.value, kv.mean, kv.worst) == (0.8, 0.5, None)

    def test_kv_counts_every_rank_once_and_names_the_worst(self) -> None:
        single = replica(10, 1, kv=0.2, hits=0, queries=0)
        kv = scalar(signals(merge_facts([single, ranked()], ["a1", "b1"])), "kv_usage_ratio")
        assert kv.mean == pytest.approx((0.2 + 0.5 + 0.9) / 3)
        assert kv.worst == {"replica": "b1", "engine": "1"}

    def test_an_engine_that_cannot_tell_leaves_the_value_good_and_is_named(self) -> None:
        told = Told(columns(value("generation_tokens")))
        told.page(0, 0)
        told.page(10, 50)
        fleet = signals(merge_facts([replica(10, 100, kv=0.2, hits=1, queries=4), window_of(told)]))
        kv = scalar(fleet, "kv_usage_ratio")
        assert (kv.value, kv.quality, kv.note) == (0.2, Quality.OK, "from 1 of 2 engines")
        assert scalar(fleet, "generation_tokens_per_second").value == 15

    def test_a_replica_with_one_page_makes_the_sum_an_estimate(self) -> None:
        told = Told(columns(value("generation_tokens")))
        told.page(0, 1_000_000)
        fleet = signals(merge_facts([replica(10, 100, kv=0.2, hits=1, queries=4), window_of(told)]))
        rate = scalar(fleet, "generation_tokens_per_second")
        assert (rate.value, rate.quality) == (10, Quality.ESTIMATED)

    def test_a_ratio_takes_both_its_counters_from_the_same_engines(self) -> None:
        """One engine that counts queries without hits must not thin out the other's ratio."""
        told = Told(columns(value("prefix_queries")))
        told.page(0, 0)
        told.page(10, 900)
        fleet = signals(merge_facts([replica(10, 100, kv=0.2, hits=50, queries=100), window_of(told)]))
        assert scalar(fleet, "prefix_hit_ratio").value == 0.5

    def test_no_replica_gives_nothing_but_the_names(self) -> None:
        fleet = signals(merge_facts([]))
        assert all(scalar(fleet, name).value is None for name in ("requests_running", "kv_usage_ratio"))
        assert distribution(fleet, "ttft_seconds").count is None

    def test_one_replica_is_the_fleet(self) -> None:
        only = replica(10, 100, kv=0.2, hits=1, queries=4)
        assert dict(signals(merge_facts([only]))) == dict(signals(only))

    def test_the_gravest_reason_explains_a_null(self) -> None:
        def without(quality: Quality) -> Facts:
            told = Told(columns(absent={"preemptions": Absence(quality, quality.value)}))
            told.page(0)
            return window_of(told).total

        parts = [without(Quality.UNSUPPORTED), without(Quality.UNKNOWN)]
        windows = [WindowFacts(0, 0, facts, ()) for facts in parts]
        found = scalar(signals(merge_facts(windows)), "preemptions")
        assert (found.value, found.quality, found.note) == (None, Quality.UNKNOWN, "unknown")
