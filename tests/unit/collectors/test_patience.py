"""Deadlines leave out the time for which the collector itself was held up, and nothing else."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from collectors.patience import MOST_STRETCHED, Patience, held_up_seconds, patient_time
from tests.support.virtual_time import VirtualTime, in_virtual_time

_HOLD_UP = 0.3
_ASIDE_SECONDS = 1e-3
"""At most so long in all the loop stands aside for other threads in one of these tests."""


def test_an_answer_that_came_while_we_were_held_up_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(time: VirtualTime) -> None:
        loop = asyncio.get_running_loop()
        answer = loop.create_future()
        loop.call_later(0.25, answer.set_result, "in time")
        async with Patience(0.2):
            loop.call_soon(time.sleep, _HOLD_UP)
            assert await answer == "in time"

    in_virtual_time(monkeypatch, work)


def test_who_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(time: VirtualTime) -> float:
        began = time.now
        with pytest.raises(TimeoutError):
            async with Patience(0.02):
                await asyncio.Event().wait()
        return time.now - began

    assert in_virtual_time(monkeypatch, work) == pytest.approx(0.02, abs=_ASIDE_SECONDS)


def test_nobody_is_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(time: VirtualTime) -> float:
        loop = asyncio.get_running_loop()
        began, over = time.now, asyncio.Event()

        def hold_up() -> None:
            time.sleep(0.12)
            if not over.is_set():
                loop.call_soon(hold_up)

        loop.call_soon(hold_up)
        with pytest.raises(TimeoutError):
            async with Patience(0.1):
                await asyncio.Event().wait()
        over.set()
        return time.now - began

    took = in_virtual_time(monkeypatch, work)
    # a hold-up before each: the look, the timeout that it sets, the cancellation, and what that ends
    assert 0.1 * MOST_STRETCHED <= took <= 0.1 * MOST_STRETCHED + 4 * 0.12


def test_the_patient_clock_stands_still_only_for_long_hold_ups(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(time: VirtualTime) -> tuple[float, float]:
        loop = asyncio.get_running_loop()
        before, began = held_up_seconds(), patient_time()
        for seconds in (0.01, _HOLD_UP, 0.02):
            passed = loop.create_future()
            loop.call_soon(partial(_block, time, seconds, passed))
            await passed
        await asyncio.sleep(0)
        return held_up_seconds() - before, patient_time() - began

    held_up, passed = in_virtual_time(monkeypatch, work)
    assert held_up == pytest.approx(_HOLD_UP)
    assert passed == pytest.approx(0.03, abs=_ASIDE_SECONDS)


def _block(time: VirtualTime, seconds: float, passed: asyncio.Future[None]) -> None:
    time.sleep(seconds)
    passed.set_result(None)


def test_another_event_loop_is_never_held_up() -> None:
    async def work() -> None:
        assert held_up_seconds() == 0.0

    asyncio.run(work())
