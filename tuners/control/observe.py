"""Counts over time: marks of the running totals, and blocks and rates between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from enginetop.fleet.frozen import frozen
from enginetop.fleet.snapshot import FleetSnapshot
from tuners.control.judge import Block

JUDGED = "requests_judged"
WITHIN = "requests_within_slo"
FINISHED = "requests_finished"
BAD = ("requests_aborted", "requests_errored")
PREEMPTIONS = "preemptions"
GENERATED = "generation_tokens"
PROMPTED = "prompt_tokens_processed"


@frozen(eq=False)
class Mark:
    """The running totals of some replicas at one instant, by target."""

    at: float
    totals: Mapping[str, Mapping[str, float]]


def mark(now: float, snapshot: FleetSnapshot, targets: Iterable[str]) -> Mark:
    """The totals of `targets` as the snapshot has them; one that is gone has none."""
    wanted = frozenset(targets)
    found = {
        replica.target.url: replica.totals for replica in snapshot.replicas if replica.target.url in wanted
    }
    return Mark(now, found)


def increase(earlier: Mark, later: Mark, targets: Iterable[str], *names: str) -> float:
    """The summed increase of the named totals over `targets` between two marks; what is unknown adds 0."""
    grown = 0.0
    for target in targets:
        before, after = earlier.totals.get(target), later.totals.get(target)
        if before is None or after is None:
            continue
        for name in names:
            if name in after:
                grown += max(0.0, after[name] - before.get(name, 0.0))
    return grown


def blocks_between(
    marks: Sequence[Mark], canaries: Sequence[str], baselines: Sequence[str]
) -> tuple[Block, ...]:
    """The blocks between consecutive marks."""
    return tuple(
        Block(
            began=earlier.at,
            ended=later.at,
            canary_requests=increase(earlier, later, canaries, JUDGED),
            canary_within=increase(earlier, later, canaries, WITHIN),
            baseline_requests=increase(earlier, later, baselines, JUDGED),
            baseline_within=increase(earlier, later, baselines, WITHIN),
        )
        for earlier, later in pairwise(marks)
    )


def with_mark(recent: tuple[Mark, ...], new: Mark, window_seconds: float) -> tuple[Mark, ...]:
    """`recent` with `new` at its end: two windows back, thinned to thirty marks a window."""
    if recent and new.at - recent[-1].at < window_seconds / 30:
        return recent
    first = 0
    while first + 1 < len(recent) and recent[first + 1].at <= new.at - 2 * window_seconds:
        first += 1
    return (*recent[first:], new)


def mark_before(recent: Sequence[Mark], at: float) -> Mark | None:
    """The newest mark that is not after `at`."""
    return next((found for found in reversed(recent) if found.at <= at), None)
