"""How far apart the pages of one source are, and when its newest one is too old."""

from __future__ import annotations

import math
from collections import deque
from statistics import median

STALE_SPACINGS = 3.0
"""A page older than this many spacings is stale."""

_REMEMBERED = 32


class Spacing:
    """The time between the good pages of one source.

    Live, `fixed_seconds` is the asked interval, and a source that is always slower than that is judged by its
    own median. In a replay it is None: only the source's own median counts, and one page alone has none.
    """

    __slots__ = ("_fixed_seconds", "_gaps", "_last_at", "_seconds")

    def __init__(self, fixed_seconds: float | None) -> None:
        self._fixed_seconds = fixed_seconds
        self._gaps: deque[float] = deque(maxlen=_REMEMBERED)
        self._seconds = fixed_seconds
        self._last_at: float | None = None

    def observe(self, at: float) -> None:
        """Take a good page of Unix time `at`; two pages of one instant are one."""
        if self._last_at is not None and at > self._last_at:
            self._gaps.append(at - self._last_at)
            own = median(self._gaps)
            self._seconds = own if self._fixed_seconds is None else max(own, self._fixed_seconds)
        self._last_at = at if self._last_at is None else max(at, self._last_at)

    @property
    def seconds(self) -> float | None:
        """The spacing, None while it is not known."""
        return self._seconds

    @property
    def fresh_seconds(self) -> float:
        """How long a page is fresh; infinite while the spacing is not known."""
        return math.inf if self._seconds is None else STALE_SPACINGS * self._seconds
