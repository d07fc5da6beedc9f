"""When a target is asked: hashed turns, late turns dropped, patience with the dead. Pure; time is passed in.

All times are seconds of one steady clock. The turns of a target lie `interval_seconds` apart; where in the
interval is a hash of its URL, so that load is spread evenly and the same on every start. A handful of targets
has its turn at the same moment: to wake up for each costs a small fleet more than the scrapes.
"""

from __future__ import annotations

import math
from hashlib import blake2b

from enginetop.fleet.quickly_made import quickly_made

MAX_BACKOFF_SECONDS = 30.0
"""A target that came back is noticed within this time (or within one interval, if that is longer)."""

FIRST_ROUND_SECONDS = 0.5
"""The first turns of all targets fall into this time, or into one interval if that is shorter."""

FIRST_LOOK_SECONDS = 0.004
"""However many targets there are, one has so much of the first round: a first look asks for several pages."""

TOGETHER = 16
"""So many targets share a moment of the interval."""

_MOMENT_RATIO = 0.75
"""Where in its share of the interval a moment lies: a picture, drawn at its end, is fresh but has answers."""

_JITTER_RATIO = 0.25


def hashed_ratio(*parts: object) -> float:
    """A number in [0, 1) that depends on `parts` alone: the same in every process and on every machine."""
    digest = blake2b("\0".join(map(str, parts)).encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest) / 2**64


@quickly_made
class Turn:
    """The next turn: when it is due, and how many turns before it were dropped because they came too late."""

    due: float
    dropped: int = 0


class TargetSchedule:
    """The turns of one target, from `started_at` on."""

    def __init__(self, key: str, interval_seconds: float, started_at: float, targets: int = 1) -> None:
        """`targets` are looked at for the first time together."""
        self._key = key
        self._interval = interval_seconds
        offset, moments = hashed_ratio(key), -(-targets // TOGETHER)
        self._origin = started_at + (int(offset * moments) + _MOMENT_RATIO) / moments * interval_seconds
        self._failures = 0
        spread = max(min(FIRST_ROUND_SECONDS, interval_seconds), targets * FIRST_LOOK_SECONDS)
        self.first = Turn(started_at + offset * spread)

    def next_turn(self, begun: float, ended: float, failed: bool) -> Turn:
        """The turn after a scrape that was due or asked for at `begun` and ended at `ended`.

        `failed`: nothing answered (a failure of the connection, or a fault of our own). The first failure
        changes nothing, so that the second try, which tells `down`, comes at the next normal turn. After the
        second in a row the wait doubles each time, up to `MAX_BACKOFF_SECONDS`; a hash shortens it by up to a
        quarter, so that targets that died together are not asked together.
        """
        self._failures = self._failures + 1 if failed else 0
        turn = self._regular_turn(begun, ended)
        if self._failures < 2:
            return turn
        wait = min(self._interval * 2.0 ** min(self._failures - 1, 30), MAX_BACKOFF_SECONDS)
        wait *= 1 - _JITTER_RATIO * hashed_ratio(self._key, self._failures)
        return Turn(max(ended + wait, turn.due), turn.dropped)

    def _regular_turn(self, begun: float, ended: float) -> Turn:
        # A scrape out of turn (the first, or one asked for by hand) stands for a turn less than half an
        # interval away, so that no target is asked twice in quick succession.
        served = math.floor((begun - self._origin) / self._interval + 0.5)
        turn = max(served + 1, math.ceil((ended - self._origin) / self._interval))
        return Turn(self._origin + turn * self._interval, turn - served - 1)
