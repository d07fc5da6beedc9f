"""Steps of raw series: resets, first sights, missing values, restarts and flips."""

from __future__ import annotations

import math
from itertools import pairwise
from operator import itemgetter
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enginetop.fleet.increase import SeriesTotals
from enginetop.fleet.model import Quality
from enginetop.fleet.reached import Reached
from enginetop.fleet.reading import Reading
from tests.support.history_pages import INF, NAN, Told, columns, histogram, value

TOKENS = columns(value("generation_tokens"))
FINISHED = columns(value("requests_finished", "stop"), value("requests_finished", "length"))
TTFT = columns(*histogram("ttft_seconds", (0.5, 1.0, INF)))


def test_a_rise_is_its_difference_and_the_first_page_adds_nothing() -> None:
    told = Told(TOKENS)
    told.page(0, 1_000_000)
    assert told.increase("generation_tokens") is None
    told.page(10, 1_000_250)
    assert told.increase("generation_tokens") == 250


def test_a_fall_adds_the_new_value_and_says_restarted_once() -> None:
    told = Told(TOKENS)
    restarts = [told.page(at, n).restarted for at, n in enumerate((900, 1000, 40, 60))]
    assert told.increase("generation_tokens") == 100 + 40 + 20
    assert [bool(text) for text in restarts] == [False, False, True, False]


def test_a_fall_resets_its_own_series_only() -> None:
    told = Told(FINISHED)
    told.page(0, 100, 50)
    told.page(1, 10, 53)  # 10 + 3
    assert told.increase("requests_finished") == 13


def test_a_restart_that_climbs_past_the_old_value_shows_in_the_start_token() -> None:
    told = Told(FINISHED)
    told.page(0, 100, 50, token=1.0)
    assert told.page(1, 130, 20, token=2.0).restarted
    assert told.increase("requests_finished") == 130 + 20


def test_a_changed_birth_resets_its_group_only_even_without_a_fall() -> None:
    shape = columns(value("requests_finished", "stop"), value("generation_tokens"), births=((0,), (1,)))
    told = Told(shape)
    told.page(0, 100, 1000, births=(5.0, 5.0))
    told.page(1, 130, 1100, births=(7.0, 5.0))
    assert told.increase("requests_finished") == 130
    assert told.increase("generation_tokens") == 100
    told.page(2, 140, 1200, births=(7.0, 5.0))
    assert told.increase("requests_finished") == 140


def test_a_restart_that_shows_in_token_and_birth_counts_once() -> None:
    told = Told(columns(value("generation_tokens"), births=((0,),)))
    for at, (tokens, since) in enumerate(((0, 1.0), (7, 2.0), (9, 2.0))):
        told.page(at, tokens, token=since, births=(since,))
    assert told.increase("generation_tokens") == 7 + 2


def test_a_birth_that_is_missing_or_comes_late_resets_nothing() -> None:
    shape = columns(value("generation_tokens"), births=((0,),))
    told = Told(shape)
    for at, (tokens, birth) in enumerate(((100, NAN), (110, 5.0), (120, NAN), (130, 5.0))):
        assert not told.page(at, tokens, births=(birth,)).restarted
    assert told.increase("generation_tokens") == 30


def test_a_birth_keeps_its_series_across_layouts() -> None:
    told = Told(columns(value("generation_tokens"), births=((0,),)))
    told.page(0, 100, births=(5.0,))
    other = columns(value("preemptions"), value("generation_tokens"), births=((0,), (1,)))
    told.page(1, 0, 130, births=(6.0, 9.0), shape=other)
    assert told.increase("generation_tokens") == 130


@pytest.mark.parametrize("missing", [NAN, INF, -INF, 1e300])
def test_a_page_without_a_usable_number_keeps_the_last_one_as_the_start(missing: float) -> None:
    told = Told(TOKENS)
    for at, tokens in enumerate((100, missing, 130)):
        told.page(at, tokens)
    assert told.increase("generation_tokens") == 30


def test_a_line_that_is_missing_on_a_page_keeps_the_last_value_too() -> None:
    told = Told(FINISHED)
    told.page(0, 100, 50)
    told.page(1, 104, shape=columns(value("requests_finished", "stop")))
    told.page(2, 110, 57)
    assert told.increase("requests_finished") == 10 + 7


def test_a_series_that_appears_later_starts_from_zero() -> None:
    told = Told(columns(value("requests_finished", "stop")))
    told.page(0, 100)
    told.page(1, 101, 3, shape=FINISHED)
    told.page(2, 101, 5, shape=FINISHED)
    assert told.increase("requests_finished") == 1 + 5


def test_a_page_of_gauges_alone_lacked_the_counters_that_follow() -> None:
    gauges = columns(value("requests_running"))
    told = Told(columns(value("requests_running"), value("generation_tokens")))
    told.page(0, 1, shape=gauges)
    told.page(1, 1, 150)
    assert told.increase("generation_tokens") == 150


def test_a_counter_without_a_number_on_the_first_page_has_nothing_to_count_from() -> None:
    told = Told(FINISHED)
    told.page(0, 100, NAN)
    told.page(1, 101, 5000)
    told.page(2, 101, 5002)
    assert told.increase("requests_finished") is None  # of one of its two lines nobody knows the start


def test_a_reading_without_any_series_is_not_a_page_that_lacked_them() -> None:
    told = Told(TOKENS)
    told.page(0, shape=columns())
    told.page(1, NAN)
    told.page(2, 1_000_000)
    told.page(3, 1_000_010)
    assert told.increase("generation_tokens") == 10


def test_series_missing_while_the_process_restarts_start_from_zero_afterwards() -> None:
    told = Told(FINISHED)
    told.page(0, 100, 50, token=1.0)
    told.page(1, 3, NAN, token=2.0)
    told.page(2, 4, 60, token=2.0)
    assert told.increase("requests_finished") == 4 + 60


def test_a_start_token_that_is_missing_for_a_page_is_no_restart() -> None:
    told = Told(TOKENS)
    for at, (tokens, token) in enumerate(((100, 1.0), (110, None), (120, 1.0))):
        assert not told.page(at, tokens, token=token).restarted
    assert told.increase("generation_tokens") == 20


def test_negative_counters_never_make_a_negative_increase() -> None:
    told = Told(TOKENS)
    for at, tokens in enumerate((5, -7, -9, -2)):
        told.page(at, tokens)
    assert told.increase("generation_tokens") == 7  # only -9 to -2 is a rise


class TestHistograms:
    """A label set restarts as one: by its count or any bucket, never by its sum."""

    @staticmethod
    def after(*pages: tuple[float, ...]) -> tuple[tuple[float, ...], float | None, float]:
        told = Told(TTFT)
        for at, page in enumerate(pages):
            told.page(at, *page)
        window = told.history.window(600)
        assert window is not None
        increase = window.total.histograms["ttft_seconds"]
        return increase.cumulative, increase.sum, increase.count

    def test_differences(self) -> None:
        #          le .5  le 1  inf   sum  count
        assert self.after((10, 20, 30, 24.0, 30), (11, 23, 34, 27.5, 34)) == ((1, 3), 3.5, 4)

    def test_a_lower_count_resets_buckets_and_sum_that_climbed(self) -> None:
        assert self.after((1, 20, 30, 24.0, 30), (5, 25, 28, 40.0, 28)) == ((5, 25), 40.0, 28)

    def test_a_lower_bucket_resets_although_the_count_climbed(self) -> None:
        assert self.after((10, 20, 30, 24.0, 30), (5, 25, 40, 30.0, 40)) == ((5, 25), 30.0, 40)

    def test_a_lower_sum_alone_is_no_reset(self) -> None:
        assert self.after((10, 20, 30, 24.0, 30), (11, 22, 33, 4.0, 33)) == ((1, 2), -20.0, 3)

    def test_another_label_set_is_not_touched(self) -> None:
        shape = columns(
            *histogram("ttft_seconds", (1.0, INF), group="priority 0"),
            *histogram("ttft_seconds", (1.0, INF), group="priority 1"),
        )
        told = Told(shape)
        told.page(0, 10, 12, 8.0, 12, 100, 110, 50.0, 110)
        told.page(1, 2, 3, 1.5, 3, 101, 112, 51.0, 112)  # the first set restarts: 3 + 2 observations
        window = told.history.window(600)
        assert window is not None
        merged = window.total.histograms["ttft_seconds"]
        assert (merged.cumulative, merged.sum, merged.count) == ((3,), 2.5, 5)

    def test_a_bucket_missing_while_its_set_restarts_starts_from_zero(self) -> None:
        pages = (10, 20, 30, 24.0, 30), (2, NAN, 5, 4.0, 5), (3, 6, 7, 5.0, 7)
        assert self.after(*pages) == ((3, 6), 5.0, 7)


class TestFlips:
    """Several API servers behind one address: each page is one of theirs."""

    @staticmethod
    def quality(told: Told, measure: str = "generation_tokens") -> Quality | None:
        window = told.history.window(600)
        assert window is not None
        gap = window.total.gaps.get(measure)
        return None if gap is None else gap.quality

    @pytest.mark.parametrize(
        "tokens",
        [
            (1000, 50, 1000, 50, 1000),
            (1000, 50, 1010, 60, 1020),
            (1000, 990, 1004, 995, 1009),
            (1000, 50, 55, 60, 1100, 65, 1150),
        ],
    )
    def test_suspect_from_the_second_fall_and_return(self, tokens: tuple[float, ...]) -> None:
        told = Told(TOKENS)
        restarts = 0
        for at, number in enumerate(tokens):
            if at > 0:
                assert self.quality(told) in (None, Quality.UNKNOWN)  # unknown: one page only
            restarts += bool(told.page(at, number).restarted)
        assert self.quality(told) is Quality.SUSPECT
        assert told.increase("generation_tokens") is None
        assert restarts == 1

    def test_start_tokens_and_whole_pages_that_flip(self) -> None:
        shape = columns(value("generation_tokens"), *histogram("ttft_seconds", (1.0, INF)))
        told = Told(shape)
        restarts = 0
        for at in range(8):
            one, grown = at % 2 == 0, 5.0 * at
            page = (1000, 80, 90, 60.0, 90) if one else (50, 3, 4, 3.0, 4)
            restarts += bool(told.page(at, *(n + grown for n in page), token=1.0 if one else 2.0).restarted)
        assert self.quality(told) is Quality.SUSPECT
        assert self.quality(told, "ttft_seconds") is Quality.SUSPECT
        assert restarts == 1

    def test_a_start_token_that_was_there_before_is_no_restart(self) -> None:
        """The page of the younger process comes second, and its counter is the higher one."""
        told = Told(TOKENS)
        pages = ((50, 1.0), (1000, 2.0), (60, 1.0), (1010, 2.0))
        restarts = [bool(told.page(at, n, token=token).restarted) for at, (n, token) in enumerate(pages)]
        assert restarts == [False, True, False, False]

    def test_counters_that_fall_on_opposite_pages_give_one_restart_too(self) -> None:
        shape = columns(value("generation_tokens"), value("requests_finished"))
        told = Told(shape)
        pages = [(1000, 5), (50, 80)] * 4
        assert sum(bool(told.page(at, *page).restarted) for at, page in enumerate(pages)) == 1
        assert self.quality(told, "requests_finished") is Quality.SUSPECT

    def test_a_steady_counter_beside_it_stays_good(self) -> None:
        shape = columns(value("generation_tokens"), value("preemptions"))
        told = Told(shape)
        for at in range(6):
            told.page(at, 1000 if at % 2 else 50, 7)
        assert told.increase("preemptions") == 0

    def test_it_is_good_again_once_the_flips_have_left_the_window(self) -> None:
        told = Told(TOKENS)
        for at, tokens in enumerate((1000, 50, 1000, 50, 1000, 1010, 1020)):
            told.page(at, tokens)
        assert told.increase("generation_tokens", seconds=2) == 20

    def test_restarts_that_count_up_again_are_no_flips(self) -> None:
        told = Told(TOKENS)
        tokens = (100, 0, 40, 80, 120, 0, 40, 80, 120)
        assert sum(bool(told.page(at, n).restarted) for at, n in enumerate(tokens)) == 2
        assert told.increase("generation_tokens") == 120 + 120

    def test_restarts_under_new_start_tokens_are_no_flips_however_fast_they_climb(self) -> None:
        told = Told(TOKENS)
        pages = ((100, 1.0), (5, 2.0), (110, 2.0), (5, 3.0), (120, 3.0), (4, 4.0), (130, 4.0))
        assert sum(bool(told.page(at, n, token=token).restarted) for at, (n, token) in enumerate(pages)) == 3
        assert told.increase("generation_tokens") == 110 + 120 + 130


class TestRestartWord:
    """Under one start token a single series that begins anew is its own affair."""

    SHAPE = columns(*(value("requests_finished", reason) for reason in "abc"), value("generation_tokens"))

    def test_one_series_of_several(self) -> None:
        told = Told(self.SHAPE)
        told.page(0, 10, 10, 10, 500, token=1.0)
        assert not told.page(1, 0, 11, 11, 510, token=1.0).restarted

    def test_all_of_them(self) -> None:
        told = Told(self.SHAPE)
        told.page(0, 10, 10, 10, 500, token=1.0)
        assert told.page(1, 0, 0, 0, 0, token=1.0).restarted

    def test_one_series_where_the_page_has_no_start_token(self) -> None:
        told = Told(self.SHAPE)
        told.page(0, 10, 10, 10, 500)
        assert told.page(1, 0, 11, 11, 510).restarted


LOADED = columns(value("requests_running"), *FINISHED.series, *TTFT.series)
ODD = st.sampled_from([NAN, INF, -INF, 1e250])
NUMBERS = st.integers(0, 9).map(float) | st.floats(0.0, 5.0) | ODD


def pages(*values: tuple[float, ...]) -> list[Reading]:
    return [Reading(float(at), LOADED, list(one)) for at, one in enumerate(values)]


def test_pages_that_only_count_on_are_taken_as_a_whole() -> None:
    """Series by series costs five times as much; gauges may fall, and be no number."""
    counted_on = pages(
        (3, 1, 2, *(1, 2, 3, 4.5, 3)), (1, 1, 4, *(1, 2, 3, 4.5, 3)), (NAN, 2, 4, *(2, 3, 4, 6.0, 4))
    )
    totals = SeriesTotals(60.0)
    with patch.object(SeriesTotals, "_step", autospec=True, side_effect=SeriesTotals._step) as step:
        steps = [totals.advance(reading) for reading in counted_on]
        assert step.call_count == 1  # the first page
        totals.advance(pages((1, 2, 3, *(2, 3, 4, 6.0, 4)))[0])  # a counter fell
        assert step.call_count == 2
    assert list(steps[2].reached.totals)[1:] == [1, 2, *(1, 1, 1, 1.5, 1)]


def test_pages_on_which_only_gauges_move_share_their_totals() -> None:
    totals = SeriesTotals(60.0)
    steps = [
        totals.advance(reading)
        for reading in pages((3, 1, 2, *(1, 2, 3, 4.5, 3)), (5, 1, 2, *(1, 2, 3, 4.5, 3)))
    ]
    assert steps[1].reached is steps[0].reached
    assert steps[1].page[0] == 5


@pytest.mark.parametrize("odd", [NAN, INF, 1e300])
@pytest.mark.parametrize("place", range(2))
def test_a_number_that_cannot_be_counted_with_is_passed_over_among_others_that_count_on(
    odd: float, place: int
) -> None:
    told = Told(FINISHED)
    for at, pair in enumerate(((1, 10), (2, 20), (3, 30))):
        told.page(at, *pair)
    told.page(3, *((odd, 40) if place == 0 else (4, odd)))
    told.page(4, 5, 50)
    assert told.increase("requests_finished") == 4 + 40
    assert list(told.history.counted[1].totals) == [4, 40]


def test_windows_over_pages_that_only_counted_on_add_up_no_totals() -> None:
    told = Told(LOADED)
    for at in range(8):
        told.page(at, 3, at, at, *(at, at, at, 1.5 * at, at))
    window = told.history.window(5.0)
    assert window is not None
    assert window.total.increase("requests_finished") == 10.0
    assert window.total.histograms["ttft_seconds"].count == 5.0
    assert all(reached._known is None for reached in told.history._samples._reached)
    counted = told.history.counted[1]
    assert [counted[slot] for slot in range(1, 8)] == [7, 7, *(7, 7, 7, 10.5, 7)]
    assert list(counted.picked(itemgetter(2, 6))) == [7, 10.5]
    assert told.history.totals["requests_finished"] == 14
    assert counted._known is None, "of the other series nothing was added up"
    assert list(counted.totals)[1:] == [7, 7, *(7, 7, 7, 10.5, 7)]
    told.page(8, 3, 8, 8, *(8, 8, 8, 12.0, 8))
    assert all(
        reached._known is None for reached in told.history._samples._reached
    )  # kept for the newest alone


@given(st.lists(st.lists(st.tuples(NUMBERS, st.booleans()), min_size=8, max_size=8), min_size=2, max_size=8))
@settings(max_examples=60, deadline=None)
def test_taken_as_a_whole_or_series_by_series_a_page_is_the_same_step(
    moves: list[list[tuple[float, bool]]],
) -> None:
    now, rows = [0.0] * 8, []
    for row in moves:  # most numbers count on, as they do; some begin anew, or are none
        now = [
            n if jumps or not math.isfinite(n) else (o if o == o else 0.0) + n
            for (n, jumps), o in zip(row, now, strict=True)
        ]
        rows.append(tuple(now))
    whole, each = SeriesTotals(60.0), SeriesTotals(60.0)
    reached: list[tuple[Reached, Reached]] = []
    for reading in pages(*rows):
        one = whole.advance(reading)
        with patch.object(SeriesTotals, "_counted_on", return_value=None):
            other = each.advance(reading)
        assert one.reached.totals[1:] == pytest.approx(other.reached.totals[1:])
        assert one.returned == other.returned
        assert one.sums_fallen == other.sums_fallen
        assert one.unnumbered == other.unnumbered
        assert one.restarted == other.restarted
        assert [str(value) for value in whole.last] == [str(value) for value in each.last]
        reached.append((one.reached, other.reached))
    for (start, _), (end, _) in pairwise(reached[::2]):  # other stretches in between, or none
        gained = [later - earlier for earlier, later in zip(*end.since(start), strict=True)][1:]
        totals = [later - earlier for earlier, later in zip(start.totals, end.totals, strict=True)][1:]
        assert gained == pytest.approx(totals, rel=1e-9, abs=1e-9)
