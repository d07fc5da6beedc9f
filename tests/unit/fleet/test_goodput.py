"""Goodput from exact counts and from histograms; expected values worked out by hand in the comments."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enginetop.fleet.derive import no_signals, rank_signals, signals
from enginetop.fleet.facts import WindowFacts, merge_facts
from enginetop.fleet.goodput import Part, fleet_goodput, goodput
from enginetop.fleet.model import Quality
from enginetop.fleet.reading import Absence, Columns, Series
from enginetop.fleet.snapshot import Goodput, Scalar, Slo
from enginetop.fleet.window_values import aged, averaged
from tests.support.history_pages import Told, columns, two_ranks, value

SLO = Slo(ttft_seconds=0.6, tpot_seconds=0.05)
OURS = (0.6, 0.05)
NO_HISTOGRAMS = "no TTFT histogram exported; no TPOT histogram exported"


def within(slo: tuple[float, float] | None = OURS) -> Series:
    return Series("requests_within_slo", "", f"within {slo}", slo=slo)


FULL = columns(
    value("requests_finished"),
    value("requests_aborted"),
    value("requests_errored"),
    value("requests_judged"),
    value("requests_judged_failed"),
    within(),
)


def window(
    shape: Columns, first: Sequence[float], last: Sequence[float], seconds: float = 10.0
) -> WindowFacts:
    told = Told(shape)
    told.page(0, *first)
    told.page(seconds, *last)
    found = told.history.window(600.0)
    assert found is not None
    return found


def of(shape: Columns, *last: float, first: Sequence[float] | None = None, slo: Slo = SLO) -> Goodput:
    """The goodput over a window of 10 s in which every series grew from 0 to `last`."""
    facts = window(shape, first or [0.0] * len(last), last)
    return goodput(signals(facts), facts, slo)


def test_the_share_is_of_completed_requests_and_the_rate_of_the_engines() -> None:
    # 100 ended, 5 aborted, 5 errored: 90 completed, 72 within: 0.8. 100 - 10 = 90 in 10 s: 9/s x 0.8 = 7.2/s.
    found = of(FULL, 100, 5, 5, 100, 10, 72)
    assert found.offered_per_second == 10.0
    assert found.exact == pytest.approx(0.8)
    assert found.good_per_second == pytest.approx(7.2)
    assert (found.counted_for, found.quality, found.note) == (OURS, Quality.OK, "")
    assert (found.completed_per_second, found.errored_per_second) == (9.0, 0.5)


def test_engine_and_companion_may_count_different_requests() -> None:
    # one prompt of n samples: the engine ends 20 (2/s), the companion judges 10, of which 5 are within
    found = of(FULL, 20, 0, 0, 10, 0, 5)
    assert (found.exact, found.good_per_second) == (0.5, 1.0)


def test_all_good_and_none_good() -> None:
    assert of(FULL, 50, 0, 0, 50, 0, 50).exact == 1.0
    none = of(FULL, 50, 0, 0, 50, 0, 0)
    assert (none.exact, none.good_per_second, none.quality) == (0.0, 0.0, Quality.OK)


@pytest.mark.parametrize("last", [(0, 0, 0, 0, 0, 0), (4, 4, 0, 4, 4, 0)], ids=["none ended", "all aborted"])
def test_nothing_completed_is_unknown_and_not_zero(last: tuple[float, ...]) -> None:
    found = of(FULL, *last)
    assert (found.exact, found.good_per_second, found.quality) == (None, None, Quality.UNKNOWN)
    assert found.note.startswith("no request was completed in the window; no TTFT")
    assert found.offered_per_second == last[0] / 10


def test_more_aborted_than_finished_is_no_negative_goodput() -> None:
    """SGLang and Dynamo's workers count an abort before its request has ended."""
    found = of(FULL, 2, 5, 1, 40, 10, 24)
    assert (found.completed_per_second, found.good_per_second) == (0.0, 0.0)
    assert found.errored_per_second == 0.1


def test_without_exact_counts_nothing_is_claimed() -> None:
    absent = {
        name: Absence(Quality.UNSUPPORTED, "needs the engine's companion")
        for name in ("requests_judged", "requests_within_slo")
    }
    found = of(columns(value("requests_finished"), absent=absent), 100)
    note = f"no exact counts: needs the engine's companion; {NO_HISTOGRAMS}"
    assert found == Goodput(10.0, note=note, completed_per_second=10.0, errored_per_second=0.0)
    assert found.quality is Quality.UNKNOWN


def test_a_replica_whose_page_says_nothing_about_now() -> None:
    assert goodput(no_signals(), None, SLO) == Goodput(note="nothing known of now")
    facts = window(FULL, [0] * 6, [100, 0, 0, 100, 0, 90])
    old = goodput(aged(signals(facts), "40 s old"), None, SLO)
    assert old == Goodput(10.0, quality=Quality.STALE)


def test_an_objective_other_than_the_configured_one_is_named() -> None:
    found = of(FULL, 100, 0, 0, 100, 0, 90, slo=Slo(1.0, 0.1))
    assert (found.exact, found.counted_for, found.quality) == (0.9, OURS, Quality.OK)
    assert found.note == "counted for TTFT 0.6 s and TPOT 0.05 s, not for the configured SLO"


@pytest.mark.parametrize("asked", [Slo(0.7, 0.05, source="flag"), Slo(0.6, 0.1, source="config")])
def test_counts_for_another_objective_than_the_one_asked_for_are_not_exact(asked: Slo) -> None:
    found = of(FULL, 100, 0, 0, 100, 0, 90, slo=asked)
    assert (found.exact, found.good_per_second) == (None, None)
    assert found.note.startswith("the engine side counts for TTFT 0.6 s and TPOT 0.05 s, not for this SLO")
    assert of(FULL, 100, 0, 0, 100, 0, 90, slo=Slo(*OURS, source="flag")).exact == 0.9


def test_a_former_objective_stands_still_and_does_not_count() -> None:
    shape = columns(value("requests_judged"), within((1.0, 0.1)), within())
    found = of(shape, 140, 80, 30, first=[100, 80, 0])
    assert (found.exact, found.counted_for, found.note) == (0.75, OURS, "")
    assert found.good_per_second is None  # an engine that counts no requests


def test_an_objective_that_changed_in_the_window_is_not_judged() -> None:
    shape = columns(value("requests_judged"), within((1.0, 0.1)), within())
    found = of(shape, 140, 85, 30, first=[100, 80, 0])
    assert (found.exact, found.counted_for, found.quality) == (None, None, Quality.SUSPECT)
    assert "several objectives" in found.note


def test_more_good_than_completed_is_suspect() -> None:
    found = of(FULL, 10, 0, 0, 10, 0, 11)
    assert (found.exact, found.quality) == (None, Quality.SUSPECT)


def test_failed_requests_that_none_was_seen_of_yet_are_none() -> None:
    shape = columns(
        value("requests_judged"),
        within(),
        absent={"requests_judged_failed": Absence(Quality.UNKNOWN, "nothing counted there yet")},
    )
    assert of(shape, 10, 9).exact == 0.9


def test_failed_requests_that_cannot_be_believed_make_no_share() -> None:
    told = Told(columns(value("requests_judged"), value("requests_judged_failed"), within()))
    for at, failed in enumerate((50, 1, 51, 2, 52)):  # two processes behind one address
        told.page(2.0 * at, 100 + at, failed, at)
    facts = told.history.window(600.0)
    assert facts is not None
    found = goodput(signals(facts), facts, SLO)
    assert (found.exact, found.quality) == (None, Quality.UNKNOWN)
    assert "several processes behind one address" in found.note


def test_counts_of_a_window_that_reaches_over_an_outage_are_an_estimate_of_now() -> None:
    facts = averaged(window(FULL, [0] * 6, [100, 0, 0, 100, 0, 90], seconds=900.0))
    found = goodput(signals(facts), facts, SLO)
    assert (found.exact, found.quality) == (0.9, Quality.ESTIMATED)
    assert found.note.startswith("an average of 15 min: no pages for most of it")


def test_so_are_those_of_its_ranks() -> None:
    shape = columns(*(value("generation_tokens", rank=rank) for rank in "01"), ranks=two_ranks())
    ranks = rank_signals(averaged(window(shape, [0, 0], [900, 1800], seconds=900.0)))
    told = [rank.signals["generation_tokens_per_second"] for rank in ranks]
    note = "an average of 15 min: no pages for most of it"
    assert told == [Scalar(rate, "tokens/s", Quality.ESTIMATED, note) for rate in (1.0, 2.0)]


class TestFleet:
    def fleet(self, *windows: WindowFacts, slo: Slo = SLO) -> Goodput:
        facts = merge_facts(windows)
        parts = [Part(goodput(signals(one), one, slo), one.total, slo) for one in windows]
        return fleet_goodput(signals(facts), facts, slo, parts)

    def test_counts_are_added_and_shares_never_averaged(self) -> None:
        # 90 of 100 and 5 of 20: 95 of 120, not the mean of .9 and .25
        busy = window(FULL, [0] * 6, [100, 0, 0, 100, 0, 90])
        idle = window(FULL, [0] * 6, [20, 0, 0, 20, 0, 5])
        found = self.fleet(busy, idle)
        assert found.exact == pytest.approx(95 / 120)
        assert found.good_per_second == pytest.approx(12 * 95 / 120)
        assert (found.quality, found.counted_for) == (Quality.OK, OURS)

    def test_part_of_the_engines_is_an_estimate_of_all(self) -> None:
        counted = window(FULL, [0] * 6, [100, 0, 0, 100, 0, 90])
        plain = window(columns(value("requests_finished")), [0], [100])
        found = self.fleet(counted, plain)
        # 20 ended a second in all; the share is that of the engine that counts
        assert found.exact == 0.9
        assert found.good_per_second == pytest.approx(18.0)
        assert (found.quality, found.note) == (
            Quality.ESTIMATED,
            "exact counts from 1 of 2 engines; " + NO_HISTOGRAMS,
        )

    def test_models_have_their_own_objectives(self) -> None:
        one = window(FULL, [0] * 6, [10, 0, 0, 10, 0, 9])
        shape = columns(value("requests_finished"), value("requests_judged"), within((2.0, 0.2)))
        other = window(shape, [0] * 3, [10, 10, 5])
        found = self.fleet(one, other)
        assert (found.exact, found.counted_for, found.quality) == (0.7, None, Quality.OK)

    def test_counts_for_another_objective_than_its_own_make_no_exact_share_of_all(self) -> None:
        # both count for (0.6, 0.05); the second is held against a stricter TPOT: its 10 of 10 say nothing
        one = window(FULL, [0] * 6, [10, 0, 0, 10, 0, 9])
        other = window(FULL, [0] * 6, [10, 0, 0, 10, 0, 10])
        strict = Slo(0.6, 0.02, source="config")
        parts = [
            Part(goodput(signals(facts), facts, slo), facts.total, slo)
            for facts, slo in ((one, Slo(*OURS, source="config")), (other, strict))
        ]
        facts = merge_facts([one, other])
        found = fleet_goodput(signals(facts), facts, SLO, parts)
        assert (found.exact, found.good_per_second, found.quality) == (None, None, Quality.UNKNOWN)
        assert found.note.startswith("1 of 2 engines count for another SLO than theirs; each replica against")

    def test_one_replica_in_doubt_leaves_the_fleet_in_doubt(self) -> None:
        shape = columns(value("requests_judged"), within((1.0, 0.1)), within())
        changed = window(shape, [100, 80, 0], [140, 85, 30])
        sound = window(FULL, [0] * 6, [10, 0, 0, 10, 0, 9])
        found = self.fleet(sound, changed)
        assert (found.exact, found.quality) == (None, Quality.SUSPECT)

    def test_nobody_is_up(self) -> None:
        assert fleet_goodput(no_signals(), None, SLO, ()) == Goodput(note="nothing known of now")


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_a_share_is_a_share_and_the_fleets_lies_between_those_of_its_replicas(data: st.DataObject) -> None:
    windows = []
    for _ in range(data.draw(st.integers(1, 4))):
        completed = data.draw(st.integers(1, 500))
        failed = data.draw(st.integers(0, 50))
        good = data.draw(st.integers(0, completed))
        judged = completed + failed
        windows.append(window(FULL, [7] * 6, [7.0 + n for n in (judged, failed, 0, judged, failed, good)]))
    parts = [goodput(signals(one), one, SLO) for one in windows]
    shares = [part.exact for part in parts if part.exact is not None]
    assert len(shares) == len(parts)
    facts = merge_facts(windows)
    told = [Part(part, one.total, SLO) for part, one in zip(parts, windows, strict=True)]
    whole = fleet_goodput(signals(facts), facts, SLO, told)
    assert whole.exact is not None
    assert min(shares) - 1e-12 <= whole.exact <= max(shares) + 1e-12
    assert whole.good_per_second is not None
    assert whole.good_per_second == pytest.approx(sum(part.good_per_second or 0.0 for part in parts))
