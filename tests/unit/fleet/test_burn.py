"""Burn of the error budget over long and short windows; every figure worked out by hand."""

from __future__ import annotations

import sys
from array import array

import pytest

from enginetop.fleet.burn import TIERS, WINDOWS, BurnHistory, Counts, RequestCounter
from enginetop.fleet.reached import Reached
from enginetop.fleet.reading import Series
from enginetop.fleet.slots import Slots
from enginetop.fleet.snapshot import BurnRow, Slo
from enginetop.fleet.totals import RunningTotals
from tests.support.history_pages import INF, histogram, value

OURS = Slo(0.6, 0.05)
HOUR, DAY = 3600.0, 86400.0


def requests(ended: float, bad: float) -> Counts:
    return (ended, ended, ended, ended - bad, 0.0, 0.0, 0.0, 0.0)


def told(until: float, every: float, ended: float, bad: float) -> BurnHistory:
    """`ended` requests every `every` seconds, `bad` of them not within the objective."""
    history = BurnHistory()
    history.add(0.0, requests(0, 0))
    for step in range(1, round(until / every) + 1):
        history.add(step * every, requests(ended, bad))
    return history


def row(history: BurnHistory, now: float, target: float, long_seconds: float = HOUR) -> BurnRow:
    (found,) = [one for one in history.rows(now, target) if one.long_seconds == long_seconds]
    return found


def test_both_windows_page_and_the_short_one_clears_it() -> None:
    # 55 min of which 14.909 % are bad and 5 min of 16 %: (55 x 14.909 + 5 x 16) / 60 = 15 %
    history = told(3300.0, 15.0, 1000, 1000 * 0.82 / 5.5)
    for step in range(1, 21):
        history.add(3300.0 + 15.0 * step, requests(1000, 160))
    found = row(history, 3600.0, 0.99)
    assert found.long == pytest.approx(15.0)
    assert found.short == pytest.approx(16.0)
    assert (found.firing, found.reachable, found.threshold) == (True, True, 14.4)
    for step in range(1, 21):
        history.add(3600.0 + 15.0 * step, requests(1000, 5))
    cleared = row(history, 3900.0, 0.99)
    assert cleared.short == pytest.approx(0.5)
    assert not cleared.firing


def test_an_objective_that_cannot_burn_so_fast_is_said_to() -> None:
    # at 90 % all requests bad burn 1 / (1 - .9) = 10 < 14.4
    found = row(told(3600.0, 15.0, 10, 10), 3600.0, 0.9)
    assert found.long == pytest.approx(10.0)
    assert (found.firing, found.reachable) == (False, False)
    assert [one.reachable for one in BurnHistory().rows(0.0, 0.9)] == [False, True, True, True]
    assert [one.reachable for one in BurnHistory().rows(0.0, 0.95)] == [True] * 4


def test_windows_and_thresholds_spend_the_known_shares_of_a_month() -> None:
    assert [(long, short) for long, short, _ in WINDOWS] == [
        (HOUR, 300.0),
        (6 * HOUR, 1800.0),
        (DAY, 2 * HOUR),
        (3 * DAY, 6 * HOUR),
    ]
    spent = [threshold * long / (30 * DAY) for long, _, threshold in WINDOWS]
    assert spent == pytest.approx([0.02, 0.05, 0.10, 0.10])


def test_a_history_shorter_than_the_window_is_unknown_and_never_fires() -> None:
    history = told(3585.0, 15.0, 100, 100)
    found = row(history, 3585.0, 0.99)
    assert (found.long, found.firing) == (None, False)
    assert found.short == pytest.approx(100.0)
    history.add(3600.0, requests(100, 100))
    assert row(history, 3600.0, 0.99).firing


def test_few_requests_page_only_with_ten_bad_ones() -> None:
    assert not row(told(3600.0, 60.0, 1, 0.15), 3600.0, 0.99).firing  # 9 of 60 bad: 15x, and too few
    assert row(told(3600.0, 60.0, 1, 0.17), 3600.0, 0.99).firing  # 10.2 of 60
    assert row(told(3600.0, 60.0, 2, 0.30), 3600.0, 0.99).firing  # 18 of 120


def test_no_traffic_burns_nothing() -> None:
    history = told(3600.0, 15.0, 10, 10)
    assert row(history, 3600.0 + 400.0, 0.99).short == 0.0


def test_nothing_counted_is_unknown() -> None:
    history = told(3600.0, 15.0, 0, 0)
    assert row(history, 3600.0, 0.99).short is None


def test_all_aborted_is_all_bad() -> None:
    history = BurnHistory()
    history.add(0.0, (0.0,) * 8)
    history.add(300.0, (50.0, 0.0, *(0.0,) * 6))
    assert row(history, 300.0, 0.99).short == pytest.approx(100.0)


def test_aborts_count_in_what_was_offered() -> None:
    # 100 ended, 80 completed, .9 of 50 first tokens and .5 of 40 requests in time: 80 x .45 = 36 good
    history = BurnHistory()
    history.add(0.0, (0.0,) * 8)
    history.add(300.0, (100.0, 80.0, 0.0, 0.0, 50.0, 45.0, 40.0, 20.0))
    assert row(history, 300.0, 0.5).short == pytest.approx(0.64 / 0.5)


@pytest.mark.parametrize(("long_seconds", "short_seconds"), [window[:2] for window in WINDOWS])
def test_every_window_is_read_from_its_own_time(long_seconds: float, short_seconds: float) -> None:
    """All bad up to the short window's beginning, all good since."""
    history = BurnHistory()
    every = 60.0
    history.add(0.0, requests(0, 0))
    for step in range(1, round((long_seconds + HOUR) / every) + 1):
        at = step * every
        good_since = long_seconds + HOUR - short_seconds
        history.add(at, requests(10, 10 if at <= good_since else 0))
    found = row(history, long_seconds + HOUR, 0.5, long_seconds)
    # a window may begin one spacing of its ring early
    early = {reach: spacing for spacing, reach in TIERS}
    spacing_long = next(early[reach] for _, reach in TIERS if reach >= long_seconds)
    spacing_short = next(early[reach] for _, reach in TIERS if reach >= short_seconds)
    assert found.long == pytest.approx(
        2 * (1 - short_seconds / long_seconds), abs=3 * spacing_long / long_seconds
    )
    assert found.short == pytest.approx(0.0, abs=2.5 * max(spacing_short, every) / short_seconds)


def test_memory_is_bounded_and_as_stated() -> None:
    history = told(4 * DAY, 30.0, 10, 1)
    held = sum(sys.getsizeof(ring._times) + sys.getsizeof(ring._counts) for _, ring in history._rings)
    assert held < 1.15 * 45_500  # arrays grow ahead by an eighth
    assert row(history, 4 * DAY, 0.9, 3 * DAY).long == pytest.approx(1.0)


def test_a_clock_that_was_set_back_begins_anew_from_there() -> None:
    history = told(3600.0, 15.0, 10, 10)
    history.add(100.0, requests(10, 0))
    assert row(history, 100.0, 0.99).short is None
    for step in range(1, 40):
        history.add(100.0 + 15.0 * step, requests(10, 0))
    assert row(history, 685.0, 0.99).short == 0.0


class TestCounter:
    def counts(self, *pages: tuple[float, ...], slo: Slo = OURS) -> Counts:
        series: tuple[Series, ...] = (
            value("requests_finished"),
            value("requests_aborted"),
            *histogram("ttft_seconds", (0.5, 0.75, INF)),
            *histogram("tpot_seconds", (0.05, INF)),
        )
        slots, counter, totals = Slots(series), RequestCounter(slo), RunningTotals()
        found: Counts = (0.0,) * 8
        for page in pages:
            totals.take(slots, Reached.at(array("d", page)))
            found = counter.take(slots, page, totals.values)
        return found

    ZERO = (0.0,) * 12
    BUSY = (1100.0, 100.0, 900.0, 960.0, 1000.0, 400.0, 1000.0, 900.0, 1000.0, 40.0, 1000.0, 0.0)

    def test_a_page_adds_what_its_window_would_tell(self) -> None:
        found = self.counts(self.ZERO, self.BUSY)
        assert found[:4] == (1100.0, 1000.0, 0.0, 0.0)
        assert found[4:] == pytest.approx((1000.0, 924.0, 1000.0, 900.0))

    def test_the_first_page_adds_nothing(self) -> None:
        assert self.counts(self.BUSY) == (0.0,) * 8

    def test_an_objective_past_the_last_bound_is_not_counted(self) -> None:
        assert self.counts(self.ZERO, self.BUSY, slo=Slo(9.0, 0.05))[4:6] == (0.0, 0.0)

    @pytest.mark.parametrize(
        ("slo", "counted_for", "judged"),
        [
            (Slo(0.6, 0.05, source="flag"), (0.6, 0.05), 10.0),
            (Slo(0.6, 0.05, source="flag"), None, 10.0),  # the page does not name it
            (Slo(0.6, 0.05, source="config"), (0.7, 0.05), 0.0),
            (Slo(), (0.7, 0.05), 10.0),  # nobody asked for one
        ],
    )
    def test_what_was_counted_for_another_objective_is_not_judged(
        self, slo: Slo, counted_for: tuple[float, float] | None, judged: float
    ) -> None:
        within = Series("requests_within_slo", "", "within", slo=counted_for)
        slots = Slots((value("requests_judged"), within))
        counter, totals = RequestCounter(slo), RunningTotals()
        for page in ((0.0, 0.0), (10.0, 8.0)):
            totals.take(slots, Reached.at(array("d", page)))
            found = counter.take(slots, page, totals.values)
        assert found[:3] == (10.0, 10.0, judged)

    def test_an_objective_that_is_set_later_is_judged_from_then_on(self) -> None:
        slots = Slots(
            (
                value("requests_judged"),
                Series("requests_within_slo", "", "former", slo=(0.7, 0.05)),
                Series("requests_within_slo", "", "ours", slo=(0.6, 0.05)),
            )
        )
        counter, totals = RequestCounter(Slo(0.6, 0.05, source="flag")), RunningTotals()
        judged = []
        for page in ((0.0, 0.0, 0.0), (10.0, 8.0, 0.0), (20.0, 8.0, 7.0)):
            totals.take(slots, Reached.at(array("d", page)))
            judged.append(counter.take(slots, page, totals.values)[2:4])
        assert judged == [(0.0, 0.0), (0.0, 0.0), (10.0, 7.0)]
