"""Calls at their times, by one timer for all: the targets of a large fleet have a thousand turns a second."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

_GRAIN_SECONDS = 0.01
"""Calls are made up to so much later than asked for, so that neighbours share one awakening."""


class Wheel:
    """Belongs to one event loop. All times are those of `monotonic`, a steady clock in seconds."""

    def __init__(self, loop: asyncio.AbstractEventLoop, monotonic: Callable[[], float]) -> None:
        self._loop = loop
        self._monotonic = monotonic
        self._due: list[tuple[float, int]] = []
        self._calls: dict[int, Callable[[], None]] = {}
        self._numbers = count()
        self._timer: asyncio.TimerHandle | None = None
        self._wakes_at = math.inf

    def at(self, due: float, call: Callable[[], None]) -> int:
        """Make the call when it is due; the number is what it is called off by."""
        number = next(self._numbers)
        self._calls[number] = call
        heappush(self._due, (due, number))
        self._arm()
        return number

    def call_off(self, number: int) -> bool:
        """Do not make that call; False when it was made, or called off, before."""
        return self._calls.pop(number, None) is not None

    def stop(self) -> None:
        """Make no call any more."""
        self._calls.clear()
        self._due.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        """Set the timer for the earliest call."""
        wakes_at = math.ceil(self._due[0][0] / _GRAIN_SECONDS) * _GRAIN_SECONDS
        if self._timer is not None:
            if self._wakes_at <= wakes_at:
                return
            self._timer.cancel()
        self._wakes_at = wakes_at
        self._timer = self._loop.call_later(max(0.0, wakes_at - self._monotonic()), self._wake)

    def _wake(self) -> None:
        self._timer = None
        due, now = self._due, self._monotonic()
        try:
            while due and due[0][0] <= now:
                if (call := self._calls.pop(heappop(due)[1], None)) is not None:
                    call()
        finally:  # whatever one call did, the others have their turn
            if due and self._timer is None:
                self._arm()
