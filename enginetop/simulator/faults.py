"""What can go wrong with a simulated replica, for how long, and whom it hits."""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum

from enginetop.fleet.errors import ConfigError
from enginetop.fleet.frozen import frozen


class FaultKind(StrEnum):
    """Every kind of fault; what it does beside."""

    DOWN = "down"  # the process dies; afterwards a new one starts with empty counters and a cold cache
    HANG = "hang"  # the engine makes no step; its page is served and stands still
    UNRESPONSIVE = "unresponsive"  # no HTTP request is answered; the engine works on
    SLOW = "slow"  # every step takes `factor` times as long
    RESET = "reset"  # counters begin anew in the same process
    ERRORS = "errors"  # a share `ratio` of the requests that arrive fail
    MISSES = "misses"  # a share `ratio` of the requests that would be within the SLO are not
    SURGE = "surge"  # `factor` times as many requests arrive


_INSTANT = frozenset({FaultKind.RESET})
_WITH_RATIO = frozenset({FaultKind.ERRORS, FaultKind.MISSES})
_DEFAULT_FACTOR = 3.0
_DEFAULT_RATIO = 0.2


@frozen
class Fault:
    """One fault of one replica. Seconds count from the start of the fleet.

    `every_seconds` (from one beginning to the next) makes it come again and again. `for_seconds` may be
    infinite. `factor` and `ratio` count for the kinds that name them.
    """

    kind: FaultKind
    at_seconds: float
    for_seconds: float = 0.0
    every_seconds: float | None = None
    factor: float = _DEFAULT_FACTOR
    ratio: float = _DEFAULT_RATIO

    def __post_init__(self) -> None:
        if self.kind not in _INSTANT and not self.for_seconds > 0:
            raise ConfigError(f"a fault of kind {self.kind.value!r} needs for_seconds above 0")
        if self.every_seconds is not None and not self.for_seconds < self.every_seconds:
            raise ConfigError("a fault must be shorter than the time from one to the next (every_seconds)")
        if self.kind in _WITH_RATIO and not 0 <= self.ratio <= 1:
            raise ConfigError(f"ratio of a fault must lie between 0 and 1, not {self.ratio}")
        if not self.factor > 0:
            raise ConfigError(f"factor of a fault must be above 0, not {self.factor}")


def outage(at_seconds: float, every_seconds: float, for_seconds: float) -> Fault:
    """The process dies and comes back, again and again."""
    return Fault(FaultKind.DOWN, at_seconds, for_seconds, every_seconds)


@dataclass(slots=True)
class Conditions:
    """What faults do to an engine: steps `slowness` times as long, shares of requests that fail, and that are
    spoilt for the SLO.
    """

    slowness: float = 1.0
    error_ratio: float = 0.0
    miss_ratio: float = 0.0


class Chance:
    """Whom `conditions` hit, drawn request by request; `seed` decides."""

    def __init__(self, conditions: Conditions, seed: str) -> None:
        self._conditions = conditions
        self._random = random.Random(f"{seed}/faults")

    def fails(self) -> bool:
        """Whether the request that arrives now fails."""
        return 0 < self._conditions.error_ratio > self._random.random()

    def spoils(self) -> bool:
        """Whether the request that ends now, within the SLO, is kept from being so."""
        return 0 < self._conditions.miss_ratio > self._random.random()
