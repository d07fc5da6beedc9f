"""The engine's time."""

from __future__ import annotations

import time
from collections.abc import Callable

_STEP_SECONDS = 1.0


class SteadyClock:
    """Unix time that never runs backwards, beside the monotonic time that it is kept by.

    Rates divide by differences of these times, so a clock that is set back must not be followed; one that is
    set forward (or a machine that woke from sleep) is, since time really passed or the old value was wrong.
    """

    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wall = wall
        self.monotonic = monotonic
        self._shift = wall() - monotonic()

    def now(self) -> float:
        """Unix seconds."""
        steady = self.monotonic() + self._shift
        wall = self._wall()
        if wall - steady > _STEP_SECONDS:
            self._shift += wall - steady
            return wall
        return steady
