"""Windows over a history: baseline, bounds of memory, clocks, layouts that change."""

from __future__ import annotations

import gc
import weakref

import pytest

from enginetop.fleet.facts import WindowFacts
from enginetop.fleet.history import TargetHistory
from enginetop.fleet.reading import Columns
from tests.support.history_pages import INF, Told, columns, histogram, value

TOKENS = columns(value("generation_tokens"))


def told_every(seconds: float, count: int, keep_seconds: float = 600.0) -> Told:
    """Pages from 0 on, 10 tokens each."""
    told = Told(TOKENS, keep_seconds)
    for i in range(count):
        told.page(i * seconds, 10.0 * i)
    return told


def span(window: WindowFacts | None) -> tuple[float, float]:
    assert window is not None
    return window.since, window.at


class TestBaseline:
    def test_the_newest_page_at_or_before_the_start(self) -> None:
        history = told_every(4, 20).history  # the last page is at 76
        assert span(history.window(60)) == (16, 76)
        assert span(history.window(61)) == (12, 76)

    def test_the_start_is_counted_from_the_instant_of_the_snapshot(self) -> None:
        history = told_every(4, 20).history
        assert span(history.window(60, at=79)) == (16, 76)
        assert span(history.window(60, at=80)) == (20, 76)

    def test_the_oldest_page_while_there_is_less(self) -> None:
        assert span(told_every(4, 5).history.window(60)) == (0, 16)

    def test_one_page_has_no_increase(self) -> None:
        window = told_every(4, 1).history.window(60)
        assert window is not None
        assert (window.seconds, window.total.gains) == (0, {})

    def test_no_page(self) -> None:
        assert TargetHistory(60).window(60) is None

    def test_pages_further_apart_than_the_window(self) -> None:
        history = told_every(90, 4).history
        assert span(history.window(60)) == (180, 270)
        assert span(history.window(60, at=400)) == (180, 270)

    def test_the_rate_is_over_the_time_between_the_pages(self) -> None:
        window = told_every(4, 20).history.window(61)
        assert window is not None
        assert window.total.gains["generation_tokens"].increase == 160
        assert window.total.gains["generation_tokens"].per_second == 160 / 64


class TestMemory:
    def test_what_no_window_needs_is_dropped_but_the_baseline_stays(self) -> None:
        history = told_every(1, 500, keep_seconds=60).history
        assert span(history.window(60)) == (439, 499)
        assert span(history.window(600)) == (439, 499)

    def test_very_close_pages_replace_one_another_and_nothing_is_lost(self) -> None:
        told = Told(TOKENS, keep_seconds=60)
        for i in range(20_000):
            told.page(i / 200, float(i))
        assert len(told.history._samples) <= 2050
        window = told.history.window(60)
        assert window is not None
        assert window.since == pytest.approx(99.995 - 60, abs=0.06)
        assert window.total.increase("generation_tokens") == pytest.approx(window.seconds * 200)

    def test_series_without_end_do_not_pile_up(self) -> None:
        told = Told(TOKENS)
        for at in range(30):
            churn = columns(*(value("requests_finished", f"{at} {i}") for i in range(500)))
            told.page(at, *([1.0] * 500), shape=churn)
        window = told.history.window(600)
        assert window is not None
        assert window.total.increase("requests_finished") is not None
        assert (window.total.increase("requests_finished") or 0) <= 30 * 500

    def test_layouts_are_freed_with_their_histories(self) -> None:
        shape = columns(value("generation_tokens"))
        seen = weakref.ref(shape)
        told = Told(shape)
        told.page(0, 1)
        told.page(1, 2)
        told.history.window(60)
        del told, shape
        gc.collect()
        assert seen() is None


class TestClock:
    def test_two_pages_of_one_instant_are_one(self) -> None:
        told = told_every(2, 5)
        told.page(8, 70)
        assert span(told.history.window(60)) == (0, 8)
        assert told.increase("generation_tokens") == 70

    def test_a_clock_that_is_set_back_loses_no_increase(self) -> None:
        told = told_every(2, 5)  # 40 tokens at 8
        told.page(5, 45)
        assert span(told.history.window(60)) == (0, 5)
        assert told.increase("generation_tokens") == 45

    def test_set_back_before_the_first_page_the_window_begins_anew(self) -> None:
        told = told_every(2, 5)
        told.page(-100, 45)
        told.page(-98, 50)
        assert span(told.history.window(60)) == (-100, -98)
        assert told.increase("generation_tokens") == 5


class TestMovement:
    def test_moved_compares_progress_with_the_page_before(self) -> None:
        told = Told(TOKENS)
        seen = [told.page(at, 5, progress=p) for at, p in enumerate((3, 3, 4, 4))]
        assert [one.moved for one in seen] == [True, False, True, False]
        assert [one.first for one in seen] == [True, False, False, False]

    def test_the_last_reading_is_at_hand(self) -> None:
        told = Told(TOKENS)
        assert told.history.last is None
        assert told.history.last_at is None
        told.page(7, 1)
        assert told.history.last_at == 7


class TestLayouts:
    def test_history_goes_on_when_a_page_gains_lines(self) -> None:
        told = told_every(2, 5)
        both = columns(value("preemptions"), value("generation_tokens"))
        told.page(10, 3, 55, shape=both)
        assert told.increase("generation_tokens") == 55
        assert told.increase("preemptions") == 3

    def test_pages_of_two_shapes_in_turn(self) -> None:
        """Each page lacks what the other has; what it lacks keeps its last value."""
        one = columns(value("generation_tokens"), value("requests_finished", "a"))
        other = columns(value("requests_finished", "b"), value("generation_tokens"))
        told = Told(one)
        for at in range(0, 12, 2):
            told.page(at, 10.0 * at, 5.0 + at)
            told.page(at + 1, 5.0 + at, 10.0 * at + 10, shape=other)
        # tokens 0 to 110; a: 5 to 15, b: first seen at 5, starts from zero, ends at 15
        assert told.increase("generation_tokens") == 110
        assert told.increase("requests_finished") == 10 + 15

    def test_bounds_that_are_not_on_both_ends_are_left_out(self) -> None:
        """After an upgrade with other buckets the old and new ones each count a part of the window only."""
        before = columns(*histogram("ttft_seconds", (0.5, 1.0, 2.0, INF)))
        after = columns(*histogram("ttft_seconds", (0.25, 1.0, 4.0, INF)))
        told = Told(before)
        told.page(0, 0, 0, 0, 0, 0.0, 0, token=1.0)
        told.page(1, 4, 6, 8, 8, 6.0, 8, token=1.0)
        told.page(2, 1, 3, 5, 5, 5.0, 5, shape=after, token=2.0)
        window = told.history.window(600)
        assert window is not None
        merged = window.total.histograms["ttft_seconds"]
        assert (merged.bounds, merged.cumulative, merged.count, merged.sum) == ((1.0,), (6 + 3,), 8 + 5, 11.0)
        inside = told.history.window(1)
        assert inside is not None
        assert inside.total.histograms["ttft_seconds"].bounds == (1.0,)

    def test_a_label_set_that_came_late_has_all_its_bounds(self) -> None:
        told = Told(TOKENS)
        told.page(0, 5)
        told.page(
            1, 5, 2, 3, 3, 1.5, 3, shape=columns(*TOKENS.series, *histogram("ttft_seconds", (1.0, 2.0, INF)))
        )
        window = told.history.window(600)
        assert window is not None
        assert window.total.histograms["ttft_seconds"].cumulative == (2, 3)

    def test_targets_share_what_is_worked_out_for_their_columns(self) -> None:
        one, other = Told(TOKENS), Told(TOKENS)
        for told in (one, other):
            told.page(0, 1)
        assert one.history._totals.slots is other.history._totals.slots

    def test_one_raw_series_may_count_towards_two_measures(self) -> None:
        shape = columns(value("spec_drafts", "raw"), value("spec_draft_tokens", "raw"))
        told = Told(shape)
        told.page(0, 5, 5)
        told.page(1, 9, 9)
        assert told.increase("spec_drafts") == told.increase("spec_draft_tokens") == 4


def test_columns_may_be_weak_keys() -> None:
    assert weakref.ref(Columns(()))
