"""A sleep that can be ended early."""

from __future__ import annotations

import asyncio

from collectors.alarm import Alarm


async def _waiting(alarm: Alarm, seconds: float) -> asyncio.Task[bool]:
    task = asyncio.create_task(alarm.wait(seconds))
    await asyncio.sleep(0)
    return task


def test_it_ends_when_its_time_has_come_and_when_it_is_rung() -> None:
    async def run() -> list[bool]:
        alarm = Alarm()
        over = await alarm.wait(0.001)
        task = await _waiting(alarm, 1000.0)
        alarm.ring()
        alarm.ring()
        return [over, await task]

    assert asyncio.run(run()) == [False, True]


def test_who_is_due_does_not_sleep_and_leaves_the_ring_to_the_next() -> None:
    async def run() -> list[bool]:
        alarm = Alarm()
        alarm.ring()
        return [
            await alarm.wait(0.0),
            await alarm.wait(-1.0),
            await alarm.wait(1000.0),
            await alarm.wait(0.001),
        ]

    assert asyncio.run(run()) == [False, False, True, False]


def test_a_sleep_that_is_called_off_leaves_no_timer_and_can_be_slept_again() -> None:
    async def run() -> tuple[list[bool], bool]:
        alarm = Alarm()
        task = await _waiting(alarm, 1000.0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        timers = [handle for handle in asyncio.get_running_loop()._scheduled if not handle.cancelled()]  # type: ignore[attr-defined]
        again = await _waiting(alarm, 1000.0)
        alarm.ring()
        return timers, await again

    assert asyncio.run(run()) == ([], True)
