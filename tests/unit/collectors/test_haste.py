"""Pictures before their turn, in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from collectors.haste import Haste
from collectors.scrape import Scrape
from enginetop.fleet.observation import Failure, FailureKind, Observation


class Stage:
    """An engine with an interval of two seconds, whose pictures cost `cost` seconds."""

    def __init__(self, cost: float = 0.01) -> None:
        self.now, self.cost = 100.0, cost
        self.calls: list[tuple[float, Callable[[], None]]] = []
        self.rung: list[float] = []
        self.haste = Haste(2.0, self, lambda: self.now, self.ring)

    def at(self, due: float, call: Callable[[], None]) -> int:
        self.calls.append((due, call))
        return len(self.calls)

    def ring(self) -> None:
        self.rung.append(self.now)
        self.haste.drawn(self.cost)

    def until(self, now: float) -> None:
        while self.calls and self.calls[0][0] <= now:
            self.now, call = self.calls.pop(0)
            call()
        self.now = now

    def look(self, at: float, *, failed: bool, url: str = "a") -> None:
        self.until(at)
        failure = Failure(FailureKind.REFUSED, at, "") if failed else None
        self.haste.take(Scrape(url, (), Observation(at, 0.0, failure=failure)))
        self.until(at)


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
    yield made
    assert made.calls == []


def test_two_failures_and_the_return_are_told_at_once(stage: Stage) -> None:
    stage.look(100.0, failed=False)
    for at in (102.0, 104.0, 106.0, 114.0):
        stage.look(at, failed=True)
    stage.look(120.0, failed=False)
    stage.look(122.0, failed=False)
    assert stage.rung == [102.0, 104.0, 120.0]


def test_in_an_outage_pictures_keep_half_an_interval_apart_and_all_is_told(stage: Stage) -> None:
    for number in range(20):
        stage.look(102.0 + number / 10, failed=True, url=f"t{number}")
    stage.until(110.0)
    assert stage.rung == [102.0, 103.0, 104.0]


def test_a_picture_in_turn_tells_what_waited(stage: Stage) -> None:
    stage.look(102.0, failed=True, url="a")
    stage.look(102.2, failed=True, url="b")
    stage.haste.drawn(0.01)
    stage.until(110.0)
    assert stage.rung == [102.0]


def test_costly_pictures_take_a_tenth_of_the_time_at_most() -> None:
    stage = Stage(cost=0.5)
    stage.haste.drawn(0.5)
    for number in range(100):
        stage.look(102.0 + number / 10, failed=bool(number % 2))
    stage.until(120.0)
    assert stage.rung == [102.1, 107.1, 112.1]


def test_who_left_is_not_remembered(stage: Stage) -> None:
    stage.look(102.0, failed=True)
    stage.haste.forget("a")
    stage.look(110.0, failed=False)
    assert stage.rung == [102.0]
