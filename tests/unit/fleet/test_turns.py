"""A fleet too large to judge whole at every tick: figures take turns, states and trouble do not."""

from __future__ import annotations

from itertools import pairwise

import pytest

from enginetop.fleet.facts import WindowFacts
from enginetop.fleet.fleet_board import _member
from enginetop.fleet.fleet_tracker import FleetTracker
from enginetop.fleet.model import ReplicaState, Target
from enginetop.fleet.models import Member
from enginetop.fleet.observation import FailureKind
from enginetop.fleet.replica import ReplicaTracker
from enginetop.fleet.snapshot import FleetSnapshot, ReplicaSnapshot, Scalar, Slo
from tests.support.looks import failure, page

TARGETS = tuple(Target(f"http://h{number}:8000", f"h{number}") for number in range(10))


class Watched:
    """Ten replicas looked at every 2 s, with `pictures_per_second` of them at most."""

    def __init__(self, pictures_per_second: float) -> None:
        self._tracker = FleetTracker(
            TARGETS,
            interval_seconds=2.0,
            window_seconds=60.0,
            slo_for=lambda _: Slo(),
            fixed_spacing_seconds=2.0,
            pictures_per_second=pictures_per_second,
        )
        self._at = 0.0
        self.snapshots = [self.tick()]

    def tick(self, failing: frozenset[int] = frozenset()) -> FleetSnapshot:
        self._at += 2.0
        for number, target in enumerate(TARGETS):
            seen = (
                failure(self._at, FailureKind.REFUSED)
                if number in failing
                else page(self._at, running=number, tokens=self._at * 10)
            )
            self._tracker.observe(target.url, seen)
        return self._tracker.snapshot(self._at + 0.5)

    def ages(self, ticks: int) -> list[list[float]]:
        """At each tick, how old each replica's figures are."""
        found = []
        for _ in range(ticks):
            snapshot = self.tick()
            found.append([snapshot.at - (replica.scraped_at or 0.0) for replica in snapshot.replicas])
        return found


@pytest.mark.parametrize(
    ("pictures_per_second", "turns"),
    [
        (float("inf"), 1),
        (5.0, 1),  # ten a tick of 2 s: all of them
        (4.9, 2),
        (2.5, 2),
        (2.0, 3),
        (0.001, 10),  # at least one a tick
    ],
)
def test_how_many_turns_a_fleet_takes(pictures_per_second: float, turns: int) -> None:
    assert Watched(pictures_per_second).tick().turns == turns


def test_nobody_waits_where_the_fleet_is_small_enough() -> None:
    assert Watched(5.0).ages(3) == [[0.5] * 10] * 3


def test_every_replica_has_its_turn_once_in_each_round() -> None:
    """Three turns of 2 s: figures of this tick, the last and the one before; at most 4.5 s old."""
    ages = Watched(2.0).ages(9)
    for tick in ages[3:]:
        assert sorted(set(tick)) == [0.5, 2.5, 4.5]
        assert 3 <= tick.count(0.5) <= 4
    for number in range(10):
        assert [ages[tick][number] for tick in range(3, 9)].count(0.5) == 2


def test_who_waits_is_the_same_object() -> None:
    watched = Watched(2.0)
    before, after = watched.tick(), watched.tick()
    same = [new is old for old, new in zip(before.replicas, after.replicas, strict=True)]
    assert same.count(True) in (6, 7)


def test_a_first_page_and_every_change_of_state_show_at_once() -> None:
    watched = Watched(0.001)
    assert {replica.state for replica in watched.snapshots[0].replicas} == {
        ReplicaState.OK,
        ReplicaState.IDLE,
    }
    everyone = frozenset(range(10))
    watched.tick(everyone)  # one refusal may be chance
    assert {replica.state for replica in watched.tick(everyone).replicas} == {ReplicaState.DOWN}
    back = watched.tick()
    assert {replica.state for replica in back.replicas} <= {ReplicaState.OK, ReplicaState.IDLE}


def test_a_failure_that_is_not_believed_yet_shows_at_once_too() -> None:
    watched = Watched(0.001)
    replica = watched.tick(frozenset({7})).replicas[7]
    assert replica.last_failure is not None
    assert replica.last_failure.kind is FailureKind.REFUSED


def test_a_fleet_that_grows_old_is_told_at_once_and_its_age_in_turns() -> None:
    """A starved watcher must not spend what it has on telling by a second how starved it is."""
    watched = Watched(2.0)
    for _ in range(3):
        watched.tick()
    old = [watched._tracker.snapshot(watched._at + seconds) for seconds in (60.0, 62.0, 64.0, 66.0)]
    for snapshot in old:
        assert {replica.state for replica in snapshot.replicas} == {ReplicaState.STALE}
    for before, after in pairwise(old):
        anew = [new is not former for former, new in zip(before.replicas, after.replicas, strict=True)]
        assert 3 <= anew.count(True) <= 4
    assert {replica.state for replica in watched.tick().replicas} <= {ReplicaState.OK, ReplicaState.IDLE}


def test_of_a_fleet_that_is_down_each_look_is_told_at_once_and_how_long_ago_in_turns() -> None:
    watched = Watched(2.0)
    everyone = frozenset(range(10))
    for _ in range(3):
        down = watched.tick(everyone)
    assert [replica.failed_looks for replica in down.replicas] == [3] * 10
    later = watched._tracker.snapshot(watched._at + 1.0)
    anew = [new is not old for old, new in zip(down.replicas, later.replicas, strict=True)]
    assert 3 <= anew.count(True) <= 4


def test_sums_of_the_fleet_are_of_the_pictures_on_the_screen() -> None:
    watched = Watched(2.0)
    for _ in range(6):
        snapshot = watched.tick()
    running = snapshot.fleet.signals["requests_running"]
    assert isinstance(running, Scalar)
    assert running.value == sum(range(10))


def test_what_discovery_says_never_waits() -> None:
    watched = Watched(0.001)
    watched._tracker.lose(TARGETS[3].url, 5.0)
    assert watched.tick().replicas[3].gone_at == 5.0


def test_neighbours_have_their_turn_together() -> None:
    """Sums are a tree over neighbours: where turns were scattered, all of it would be made anew."""
    for tick in Watched(2.0).ages(9)[3:]:
        on_turn = [number for number, age in enumerate(tick) if age == 0.5]
        assert on_turn == list(range(on_turn[0], on_turn[-1] + 1))


def test_the_board_makes_anew_what_has_another_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(2.0)
    for _ in range(3):
        before = watched.tick()
    made: list[str] = []

    def counted(tracker: ReplicaTracker, replica: ReplicaSnapshot, facts: WindowFacts) -> Member:
        made.append(replica.target.name)
        return _member(tracker, replica, facts)

    monkeypatch.setattr("enginetop.fleet.fleet_board._member", counted)
    after = watched.tick()
    pairs = zip(before.replicas, after.replicas, strict=True)
    assert made == [new.target.name for old, new in pairs if new is not old]
    assert len(made) in (3, 4)
