"""A clock for what has to be done in time, whatever becomes of the machine's."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class SteadyClock:
    """Unix seconds of `clock`; they go on where it is set back, and are ahead of it from then on.

    What a change waits for (a renewal before a ttl is over, above all) would wait for as long as the clock
    was set back. May be asked from any thread.
    """

    def __init__(self, clock: Callable[[], float], monotonic: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._monotonic = clock, monotonic
        self._ahead = 0.0
        self._told: tuple[float, float] | None = None
        """What was told last, and when by `monotonic`."""
        self._lock = threading.Lock()

    def __call__(self) -> float:
        """Now; never less than it was before."""
        with self._lock:
            now, passed = self._clock() + self._ahead, self._monotonic()
            if self._told is not None and now < self._told[0]:
                should = self._told[0] + passed - self._told[1]
                self._ahead, now = self._ahead + should - now, should
            self._told = now, passed
            return now
