"""A change of an engine's start values under way, and how long its phases may last."""

from __future__ import annotations

from dataclasses import dataclass

from enginetop.fleet.frozen import frozen
from tuners.control.restartable import Values

DRAINING, RESTARTING, GOING_BACK = "draining", "restarting", "going_back"


@frozen
class Patience:
    """Seconds: how long requests are waited for before a restart, and how long for an engine to be ready.

    `cuts_requests`: restart for a new value although requests still run when the wait is over. The way back
    never waits longer than that.
    """

    drain_seconds: float = 120.0
    ready_seconds: float = 900.0
    cuts_requests: bool = False

    @property
    def longest_seconds(self) -> float:
        """The longest time until a new value is in force, or the former one again."""
        return self.drain_seconds + 2 * self.ready_seconds


@dataclass(slots=True)
class Move:
    """A change under way: the values it goes to and comes from, and how long its phase may last.

    `back`: it leads to the values that are to stay, so that there is nothing else to fall back to. `cuts`:
    the requests that still run when draining is over are cut.
    """

    knob: str
    to: Values
    former: Values
    ttl_seconds: float | None
    phase: str
    until: float
    back: bool
    cuts: bool = True
