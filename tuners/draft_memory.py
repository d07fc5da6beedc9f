"""What was measured of one engine with each number of drafts, kept for a comparison.

A model of the step says what another k would do; a measurement says what it did. Where both numbers of drafts
were seen at batches of a similar size, the measurement decides.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from types import MappingProxyType

from enginetop.fleet.frozen import frozen
from tuners.moments import Moment
from tuners.step_time import StepFit, StepWindow, Unfit, fit_step_time

COMPARED_SPREAD = 1.15
"""Fullest step window over the emptiest for a fit that is compared, not extrapolated."""
LIKE_BATCH_RATIO = 1.25
"""Batches within this factor of each other are compared by their speed."""
_FEWEST_MOMENTS = 5
_LEAST_SECONDS = 60.0


@frozen
class Speed:
    """Tokens per second of one engine while it ran `running` requests on average."""

    running: float
    tokens_per_second: float

    def is_like(self, other: Speed) -> bool:
        """Whether both batches were of about the same size."""
        low, high = sorted((self.running, other.running))
        return low > 0 and high <= LIKE_BATCH_RATIO * low


def speed_of(recent: Sequence[Moment], engines: int) -> Speed | None:
    """Speed over the pages of the last minutes; None over less than a minute."""
    told = [one for one in recent if one.running is not None and one.generated_tokens is not None]
    if len(told) < _FEWEST_MOMENTS or told[-1].at - told[0].at < _LEAST_SECONDS:
        return None
    gained = (told[-1].generated_tokens or 0.0) - (told[0].generated_tokens or 0.0)
    running = math.fsum(one.running or 0.0 for one in told) / len(told)
    return Speed(running / engines, gained / (told[-1].at - told[0].at) / engines)


@frozen
class Drafted:
    """Fits of the step time, and speeds, by number of drafts."""

    fits: Mapping[int, StepFit] = field(default_factory=lambda: MappingProxyType({}))
    speeds: Mapping[int, Speed] = field(default_factory=lambda: MappingProxyType({}))


NOTHING_DRAFTED = Drafted()


class DraftMemory:
    """Keeps the newest fit and speed of each number of drafts, of one engine and model."""

    def __init__(self) -> None:
        self._fits: dict[int, StepFit] = {}
        self._speeds: dict[int, Speed] = {}

    @property
    def known(self) -> Drafted:
        """All that is kept."""
        if not self._fits and not self._speeds:
            return NOTHING_DRAFTED
        return Drafted(MappingProxyType(dict(self._fits)), MappingProxyType(dict(self._speeds)))

    def forget(self) -> None:
        """Another model: nothing can be compared."""
        self._fits.clear()
        self._speeds.clear()

    def keep(
        self, drafts: int, windows: Sequence[StepWindow], recent: Sequence[Moment], engines: int
    ) -> None:
        """What was seen with `drafts` drafts, before a knob changed."""
        fit, speed = fit_step_time(windows, COMPARED_SPREAD), speed_of(recent, engines)
        if not isinstance(fit, Unfit):
            self._fits[drafts] = fit
        if speed is not None:
            self._speeds[drafts] = speed
