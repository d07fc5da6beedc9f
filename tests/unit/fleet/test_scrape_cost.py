"""What a scrape of a large fleet costs the core: counted, since a regression would change no number."""

from __future__ import annotations

from collections import Counter

import pytest

from enginetop.fleet.burn import RequestCounter
from enginetop.fleet.fleet_tracker import FleetTracker
from enginetop.fleet.model import ReplicaState, Target
from enginetop.fleet.observation import FailureKind
from enginetop.fleet.reached import Saver
from enginetop.fleet.snapshot import FleetSnapshot, Slo
from enginetop.fleet.state import judge
from enginetop.fleet.totals import RunningTotals
from tests.support.looks import failure, page

TARGETS = tuple(Target(f"http://h{number}:8000", f"h{number}") for number in range(4))


class Watched:
    """Four replicas looked at every second, one of which has its turn at each tick."""

    def __init__(self, pictures_per_second: float = 1.0) -> None:
        self.tracker = FleetTracker(
            TARGETS,
            interval_seconds=1.0,
            window_seconds=60.0,
            slo_for=lambda _: Slo(),
            fixed_spacing_seconds=1.0,
            pictures_per_second=pictures_per_second,
        )

    def look(self, at: float) -> FleetSnapshot:
        for target in TARGETS:
            self.tracker.observe(target.url, page(at, running=3, tokens=at * 10, finished=at))
        return self.tracker.snapshot(at + 0.5)


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often a state was judged, totals were added up, requests counted, a page kept in fewer bytes."""
    found: Counter[str] = Counter()

    def counted(name: str, target: str, call: object) -> None:
        def instead(*arguments: object) -> object:
            found[name] += 1
            return call(*arguments)  # type: ignore[operator]

        monkeypatch.setattr(target, instead)

    counted("judged", "enginetop.fleet.state_watch.judge", judge)
    counted("added up", "enginetop.fleet.totals.RunningTotals._added_up", RunningTotals._added_up)
    counted("counted", "enginetop.fleet.burn.RequestCounter.take", RequestCounter.take)
    counted("saved", "enginetop.fleet.reached.Saver.save", Saver.save)
    return found


def test_a_page_that_moves_is_neither_judged_nor_added_up_before_its_turn(work: Counter[str]) -> None:
    fleet = Watched()
    for at in range(100, 108):
        fleet.look(float(at))
    work.clear()
    for at in range(110, 114):  # four ticks, within one span of the error budget's history
        assert all(one.state is ReplicaState.OK for one in fleet.look(float(at)).replicas)
    # the first page of a span is counted at once; totals are shown of the replica whose turn it is
    assert work["judged"] == 0
    assert work["counted"] == 4
    assert work["added up"] == 4 + 3


def test_pages_are_kept_in_fewer_bytes_where_there_are_no_turns_to_take(work: Counter[str]) -> None:
    for pictures_per_second, saved in ((1.0, 0), (4.0, 4 * 6)):
        fleet = Watched(pictures_per_second)
        for at in range(100, 108):
            fleet.look(float(at))
        # all pages but the newest two of each
        assert work["saved"] == saved


def test_a_page_that_does_not_move_is_judged(work: Counter[str]) -> None:
    fleet = Watched()
    for at in range(100, 104):
        fleet.look(float(at))
    work.clear()
    still = page(104.0, running=3, tokens=1030, finished=103)
    fleet.tracker.observe(TARGETS[0].url, still)
    assert work["judged"] == 1
    fleet.tracker.observe(TARGETS[0].url, page(105.0, running=3, tokens=1030, finished=103))
    fleet.tracker.observe(TARGETS[0].url, page(106.0, running=3, tokens=1030, finished=103))
    assert fleet.tracker.snapshot(106.5).replicas[0].state is ReplicaState.NO_PROGRESS


@pytest.mark.parametrize("running", [0, 3])
def test_a_page_after_a_trouble_is_judged(running: int) -> None:
    """As before it, or as no page before it."""
    fleet = Watched()
    url = TARGETS[0].url
    for at in range(100, 104):
        fleet.look(float(at))
    fleet.tracker.observe(url, failure(104.0, FailureKind.REFUSED))
    fleet.tracker.observe(url, failure(105.0, FailureKind.REFUSED))
    assert fleet.tracker.snapshot(105.5).replicas[0].state is ReplicaState.DOWN
    fleet.tracker.observe(url, page(106.0, running=running, tokens=2000))
    state = fleet.tracker.snapshot(106.5).replicas[0].state
    assert state is (ReplicaState.OK if running else ReplicaState.IDLE)
    assert fleet.tracker.snapshot(111.0).replicas[0].state is ReplicaState.STALE
    fleet.tracker.observe(url, page(112.0, running=running, tokens=3000))
    assert fleet.tracker.snapshot(112.5).replicas[0].state is state


def test_who_waits_for_a_turn_counts_no_request_twice_and_none_too_few() -> None:
    in_turns, at_once = Watched(), Watched(float("inf"))
    for at in range(100, 156):
        for fleet in (in_turns, at_once):
            fleet.look(float(at))
    # the first page of a span, at 155, is counted at once: 55 requests of each of four replicas
    ended = [fleet.tracker._burn._totals[0] for fleet in (in_turns, at_once)]
    assert ended == [220.0, 220.0]


def test_what_a_replica_counted_before_it_went_away_is_not_lost() -> None:
    fleet = Watched(float("inf"))
    for at in range(100, 104):
        fleet.look(float(at))
    assert fleet.tracker._burn._totals[0] == 0.0  # all in one span: the first page counts nothing
    fleet.tracker.observe(TARGETS[0].url, failure(104.0, FailureKind.REFUSED))
    fleet.tracker.lose(TARGETS[1].url, 104.0)
    fleet.tracker.snapshot(104.5)
    assert fleet.tracker._burn._totals[0] == 2 * 3.0
