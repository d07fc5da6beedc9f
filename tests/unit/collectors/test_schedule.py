"""Turns of a target: where they lie, what is dropped, how patience with the dead grows."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.schedule import MAX_BACKOFF_SECONDS, TargetSchedule, hashed_ratio

KEYS = [f"http://10.0.0.{number}:8000" for number in range(200)]
moderate = settings(max_examples=60, deadline=None)


def test_the_hash_is_the_same_everywhere() -> None:
    # `printf a | b2sum -l 64`
    assert hashed_ratio("a") == 0x40F89E395B66422F / 2**64
    assert hashed_ratio("a", 1) != hashed_ratio("a", 2)


def test_offsets_spread_over_the_interval() -> None:
    tenths = [int(hashed_ratio(key) * 10) for key in KEYS]
    assert all(5 <= tenths.count(tenth) <= 40 for tenth in range(10))


def test_a_thousand_first_looks_are_not_asked_for_at_once() -> None:
    dues = sorted(TargetSchedule(key, 1.0, 0.0, targets=1000).first.due for key in KEYS)
    assert 3.0 < dues[-1] - dues[0] < 4.0  # four thousandths of a second each


def _moments(targets: int) -> list[float]:
    """Where in an interval of 2 s the turns of so many lie."""
    schedules = [TargetSchedule(f"http://r{number}", 2.0, 0.0, targets=targets) for number in range(targets)]
    turns = [one.next_turn(one.first.due, one.first.due, failed=False) for one in schedules]
    return [round(turn.due % 2.0, 6) for turn in turns]


@pytest.mark.parametrize("targets", [1, 8, 16])
def test_a_small_fleet_is_asked_in_one_go_shortly_before_its_picture_is_drawn(targets: int) -> None:
    assert _moments(targets) == [1.5] * targets


def test_a_large_fleet_is_spread_over_the_interval() -> None:
    counts = Counter(_moments(1000))
    assert len(counts) == 63  # sixteen each
    assert max(counts.values()) < 40
    assert sorted(counts) == pytest.approx([2.0 * (share + 0.75) / 63 for share in range(63)], abs=1e-5)


def test_every_target_is_asked_in_the_first_half_second() -> None:
    firsts = [TargetSchedule(key, 2.0, 100.0).first for key in KEYS]
    assert all(100.0 <= turn.due < 100.5 for turn in firsts)
    assert all(100.0 <= TargetSchedule(key, 0.1, 100.0).first.due < 100.1 for key in KEYS)


@moderate
@given(st.sampled_from(KEYS), st.floats(0.05, 60), st.integers(1, 20))
def test_quick_scrapes_are_one_interval_apart_and_none_is_late(key: str, interval: float, count: int) -> None:
    schedule = TargetSchedule(key, interval, 1000.0)
    turn = schedule.first
    dues = []
    for _ in range(count + 1):
        turn = schedule.next_turn(turn.due, turn.due + interval / 10, failed=False)
        dues.append(turn.due)
        assert turn.dropped == 0
    assert all(later - earlier == pytest.approx(interval) for earlier, later in pairwise(dues))


@moderate
@given(st.sampled_from(KEYS), st.floats(0.05, 60))
def test_the_second_turn_is_neither_soon_nor_far(key: str, interval: float) -> None:
    schedule = TargetSchedule(key, interval, 1000.0)
    second = schedule.next_turn(schedule.first.due, schedule.first.due, failed=False)
    assert 0.49 * interval <= second.due - schedule.first.due <= 1.51 * interval


@pytest.mark.parametrize(("seconds", "dropped"), [(1.9, 0), (2.1, 1), (3.9, 1), (4.1, 2), (21.0, 10)])
def test_turns_that_come_while_a_scrape_runs_are_dropped_and_counted(seconds: float, dropped: int) -> None:
    schedule = TargetSchedule("http://r1", 2.0, 0.0)
    due = schedule.next_turn(schedule.first.due, schedule.first.due, failed=False).due
    turn = schedule.next_turn(due, due + seconds, failed=False)
    assert turn.dropped == dropped
    assert turn.due == pytest.approx(due + 2.0 * (dropped + 1))


def test_a_dead_target_is_tried_at_the_next_turn_then_ever_less_often() -> None:
    schedule = TargetSchedule("http://dead", 2.0, 0.0)
    turn = schedule.next_turn(schedule.first.due, schedule.first.due, failed=False)
    waits = []
    for _ in range(8):
        ended = turn.due + 0.001
        turn = schedule.next_turn(turn.due, ended, failed=True)
        assert turn.dropped == 0
        waits.append(turn.due - ended)
    assert waits[0] == pytest.approx(2.0, abs=0.01)  # the try that tells `down` is not put off
    for wait, full in zip(waits[1:], (4.0, 8.0, 16.0, 30.0, 30.0, 30.0, 30.0), strict=True):
        assert 0.75 * full <= wait <= full


def test_a_target_that_hangs_is_tried_again_at_the_very_next_turn() -> None:
    schedule = TargetSchedule("http://hung", 2.0, 0.0)
    due = schedule.next_turn(schedule.first.due, schedule.first.due, failed=False).due
    assert schedule.next_turn(due, due + 1.8, failed=True).due == pytest.approx(due + 2.0)


def test_one_good_answer_ends_the_patience() -> None:
    schedule = TargetSchedule("http://dead", 2.0, 0.0)
    due = 100.0
    for _ in range(6):
        schedule.next_turn(due, due, failed=True)
    after = schedule.next_turn(due, due + 0.01, failed=False)
    assert after.due - due <= 3.0
    assert schedule.next_turn(after.due, after.due + 0.01, failed=True).due == pytest.approx(after.due + 2.0)


def test_dead_targets_do_not_stay_in_step() -> None:
    waits = set()
    for key in KEYS[:20]:
        schedule = TargetSchedule(key, 2.0, 0.0)
        for _ in range(9):
            turn = schedule.next_turn(50.0, 50.0, failed=True)
        waits.add(round(turn.due, 3))
    assert len(waits) > 15


@moderate
@given(st.sampled_from(KEYS), st.floats(0.1, 300), st.integers(2, 200))
def test_recovery_is_noticed_within_the_cap(key: str, interval: float, failures: int) -> None:
    schedule = TargetSchedule(key, interval, 0.0)
    for _ in range(failures):
        turn = schedule.next_turn(10.0, 10.0, failed=True)
    assert turn.due - 10.0 <= max(MAX_BACKOFF_SECONDS, 1.5 * interval)
