"""A sleep that can be ended early, by one timer and one future: a large fleet sleeps often."""

from __future__ import annotations

import asyncio


class Alarm:
    """Wakes one task at a time, at the time that it asked for or when it is rung."""

    __slots__ = ("_rung", "_sleep")

    def __init__(self) -> None:
        self._sleep: asyncio.Future[bool] | None = None
        self._rung = False

    def ring(self) -> None:
        """Wake who sleeps; the next one who wants to sleep if nobody does."""
        if self._sleep is None:
            self._rung = True
        elif not self._sleep.done():
            self._sleep.set_result(True)

    async def wait(self, seconds: float) -> bool:
        """Sleep so long; True when it was rung. Who is due already does not sleep: a ring stays for later."""
        if seconds <= 0:
            return False
        if self._rung:
            self._rung = False
            return True
        loop = asyncio.get_running_loop()
        self._sleep = sleep = loop.create_future()
        timer = loop.call_later(seconds, _end, sleep)
        try:
            rung: bool = await sleep
            return rung
        finally:
            timer.cancel()
            self._sleep = None


def _end(sleep: asyncio.Future[bool]) -> None:
    if not sleep.done():
        sleep.set_result(False)
