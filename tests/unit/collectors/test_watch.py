"""When the answer to a scrape in flight is overdue, by clocks that a test moves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from collectors.schedule import TargetSchedule
from collectors.scrape import Scrape
from collectors.watch import Beat, Watch
from enginetop.fleet.observation import Observation


@dataclass
class Hands:
    """A wheel, a clock and a scraper in one: what was asked is answered by hand."""

    steady: float = 0.0
    held_up: float = 0.0
    due: list[Callable[[], None]] = field(default_factory=list)
    told: list[Callable[[Scrape], None]] = field(default_factory=list)

    def monotonic(self) -> float:
        return self.steady

    def at(self, _due: float, call: Callable[[], None]) -> int:
        self.due.append(call)
        return 0

    def begin(self, _seconds: float, _time: object, tell: Callable[[Scrape], None]) -> None:
        self.told.append(tell)

    def call_off(self, number: int | None = None) -> asyncio.Task[None] | None:
        (self.told if number is None else self.due).clear()  # the scrape in flight, or the call of the wheel
        return None


def watched() -> tuple[Watch, Hands]:
    hands: Any = Hands()
    beat = Beat(hands, hands, lambda: hands.steady - hands.held_up, 1.8)
    watch = Watch(hands, TargetSchedule("a", 2.0, 0.0), beat, lambda *_: None)
    watch.begin()
    return watch, hands


def look(watch: Watch, hands: Hands, seconds: float) -> None:
    """One scrape that takes so long, in turn."""
    hands.steady = watch._turn.due
    hands.due.pop()()
    hands.steady += seconds
    hands.told.pop()(Scrape("a", (), Observation(hands.steady, seconds)))


def test_it_is_overdue_when_our_patience_is_over() -> None:
    watch, hands = watched()
    look(watch, hands, 0.1)
    assert watch.overdue_seconds(1.0) is None
    hands.steady = asked = watch._turn.due
    hands.due.pop()()
    for waited, overdue in ((0.0, False), (0.9, False), (1.1, True), (1.7, True)):
        hands.steady = asked + waited
        assert watch.overdue_seconds(1.0) == (pytest.approx(waited) if overdue else None)
    hands.told.pop()(Scrape("a", (), Observation(hands.steady, 1.7)))
    assert watch.overdue_seconds(1.0) is None


def test_a_watcher_that_was_held_up_blames_nobody() -> None:
    watch, hands = watched()
    look(watch, hands, 0.1)
    hands.steady = watch._turn.due + 30.0  # the turn itself came late
    hands.held_up = 30.0
    hands.due.pop()()
    assert watch.overdue_seconds(1.0) is None
    hands.steady += 5.0
    hands.held_up += 4.5
    assert watch.overdue_seconds(1.0) is None


def test_who_always_takes_long_is_given_twice_as_long() -> None:
    watch, hands = watched()
    look(watch, hands, 0.8)
    hands.steady = watch._turn.due
    hands.due.pop()()
    hands.steady += 1.5
    assert watch.overdue_seconds(1.0) is None
    hands.steady += 0.2
    assert watch.overdue_seconds(1.0) == pytest.approx(1.7)


@pytest.mark.parametrize("held_up", [0.0, 30.0])
def test_our_own_lateness_is_not_taken_for_the_time_that_an_answer_takes(held_up: float) -> None:
    watch, hands = watched()
    hands.steady = watch._turn.due + 30.0  # the turn came late
    hands.held_up = held_up
    hands.due.pop()()
    hands.steady += 0.1
    hands.told.pop()(Scrape("a", (), Observation(hands.steady, 0.1)))
    hands.steady = watch._turn.due
    hands.due.pop()()
    hands.steady += 1.1
    assert watch.overdue_seconds(1.0) == pytest.approx(1.1)


def test_it_looks_out_of_turn_at_once_and_never_twice_at_a_time() -> None:
    watch, hands = watched()
    look(watch, hands, 0.1)
    assert watch.rests(0.0)
    hands.steady += 0.7
    assert (watch.rests(0.7), watch.rests(0.8)) == (True, False)
    watch.look_now()
    assert (hands.due, len(hands.told), watch.rests(0.0)) == ([], 1, False)
    watch.look_now()
    assert len(hands.told) == 1
    asked = hands.steady
    hands.steady += 1.5
    assert watch.overdue_seconds(1.0) == pytest.approx(1.5)
    hands.told.pop()(Scrape("a", (), Observation(hands.steady, 1.5)))
    assert len(hands.due) == 1
    assert asked + 1.5 <= watch._turn.due <= asked + 4.0


def test_its_end_calls_off_the_turn_or_the_scrape() -> None:
    watch, hands = watched()
    assert watch.end() is None
    assert hands.due == []
    watch, hands = watched()
    hands.due.pop()()
    assert len(hands.told) == 1
    watch.end()
    assert hands.told == []
