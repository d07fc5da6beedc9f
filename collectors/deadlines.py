"""Deadlines of many who wait, by one timer for all; each as `patience.Patience` has it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Protocol

from collectors.patience import MOST_STRETCHED, patient_clock


class Waiting(Protocol):
    """One who waits."""

    def run_out(self) -> None:
        """Its time is over: it is not held here any more."""


class Deadlines:
    """Belongs to the event loop that runs when it is made.

    Nearly everybody is answered long before the end: the timer is not moved then. When it goes off, it is set
    anew for the earliest of those who wait.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._patient_time: Callable[[], float] = patient_clock()
        self._ends: dict[Waiting, tuple[float, float]] = {}
        """By the patient clock, and by the loop's at the latest."""
        self._timer: asyncio.TimerHandle | None = None
        self._wakes_at = math.inf

    def set(self, who: Waiting, seconds: float) -> None:
        """Wait for `who` so long."""
        now = self._loop.time()
        self._ends[who] = (self._patient_time() + seconds, now + seconds * MOST_STRETCHED)
        self._wake_in(seconds, now)

    def lift(self, who: Waiting) -> None:
        """Wait for it no longer."""
        self._ends.pop(who, None)

    def stop(self) -> None:
        """Wait for nobody."""
        self._ends.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wake_in(self, seconds: float, now: float) -> None:
        if self._timer is not None:
            if self._wakes_at <= now + seconds:
                return
            self._timer.cancel()
        self._wakes_at = now + seconds
        self._timer = self._loop.call_later(seconds, self._look)

    def _look(self) -> None:
        self._timer = None
        patient_now, now = self._patient_time(), self._loop.time()
        over = [who for who, (end, latest) in self._ends.items() if end <= patient_now or latest <= now]
        try:
            for who in over:
                if self._ends.pop(who, None) is not None:
                    who.run_out()
        finally:  # whatever became of one of them, the time of the others runs out too
            if self._ends:
                left = min(min(end - patient_now, latest - now) for end, latest in self._ends.values())
                self._wake_in(max(0.0, left), now)
