"""Signals of one replica from its pages."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from enginetop.fleet.derive import no_signals, signals
from enginetop.fleet.model import Quality
from enginetop.fleet.reading import Absence, Columns
from enginetop.fleet.signals import DISTRIBUTIONS, SIGNALS
from enginetop.fleet.snapshot import Distribution, Quantile, Scalar, Signals
from tests.support.history_pages import INF, NAN, Told, columns, histogram, value


def told_signals(shape: Columns, *pages: tuple[float, ...], seconds: float = 10.0) -> Signals:
    told = Told(shape)
    for i, page in enumerate(pages):
        told.page(i * seconds, *page)
    window = told.history.window(600)
    assert window is not None
    return signals(window)


def scalar(found: Signals, name: str) -> Scalar:
    one = found[name]
    assert isinstance(one, Scalar)
    return one


def distribution(found: Signals, name: str) -> Distribution:
    one = found[name]
    assert isinstance(one, Distribution)
    return one


def facts_of(one: Scalar) -> tuple[object, Quality]:
    return one.value, one.quality


def test_every_name_of_the_catalogue_in_its_order() -> None:
    assert list(told_signals(columns(), ())) == list(SIGNALS)
    assert list(no_signals()) == list(SIGNALS)


def test_units_are_those_of_the_catalogue() -> None:
    for found in (told_signals(columns(), ()), no_signals()):
        assert {name: one.unit for name, one in found.items()} == {s.name: s.unit for s in SIGNALS.values()}


class TestGauges:
    SHAPE = columns(value("requests_running"), value("requests_waiting", "a"), value("requests_waiting", "b"))

    def test_the_last_page_counts_also_when_it_is_the_first(self) -> None:
        found = told_signals(self.SHAPE, (3, 4, 5))
        assert facts_of(scalar(found, "requests_running")) == (3, Quality.OK)
        assert facts_of(scalar(found, "requests_waiting")) == (9, Quality.OK)

    def test_zero_is_a_value(self) -> None:
        assert facts_of(scalar(told_signals(self.SHAPE, (0, 0, 0)), "requests_running")) == (0, Quality.OK)

    @pytest.mark.parametrize("broken", [NAN, INF, -INF, 1e308])
    def test_no_number_on_the_last_page_is_null_not_the_older_value(self, broken: float) -> None:
        found = told_signals(self.SHAPE, (3, 4, 5), (broken, 4, broken))
        assert facts_of(scalar(found, "requests_running")) == (None, Quality.UNKNOWN)
        assert facts_of(scalar(found, "requests_waiting")) == (None, Quality.UNKNOWN)


class TestRates:
    SHAPE = columns(
        value("preemptions"),
        value("prompt_tokens_processed"),
        value("generation_tokens"),
        value("requests_finished", "stop"),
        value("requests_finished", "abort"),
        value("requests_aborted"),
    )

    def test_increase_over_seconds(self) -> None:
        found = told_signals(self.SHAPE, (4, 100, 50, 7, 1, 1), (10, 1100, 350, 9, 4, 4))
        assert scalar(found, "preemptions").value == 6
        assert scalar(found, "preemptions_per_second").value == pytest.approx(0.6)
        assert scalar(found, "prompt_tokens_per_second").value == 100
        assert scalar(found, "generation_tokens_per_second").value == 30
        assert scalar(found, "requests_finished_per_second").value == pytest.approx(0.5)
        assert scalar(found, "requests_aborted_per_second").value == pytest.approx(0.3)

    def test_one_page_is_not_enough(self) -> None:
        found = told_signals(self.SHAPE, (4, 100, 50, 7, 1, 1))
        for name in ("preemptions", "generation_tokens_per_second", "requests_finished_per_second"):
            assert facts_of(scalar(found, name)) == (None, Quality.UNKNOWN)
            assert scalar(found, name).note == "needs two samples"

    def test_nothing_happened_is_zero(self) -> None:
        found = told_signals(self.SHAPE, *[(4, 100, 50, 7, 1, 1)] * 2)
        assert facts_of(scalar(found, "preemptions")) == (0, Quality.OK)

    def test_a_counter_that_never_held_a_number(self) -> None:
        found = told_signals(self.SHAPE, *[(4, 100, NAN, 7, 1, 1)] * 2)
        assert facts_of(scalar(found, "generation_tokens_per_second")) == (None, Quality.UNKNOWN)

    @pytest.mark.parametrize("broken", [NAN, INF, -INF, 1e308])
    def test_no_number_on_the_last_page_is_not_a_standstill(self, broken: float) -> None:
        found = told_signals(self.SHAPE, (4, 100, 5, 7, 1, 1), (4, 100, broken, 7, 1, 1))
        assert facts_of(scalar(found, "generation_tokens_per_second")) == (None, Quality.UNKNOWN)

    def test_flipping_is_suspect_and_null(self) -> None:
        pages = [(n, 0, 0, 0, 0, 0) for n in (1000, 50, 1000, 50, 1000)]
        found = told_signals(self.SHAPE, *pages)
        assert facts_of(scalar(found, "preemptions")) == (None, Quality.SUSPECT)
        assert facts_of(scalar(found, "preemptions_per_second")) == (None, Quality.SUSPECT)

    def test_why_a_measure_is_absent(self) -> None:
        shape = columns(absent={"preemptions": Absence(Quality.UNKNOWN, "not preempted yet")})
        found = told_signals(shape, (), ())
        assert facts_of(scalar(found, "preemptions")) == (None, Quality.UNKNOWN)
        assert scalar(found, "preemptions").note == "not preempted yet"
        assert facts_of(scalar(found, "generation_tokens_per_second")) == (None, Quality.UNSUPPORTED)

    def test_a_measure_that_was_there_before_is_not_called_unsupported(self) -> None:
        told = Told(self.SHAPE)
        told.page(0, 1, 1, 1, 1, 1, 1)
        by_table = {"generation_tokens": Absence(Quality.UNSUPPORTED, "not in this version")}
        told.page(1, 2, shape=columns(value("preemptions"), absent=by_table))
        window = told.history.window(600)
        assert window is not None
        rate = scalar(signals(window), "generation_tokens_per_second")
        assert (*facts_of(rate), rate.note) == (None, Quality.UNKNOWN, "not on the last page")

    def test_estimates_say_so(self) -> None:
        shape = columns(value("generation_tokens"), estimated={"generation_tokens": "from /slots"})
        rate = scalar(told_signals(shape, (0,), (50,)), "generation_tokens_per_second")
        assert (rate.value, rate.quality, rate.note) == (5, Quality.ESTIMATED, "from /slots")


class TestRatios:
    SHAPE = columns(value("prefix_queries"), value("prefix_hits"))

    def test_only_the_window_counts(self) -> None:
        """48 021 queries and 31 744 hits more are 66.1 %, whatever the lifetime figures say."""
        found = told_signals(self.SHAPE, (1_000_000, 990_000), (1_048_021, 1_021_744))
        assert scalar(found, "prefix_hit_ratio").value == pytest.approx(0.661, abs=0.0005)

    def test_no_queries_is_null(self) -> None:
        ratio = scalar(told_signals(self.SHAPE, (1000, 900), (1000, 900)), "prefix_hit_ratio")
        assert (ratio.value, ratio.quality, ratio.note) == (None, Quality.UNKNOWN, "no queries in the window")

    def test_queries_without_hits_are_zero(self) -> None:
        assert scalar(told_signals(self.SHAPE, (0, 0), (100, 0)), "prefix_hit_ratio").value == 0

    def test_suspect_if_either_counter_is(self) -> None:
        pages = [(1000 + i, n) for i, n in enumerate((900, 50, 900, 50, 900))]
        assert facts_of(scalar(told_signals(self.SHAPE, *pages), "prefix_hit_ratio")) == (
            None,
            Quality.SUSPECT,
        )

    def test_more_hits_than_queries_are_suspect(self) -> None:
        ratio = scalar(told_signals(self.SHAPE, (0, 0), (100, 320)), "prefix_hit_ratio")
        assert (ratio.value, ratio.quality, ratio.note) == (3.2, Quality.SUSPECT, "not between 0 and 1")

    @pytest.mark.parametrize(
        ("usage", "quality"),
        [
            (1.0, Quality.OK),
            (1.02, Quality.OK),  # full, by numbers that are not of one instant
            (62.0, Quality.SUSPECT),  # a percentage
            (-1.0, Quality.SUSPECT),
        ],
    )
    def test_a_kv_usage_that_cannot_be_is_suspect(self, usage: float, quality: Quality) -> None:
        found = scalar(told_signals(columns(value("kv_usage_ratio")), (usage,)), "kv_usage_ratio")
        assert (found.value, found.quality) == (usage, quality)

    def test_unsupported_without_its_counters(self) -> None:
        found = told_signals(columns(), (), ())
        assert facts_of(scalar(found, "external_prefix_hit_ratio")) == (None, Quality.UNSUPPORTED)


class TestSpeculation:
    SHAPE = columns(
        value("spec_drafts"),
        value("spec_draft_tokens"),
        value("spec_accepted_tokens"),
        *(value("spec_accepted_at_position", position=p) for p in (2, 0, 3, 1)),  # the page's order is free
    )

    def test_acceptance_length_and_positions(self) -> None:
        """1000 drafts of 4: .844 .599 .385 .271 by position, 2.099 accepted a draft, 52.475 % in all."""
        found = told_signals(self.SHAPE, (0, 0, 0, 0, 0, 0, 0), (1000, 4000, 2099, 385, 844, 271, 599))
        assert scalar(found, "spec_acceptance_ratio").value == pytest.approx(0.52475)
        assert scalar(found, "spec_accepted_length").value == pytest.approx(3.099)
        assert scalar(found, "spec_acceptance_per_position").value == (0.844, 0.599, 0.385, 0.271)

    @pytest.mark.parametrize(
        ("accepted", "note"),  # in the order of the page: positions 2, 0, 3, 1
        [
            ((385, 844, 450, 599), "rises from one position to the next: a counter is wrong"),
            ((385, 1500, 271, 599), "not between 0 and 1"),
        ],
    )
    def test_shares_by_position_that_cannot_be_are_suspect(
        self, accepted: tuple[float, ...], note: str
    ) -> None:
        """A draft token is accepted only where the one before it was."""
        found = told_signals(self.SHAPE, (0, 0, 0, 0, 0, 0, 0), (1000, 4000, 2099, *accepted))
        shares = scalar(found, "spec_acceptance_per_position")
        assert (shares.quality, shares.note) == (Quality.SUSPECT, note)

    def test_before_the_first_draft_all_are_null(self) -> None:
        found = told_signals(self.SHAPE, *[(7, 28, 14, 5, 4, 3, 2)] * 2)
        for name in ("spec_acceptance_ratio", "spec_accepted_length", "spec_acceptance_per_position"):
            assert facts_of(scalar(found, name)) == (None, Quality.UNKNOWN)
            assert scalar(found, name).note == "no drafts in the window"

    def test_a_position_label_of_any_size_costs_nothing(self) -> None:
        shape = columns(value("spec_drafts"), value("spec_accepted_at_position", position=10**12))
        found = told_signals(shape, (0, 0), (10, 5))
        assert scalar(found, "spec_acceptance_per_position").value == (0.5,)


class TestDistributions:
    SHAPE = columns(*histogram("ttft_seconds", (0.25, 0.5, 1.0, INF)))

    def test_count_sum_mean_and_quantiles_of_the_window(self) -> None:
        ttft = distribution(
            told_signals(self.SHAPE, (100, 200, 300, 400, 900.0, 400), (110, 250, 390, 500, 955.0, 500)),
            "ttft_seconds",
        )  # 10 up to .25, 40 up to .5, 40 up to 1, 10 above
        assert (ttft.count, ttft.sum, ttft.mean.value, ttft.quality) == (100, 55.0, 0.55, Quality.OK)
        assert ttft.quantiles["p50"] == Quantile(0.5, 0.25, 0.5)
        assert ttft.quantiles["p90"] == Quantile(1.0, 0.5, 1.0)
        assert ttft.quantiles["p95"] == Quantile(None, 1.0, None, censored=True)
        assert list(ttft.quantiles) == ["p50", "p90", "p95", "p99"]

    def test_buckets_in_any_order_of_lines(self) -> None:
        shape = columns(*histogram("ttft_seconds", (INF, 1.0, 0.25, 0.5)))
        ttft = distribution(told_signals(shape, (0,) * 6, (100, 90, 10, 50, 55.0, 100)), "ttft_seconds")
        assert ttft.quantiles["p50"] == Quantile(0.5, 0.25, 0.5)

    def test_no_observation(self) -> None:
        ttft = distribution(told_signals(self.SHAPE, *[(1, 2, 3, 4, 5.0, 4)] * 2), "ttft_seconds")
        assert (ttft.count, ttft.mean.value, ttft.quantiles["p99"]) == (0, None, Quantile())
        assert ttft.quality is Quality.OK

    def test_one_page(self) -> None:
        ttft = distribution(told_signals(self.SHAPE, (1, 2, 3, 4, 5.0, 4)), "ttft_seconds")
        assert (ttft.count, ttft.quality, ttft.note) == (None, Quality.UNKNOWN, "needs two samples")

    def test_not_exported(self) -> None:
        found = told_signals(columns(), (), ())
        for signal in DISTRIBUTIONS:
            one = distribution(found, signal.name)
            assert (one.count, one.sum, one.quantiles["p50"].value) == (None, None, None)
        assert distribution(found, "itl_seconds").quality is Quality.UNSUPPORTED

    def test_a_sum_that_falls_while_the_count_rises_has_no_mean(self) -> None:
        """A requeued session gave a queue time of -48 s; the buckets are still true."""
        queue = columns(*histogram("queue_seconds", (1.0, INF)))
        told = Told(queue)
        told.page(0, 10, 10, 5.0, 10)
        assert not told.page(10, 14, 14, -41.0, 14).restarted
        window = told.history.window(600)
        assert window is not None
        found = distribution(signals(window), "queue_seconds")
        assert (found.count, found.sum, found.mean.value, found.quality) == (4, None, None, Quality.INVALID)
        assert found.quantiles["p50"] == Quantile(0.5, 0.0, 1.0)

    @pytest.mark.parametrize("before", [8.0, NAN])
    def test_a_sum_without_a_number_gives_no_mean(self, before: float) -> None:
        queue = columns(*histogram("queue_seconds", (1.0, INF)))
        found = distribution(told_signals(queue, (3, 3, before, 3), (5, 5, NAN, 5)), "queue_seconds")
        assert (found.count, found.sum, found.mean.value) == (2, None, None)
        assert found.quantiles["p50"] == Quantile(0.5, 0.0, 1.0)

    def test_a_fall_of_the_sum_that_later_steps_cover_is_not_forgotten(self) -> None:
        pages = (10, 10, 10, 10, 5.0, 10), (14, 14, 14, 14, -41.0, 14), (20, 20, 20, 20, 60.0, 20)
        found = distribution(told_signals(self.SHAPE, *pages), "ttft_seconds")
        assert (found.mean.value, found.quality) == (None, Quality.INVALID)

    def test_rounding_of_a_sum_is_no_fall(self) -> None:
        noise = math.nextafter(12345.6789, INF)
        pages = (10, 10, 10, 10, noise, 10), (10, 10, 10, 10, 12345.6789, 10), (11, 11, 11, 11, 12346.2, 11)
        found = distribution(told_signals(self.SHAPE, *pages), "ttft_seconds")
        assert found.quality is Quality.OK
        assert found.mean.value == pytest.approx(12346.2 - noise)

    def test_bucket_counts_that_contradict_each_other(self) -> None:
        """The bucket of .5 was read before an observation, that of .25 after it."""
        found = distribution(told_signals(self.SHAPE, (0,) * 6, (6, 5, 10, 10, 4.0, 10)), "ttft_seconds")
        assert found.quality is Quality.ESTIMATED
        assert found.quantiles["p50"].high == 0.25
        assert found.quantiles["p90"].value == pytest.approx(0.5 + 0.5 * 3 / 4)

    @pytest.mark.parametrize(
        ("parts", "bounds", "page", "count"),
        [
            ("bucket sum count", (0.5, 1.0), (4, 8, 6.0, 8), 8),  # no +Inf line
            ("bucket sum", (0.5, 1.0, INF), (4, 8, 9, 6.0), 9),  # no count line
            ("bucket", (0.5, 1.0), (4, 8), 8),  # neither
            ("bucket sum count", (0.5, 1.0, INF), (4, 8, 9, 6.0, 7), 9),  # a count that lags behind
            ("bucket sum count", (0.5, 1.0, INF), (4, 8, 9, 6.0, NAN), 9),  # a count that is no number
        ],
    )
    def test_a_count_can_come_from_elsewhere(
        self, parts: str, bounds: tuple[float, ...], page: tuple[float, ...], count: float
    ) -> None:
        shape = columns(*histogram("ttft_seconds", bounds, parts=parts))
        found = distribution(told_signals(shape, tuple(0.0 for _ in page), page), "ttft_seconds")
        assert found.count == count
        assert found.quantiles["p50"].high == (0.5 if count == 8 else 1.0)

    def test_a_single_finite_bucket(self) -> None:
        shape = columns(*histogram("ttft_seconds", (1.0, INF)))
        found = distribution(told_signals(shape, (0, 0, 0, 0), (8, 10, 6.0, 10)), "ttft_seconds")
        assert found.quantiles["p50"] == Quantile(0.625, 0.0, 1.0)

    def test_without_buckets_only_the_mean_is_known(self) -> None:
        shape = columns(*histogram("output_tokens", (), parts="sum count"))
        found = distribution(told_signals(shape, (0.0, 0), (600.0, 3)), "output_tokens")
        assert (found.count, found.mean.value, found.quantiles["p50"].value) == (3, 200, None)

    def test_bounds_that_differ_by_rounding_are_one(self) -> None:
        shape = columns(
            *histogram("ttft_seconds", (0.15, INF), group="a"),
            *histogram("ttft_seconds", (0.15000000000000002, INF), group="b"),
        )
        found = distribution(told_signals(shape, (0,) * 8, (3, 4, 1.0, 4, 5, 6, 1.0, 6)), "ttft_seconds")
        assert found.quantiles["p50"] == Quantile(pytest.approx(0.15 * 5 / 8), 0.0, 0.15)  # type: ignore[arg-type]

    def test_label_sets_without_group_names_are_added(self) -> None:
        one, other = histogram("ttft_seconds", (1.0, INF)), histogram("ttft_seconds", (1.0, INF), rank="x")
        series = [*one, *(replace(line, rank="") for line in other)]
        found = distribution(
            told_signals(Columns(tuple(series)), (0,) * 8, (3, 4, 1.0, 4, 5, 6, 1.0, 6)), "ttft_seconds"
        )
        assert (found.count, found.sum) == (10, 2.0)
        assert found.quantiles["p50"].value == pytest.approx(5 / 8)

    def test_clocks_that_no_request_can_have(self) -> None:
        """All 3918 first tokens after 73 microseconds on average: a broken clock, not a fast engine."""
        shape = columns(*histogram("ttft_seconds", (0.001, 1.0, INF)))
        found = distribution(told_signals(shape, (0,) * 5, (3918, 3918, 3918, 0.286, 3918)), "ttft_seconds")
        assert (found.quality, found.mean.value, found.quantiles["p50"].value) == (
            Quality.SUSPECT,
            None,
            None,
        )

    @pytest.mark.parametrize(
        ("measure", "counter", "words"),
        [("itl_seconds", "spec_drafts", "per output event"), ("tpot_seconds", "preemptions", "preempted")],
    )
    def test_remarks_once_the_counter_has_grown(self, measure: str, counter: str, words: str) -> None:
        shape = columns(*histogram(measure, (1.0, INF)), value(counter))
        quiet = distribution(told_signals(shape, (0, 0, 0, 0, 5), (9, 9, 3.0, 9, 5)), measure)
        loud = distribution(told_signals(shape, (0, 0, 0, 0, 5), (9, 9, 3.0, 9, 6)), measure)
        assert words not in quiet.note
        assert words in loud.note
        assert loud.quality is Quality.OK


@pytest.mark.parametrize("name", ["power_watts", "energy_joules_per_token"])
def test_what_no_page_tells_is_unknown(name: str) -> None:
    one = told_signals(columns(), ())[name]
    assert (one.quality, one.note) == (Quality.UNKNOWN, "told for the whole replica only")


@pytest.mark.parametrize(
    ("reasoning", "output", "share", "quality"),
    [
        ((4, 900.0, 4), (4, 1200.0, 4), 0.75, Quality.OK),
        ((4, 900.0, 4), (8, 1200.0, 8), 0.75, Quality.ESTIMATED),  # other requests
        ((4, 0.0, 4), (4, 1200.0, 4), 0.0, Quality.OK),
        ((4, 900.0, 4), (4, 800.0, 4), None, Quality.SUSPECT),
        ((0, 0.0, 0), (4, 800.0, 4), None, Quality.UNKNOWN),
    ],
)
def test_the_share_of_reasoning_is_of_two_sums(
    reasoning: tuple[float, ...], output: tuple[float, ...], share: float | None, quality: Quality
) -> None:
    shape = columns(*histogram("reasoning_tokens", (INF,)), *histogram("output_tokens", (INF,)))
    found = told_signals(shape, (0,) * 6, (*reasoning, *output))["reasoning_share_ratio"]
    assert isinstance(found, Scalar)
    assert (found.value, found.quality) == (share, quality)


def test_reasoning_tokens_name_their_source() -> None:
    shape = columns(*histogram("reasoning_tokens", (256.0, 512.0, INF)))
    found = distribution(told_signals(shape, (0, 0, 0, 0, 0), (10, 20, 20, 5000, 20)), "reasoning_tokens")
    # 20 requests; the median is the upper end of the first bucket, p95 the 19th: 256 + 256 x 9/10
    assert (found.count, found.mean.value, found.quality) == (20, 250.0, Quality.OK)
    assert found.quantiles["p50"].value == 256.0
    assert found.quantiles["p95"].value == pytest.approx(486.4)
    assert found.note == "exact counts of single requests: enginetop_reasoning_tokens"


def test_no_signals_carries_its_reason() -> None:
    found = no_signals(Quality.UNKNOWN, "no good page yet")
    assert {one.note for one in found.values()} == {"no good page yet"}
    assert scalar(found, "requests_running").value is None
    assert distribution(found, "ttft_seconds").count is None
