"""How far apart the pages of one source are, and when its newest one is too old."""

from __future__ import annotations

import math
from array import array
from statistics import median

STALE_SPACINGS = 3.0
"""A page older than this many spacings is stale."""

_REMEMBERED = 32


class Spacing:
    """The time between the good pages of one source.

    Live, `fixed_seconds` is the asked interval, and a source that is always slower than that is judged by its
    own median. In a replay it is None: only the source's own median counts, and one page alone has none.
    """

    __slots__ = ("_fixed_seconds", "_gaps", "_known", "_last_at", "_slow_gaps")

    def __init__(self, fixed_seconds: float | None) -> None:
        self._fixed_seconds = fixed_seconds
        self._gaps = array("d")
        self._known: float | None = None
        """The spacing as it was asked for last; None: not since the newest page."""
        self._slow_gaps = 0
        """How many of the gaps are longer than the asked interval."""
        self._last_at: float | None = None

    def observe(self, at: float) -> None:
        """Take a good page of Unix time `at`; two pages of one instant are one."""
        if self._last_at is not None and at > self._last_at:
            gaps, fixed = self._gaps, self._fixed_seconds
            if fixed is not None:
                self._slow_gaps += (at - self._last_at > fixed) - (
                    len(gaps) == _REMEMBERED and gaps[0] > fixed
                )
            gaps.append(at - self._last_at)
            del gaps[:-_REMEMBERED]
            self._known = None
        self._last_at = at if self._last_at is None else max(at, self._last_at)

    @property
    def seconds(self) -> float | None:
        """The spacing, None while it is not known."""
        fixed = self._fixed_seconds
        if fixed is not None and 2 * self._slow_gaps < len(self._gaps):
            return fixed  # most gaps are no longer, so that their median is none
        if not self._gaps:
            return fixed
        if self._known is None:
            own = median(self._gaps)
            self._known = own if fixed is None else max(own, fixed)
        return self._known

    @property
    def fresh_seconds(self) -> float:
        """How long a page is fresh; infinite while the spacing is not known."""
        seconds = self.seconds
        return math.inf if seconds is None else STALE_SPACINGS * seconds
