"""Deadlines for others that leave out the time for which we ourselves were held up.

A busy or starved collector finds answers late that came in time: without this a whole fleet would look down
because its watcher is slow. How late it is shows in its own figures, as dropped turns.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from types import TracebackType

from collectors.event_loop import EngineEventLoop

MOST_STRETCHED = 5.0
"""However long we are held up, nobody is waited for longer than so many times the deadline."""


def held_up_seconds() -> float:
    """For how long in all the running event loop has answered nobody."""
    loop = asyncio.get_running_loop()
    return loop.held_up_seconds if isinstance(loop, EngineEventLoop) else 0.0


def patient_time() -> float:
    """A steady clock, in seconds, that stands still while we are held up."""
    return time.monotonic() - held_up_seconds()


def patient_clock() -> Callable[[], float]:
    """`patient_time` of the running event loop, for who asks often: finding the loop is a system call."""
    loop = asyncio.get_running_loop()
    if not isinstance(loop, EngineEventLoop):
        return time.monotonic
    return lambda: time.monotonic() - loop.held_up_seconds


class Patience:
    """As `asyncio.timeout(seconds)`: TimeoutError when the block takes longer, by `patient_time`."""

    __slots__ = ("_end", "_held_up", "_limit", "_seconds", "_timer")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._limit = asyncio.timeout(None)

    async def __aenter__(self) -> None:
        await self._limit.__aenter__()
        loop = asyncio.get_running_loop()
        self._held_up = held_up_seconds()
        self._end = loop.time() + self._seconds * MOST_STRETCHED
        self._timer = loop.call_later(self._seconds, self._look)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        await self._limit.__aexit__(kind, error, trace)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        now, held_up = loop.time(), held_up_seconds()
        owed = min(held_up - self._held_up, self._end - now)
        self._held_up = held_up
        if owed > 0:
            self._timer = loop.call_later(owed, self._look)
        else:
            self._limit.reschedule(now)
