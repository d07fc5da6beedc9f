"""Drafts and their luck: a request's hits by draft step, at the draft length of the moment."""

from __future__ import annotations

from functools import cache


@cache
def _caps(drafts: int) -> bytes:
    return bytes(min(hits, drafts) for hits in range(256))


def capped(accepted: bytes, drafts: int) -> bytes:
    """The hits when only `drafts` positions are drafted: the chance of a position does not depend on that."""
    return accepted.translate(_caps(drafts))


def lengthened(accepted: bytes, steps: int) -> bytes:
    """At least `steps` draft steps; when those that were drawn are used up, their luck comes round again.

    Shorter drafts than the engine was started with need more steps than were drawn.
    """
    repeats = -(-steps // len(accepted)) if accepted else 0
    return accepted * repeats if accepted else bytes(steps)


def count_accepted(accepted: bytes, accepted_at: list[int], drafts: int) -> int:
    """Add the hits of some draft steps to the counts by position; returns how many tokens that are."""
    reached = 0
    total = 0
    for position in range(drafts - 1, -1, -1):
        reached += accepted.count(position + 1)
        accepted_at[position] += reached
        total += reached
    return total
