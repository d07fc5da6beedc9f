"""How often Python looks for cycles, seldom enough that a tick of the fleet goes by without, and when free
memory goes back to the system.

Snapshots are trees, which end with their last reference; a tick makes its own before it drops those of the
tick before. Python's usual threshold of 700 new objects would look for cycles in them some hundred times a
tick, at a quarter of the CPU of a large fleet, and one below what a tick makes would do so at every tick.
Memory does not grow by it: new objects that stay are looked at all the same.

Pages, windows and pictures come and go in blocks of all sizes, and what lies between those that stay is free
but ours: a tenth of all after a quarter of an hour. The C library gives it back when it is told to.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from functools import cache

FEWEST_OBJECTS = 50_000
OBJECTS_A_REPLICA = 250
"""More than a tick makes of one replica."""
_OLDER_GENERATIONS = 20, 10


def pace_garbage(replicas: int = 0) -> None:
    """Look for cycles at the pace of a fleet of so many."""
    new_objects = FEWEST_OBJECTS + OBJECTS_A_REPLICA * replicas
    if gc.get_threshold()[0] != new_objects:
        gc.set_threshold(new_objects, *_OLDER_GENERATIONS)


GIVE_BACK_SECONDS = 10.0


class FreeMemory:
    """Call it at every tick: every ten seconds what is free goes back to the system."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, give_back: Callable[[], None] | None = None
    ) -> None:
        """`give_back` is how; None: as the C library does it, if it can."""
        self._clock, self._give_back = clock, give_back or trim
        self._next_at = clock() + GIVE_BACK_SECONDS

    def __call__(self) -> None:
        """Another tick of the fleet."""
        now = self._clock()
        if now >= self._next_at:
            self._next_at = now + GIVE_BACK_SECONDS
            self._give_back()


def trim() -> None:
    """Give free memory back to the system: glibc's malloc_trim(3); others do it by themselves, or never."""
    give_back = _malloc_trim()
    if give_back is not None:
        give_back(0)


@cache
def _malloc_trim() -> Callable[[int], int] | None:
    import ctypes  # some seconds after the start

    return getattr(ctypes.CDLL(None), "malloc_trim", None)
