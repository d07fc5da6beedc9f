"""Deadlines leave out the time for which the collector itself was held up, and nothing else."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from functools import partial

import pytest

from collectors.event_loop import EngineEventLoop
from collectors.patience import MOST_STRETCHED, Patience, held_up_seconds, patient_time

_HOLD_UP = 0.3


def run(work: Coroutine[None, None, None]) -> None:
    with asyncio.Runner(loop_factory=EngineEventLoop) as runner:
        runner.run(work)


def test_an_answer_that_came_while_we_were_held_up_is_taken() -> None:
    async def work() -> None:
        loop = asyncio.get_running_loop()
        answer = loop.create_future()
        loop.call_later(0.25, answer.set_result, "in time")
        async with Patience(0.2):
            loop.call_soon(time.sleep, _HOLD_UP)
            assert await answer == "in time"

    run(work())


def test_who_does_not_answer_is_not_waited_for() -> None:
    async def work() -> None:
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            async with Patience(0.02):
                await asyncio.Event().wait()
        assert time.monotonic() - began >= 0.02

    run(work())


def test_nobody_is_waited_for_without_end() -> None:
    async def work() -> None:
        loop = asyncio.get_running_loop()
        began, over = loop.time(), asyncio.Event()

        def hold_up() -> None:
            time.sleep(0.12)
            if not over.is_set():
                loop.call_soon(hold_up)

        loop.call_soon(hold_up)
        with pytest.raises(TimeoutError):
            async with Patience(0.1):
                await asyncio.Event().wait()
        assert loop.time() - began > 0.1 * MOST_STRETCHED - 0.01
        over.set()

    run(work())


def test_the_patient_clock_stands_still_only_for_long_hold_ups() -> None:
    async def work() -> None:
        loop = asyncio.get_running_loop()
        before, began = held_up_seconds(), patient_time()
        for seconds in (0.01, _HOLD_UP, 0.01):
            passed = loop.create_future()
            loop.call_soon(partial(_block, seconds, passed))
            await passed
        await asyncio.sleep(0)
        assert held_up_seconds() - before >= _HOLD_UP
        assert patient_time() - began < _HOLD_UP

    run(work())


def _block(seconds: float, passed: asyncio.Future[None]) -> None:
    time.sleep(seconds)
    passed.set_result(None)


def test_another_event_loop_is_never_held_up() -> None:
    async def work() -> None:
        assert held_up_seconds() == 0.0

    asyncio.run(work())
