"""Calls at their times, by one timer for all."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from collectors.deadlines import Deadlines
from collectors.wheel import Wheel
from tests.support.virtual_time import VirtualTime, in_virtual_time


def timers() -> int:
    """Timers that the running loop has set."""
    scheduled = asyncio.get_running_loop()._scheduled  # type: ignore[attr-defined]
    return sum(not handle.cancelled() for handle in scheduled)


def turned(plan: Callable[[Wheel, list[str], float], None], until: int) -> list[str]:
    """The calls that a wheel made, once there are so many."""

    async def run() -> list[str]:
        made: list[str] = []
        wheel = Wheel(asyncio.get_running_loop(), time.monotonic)
        plan(wheel, made, time.monotonic())
        while len(made) < until:
            await asyncio.sleep(0.002)
        wheel.stop()
        assert timers() == 0
        return made

    return asyncio.run(run())


def test_calls_are_made_in_the_order_of_their_times_and_never_early() -> None:
    early: list[str] = []

    def plan(wheel: Wheel, made: list[str], now: float) -> None:
        def call(name: str, due: float) -> Callable[[], None]:
            def make() -> None:
                made.append(name)
                if time.monotonic() < due:
                    early.append(name)

            return make

        for name, seconds in {"c": 0.03, "a": -1.0, "d": 0.031, "b": 0.012}.items():
            wheel.at(now + seconds, call(name, now + seconds))

    assert turned(plan, 4) == ["a", "b", "c", "d"]
    assert early == []


def test_a_thousand_calls_take_one_timer() -> None:
    async def run() -> int:
        wheel = Wheel(asyncio.get_running_loop(), time.monotonic)
        for number in range(1000):
            wheel.at(time.monotonic() + 100.0 - number / 100, lambda: None)
        found = timers()
        wheel.stop()
        return found

    assert asyncio.run(run()) == 1


def test_what_is_called_off_is_not_made_and_can_be_called_off_once() -> None:
    found: list[bool] = []

    def plan(wheel: Wheel, made: list[str], now: float) -> None:
        first = wheel.at(now + 0.01, lambda: made.append("off"))
        wheel.at(now + 0.02, lambda: made.append("on"))
        found.extend([wheel.call_off(first), wheel.call_off(first)])

    assert turned(plan, 1) == ["on"]
    assert found == [True, False]


def test_a_call_that_raises_leaves_the_others_their_turn() -> None:
    async def run() -> tuple[list[str], list[str]]:
        loop, made, faults = asyncio.get_running_loop(), list[str](), list[str]()
        loop.set_exception_handler(lambda _, context: faults.append(str(context["exception"])))
        wheel, now = Wheel(loop, time.monotonic), time.monotonic()

        def broken() -> None:
            raise ValueError("broken")

        wheel.at(now, broken)
        wheel.at(now, lambda: made.append("after"))
        while not made:
            await asyncio.sleep(0.002)
        wheel.stop()
        return made, faults

    assert asyncio.run(run()) == (["after"], ["broken"])


class Waiter:
    def __init__(self, over: list[str], name: str) -> None:
        self._over, self._name = over, name

    def run_out(self) -> None:
        self._over.append(self._name)


@pytest.mark.parametrize("first", ["long", "short"])
def test_deadlines_run_out_one_by_one_and_by_one_timer(first: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run(clock: VirtualTime) -> tuple[list[str], float]:
        over: list[str] = []
        deadlines, began = Deadlines(), clock.now
        waits = {"long": 0.05, "short": 0.02}
        for name in (first, *(other for other in waits if other != first)):
            deadlines.set(Waiter(over, name), waits[name])
        answered = Waiter(over, "answered")
        deadlines.set(answered, 0.03)
        deadlines.lift(answered)
        assert timers() == 1
        while len(over) < 2:
            await asyncio.sleep(0.002)
        took = clock.now - began
        assert timers() <= 1  # the sleep of this test
        deadlines.stop()
        return over, took

    over, took = in_virtual_time(monkeypatch, run)
    assert over == ["short", "long"]
    assert 0.05 <= took < 0.053  # it is looked every 2 ms


def test_a_deadline_leaves_out_the_time_for_which_we_were_held_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run(clock: VirtualTime) -> float:
        over: list[str] = []
        loop, began = asyncio.get_running_loop(), clock.now
        Deadlines().set(Waiter(over, "late"), 0.15)
        loop.call_soon(clock.sleep, 0.25)
        while not over:
            await asyncio.sleep(0.002)
        return clock.now - began

    assert 0.25 + 0.15 <= in_virtual_time(monkeypatch, run) < 0.25 + 0.153


def test_a_deadline_that_breaks_somebody_does_not_keep_the_others_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Broken(Waiter):
        def run_out(self) -> None:
            super().run_out()
            raise ZeroDivisionError(self._name)

    async def run(_clock: VirtualTime) -> tuple[list[str], list[str]]:
        over: list[str] = []
        faults: list[str] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: faults.append(str(context["exception"]))
        )
        deadlines = Deadlines()
        for name, seconds in (("a", 0.01), ("b", 0.01), ("c", 0.03)):
            deadlines.set(Broken(over, name), seconds)
        async with asyncio.timeout(10.0):
            while len(over) < 3:
                await asyncio.sleep(0.002)
        deadlines.stop()
        return over, faults

    over, faults = in_virtual_time(monkeypatch, run)
    assert over == faults == ["a", "b", "c"]
