"""Drafts and their luck: a request's hits by draft step, at the draft length of the moment."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Sequence
from functools import cache
from itertools import accumulate

_RESOLUTION = 1 << 16
_ONE_MORE = bytes((hits + 1) % 256 for hits in range(256))


class Luck:
    """Draws how many of the drafted tokens a draft step gets right, each position with its chance.

    `acceptance[i]` is the unconditional chance of position i, met to 1 part in 65 536.
    """

    def __init__(self, acceptance: Sequence[float], seed: str) -> None:
        self._random = random.Random(seed)
        # Of each 65 536 equally likely draws those below the chance of a position reach it.
        reached = [_RESOLUTION, *(round(chance * _RESOLUTION) for chance in acceptance), 0]
        self._hits = b"".join(
            bytes([hits]) * (reached[hits] - reached[hits + 1]) for hits in range(len(acceptance) + 1)
        )

    def draw(self, steps: int) -> bytes:
        """The hits of the next draft steps."""
        drawn = memoryview(self._random.randbytes(2 * steps)).cast("H")
        return bytes(map(self._hits.__getitem__, drawn))


@cache
def _caps(drafts: int) -> bytes:
    return bytes(min(hits, drafts) for hits in range(256))


def capped(accepted: bytes, drafts: int) -> bytes:
    """The hits when only `drafts` positions are drafted: the chance of a position does not depend on that."""
    return accepted.translate(_caps(drafts))


def steps_to_gain(accepted: bytes, done: int, tokens: int) -> int:
    """Draft steps after the first `done` that it takes to gain `tokens`."""
    gains = list(accumulate(accepted[done : done + tokens].translate(_ONE_MORE)))
    return bisect_left(gains, tokens) + 1 if tokens else 0


def count_accepted(accepted: bytes, accepted_at: list[int], drafts: int) -> None:
    """Add the hits of some draft steps to the counts by position."""
    reached = 0
    for position in range(drafts - 1, -1, -1):
        reached += accepted.count(position + 1)
        accepted_at[position] += reached
