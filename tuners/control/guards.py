"""Hard guards: what ends a change at once, whatever the verdict would have been.

A guard compares the changed replicas with untouched ones over the same time, so that what happens to the
whole fleet is not blamed on the change; and it knows the noise of what it counts, since it is asked every
tick: a difference is held against chance before it trips.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

from enginetop.fleet.change import Guard
from enginetop.fleet.frozen import frozen
from enginetop.fleet.model import ReplicaState
from enginetop.fleet.snapshot import FleetSnapshot
from tuners.control.observe import (
    BAD,
    FINISHED,
    GENERATED,
    PREEMPTIONS,
    PROMPTED,
    Mark,
    increase,
    mark_before,
)
from tuners.control.probability import binomial_tail
from tuners.limits import FRESH

_STALE_SECONDS = 15.0
_OLDEST_INTERVALS = 5
_OLDEST_SECONDS = 30.0
ERROR_RATIO = 0.01
PREEMPTIONS_PER_SECOND = 0.1
PREEMPTION_RATIO = 0.01
_PREEMPTED_TOGETHER = 2
"""Preemptions come in clusters; so many are counted as one when they are held against chance."""
CHANCE = 1e-5
"""A guard looks some hundred times during a change: what chance brings more often must not trip it."""
THROUGHPUT_LOSS = 0.30
_THROUGHPUT_NOISE = 4.5
"""Three standard deviations of the tokens of one window, times the root of its requests: output lengths
vary by about 1.1 times their mean, arrivals by once."""
MIX_RATIO = 0.10
_MIX_Z = 3.0
_FEWEST_MIX_BLOCKS = 5
_SETS_OUTPUT_LENGTH = frozenset({"thinking_token_budget"})


@frozen(eq=False)
class Watched:
    """What the guards look at. `recent` holds marks of the last two windows, `marks` those of block ends.
    `settled` tells for targets that we restarted since when there are pages of the new process.

    `reference` are untouched replicas for comparison. Once a change is promoted to all there is none: then
    `observed`, the baselines of the observation, tell by those marks what was usual without the change.
    """

    now: float
    snapshot: FleetSnapshot
    knob: str
    began: float
    settled: Mapping[str, float]
    changed: tuple[str, ...]
    reference: tuple[str, ...]
    observed: tuple[str, ...]
    recent: tuple[Mark, ...]
    marks: tuple[Mark, ...]
    window_seconds: float


def check(watched: Watched) -> tuple[Guard, ...]:
    """All guards; the change goes on while each is `ok`."""
    if not watched.changed:  # the only one is being restarted
        return (_picture(watched), _state(watched, "baselines", watched.reference))
    return (
        _picture(watched),
        _state(watched, "changed replicas", watched.changed),
        _state(watched, "baselines", watched.reference),
        _errors(watched),
        _preemptions(watched),
        _throughput(watched),
        _mix(watched),
    )


def _picture(watched: Watched) -> Guard:
    age = watched.now - watched.snapshot.at
    limit = max(_OLDEST_INTERVALS * watched.snapshot.interval_seconds, _OLDEST_SECONDS)
    return Guard("fresh picture", age <= limit, f"{age:.0f} s old")


def _state(watched: Watched, name: str, targets: Sequence[str]) -> Guard:
    for target in targets:
        replica = watched.snapshot.replica(target)
        if replica is None:
            return Guard(name, False, f"{target} is gone")
        if replica.state is ReplicaState.STALE and replica.scraped_at is not None:
            # a page or two that come late are a hiccup of the one who looks, as a rule
            if watched.now - replica.scraped_at > _STALE_SECONDS:
                age = watched.now - replica.scraped_at
                return Guard(name, False, f"{replica.target.name} is stale (no good page for {age:.0f} s)")
        elif replica.state not in FRESH:
            why = f" ({replica.reasons[0]})" if replica.reasons else ""
            return Guard(name, False, f"{replica.target.name} is {replica.state}{why}")
        since = watched.settled.get(target, watched.began)
        if replica.restarted_after(since):
            return Guard(name, False, f"{replica.target.name} restarted")
    return Guard(name, True, f"{len(targets)} fresh")


def _errors(watched: Watched) -> Guard:
    name = "errors"
    span = _last_window(watched)
    if span is None:
        return Guard(name, True, "first window")
    bad, finished = (increase(*span, watched.changed, *names) for names in (BAD, (FINISHED,)))
    compared, targets = _untouched(watched, span)
    other_bad, other = (increase(*compared, targets, *names) for names in (BAD, (FINISHED,)))
    if finished <= 0:
        return Guard(name, True, "none finished")
    other_ratio = other_bad / other if other > 0 else 0.0
    words = f"{100 * bad / finished:.2f} % against {100 * other_ratio:.2f} %"
    # given all that went wrong, how likely is it that so much of it fell on the changed ones by chance?
    by_chance = binomial_tail(bad, bad + other_bad, finished / (finished + max(other, 1.0)))
    trips = bad / finished - other_ratio > ERROR_RATIO and by_chance < CHANCE
    return Guard(name, not trips, words)


def _preemptions(watched: Watched) -> Guard:
    name = "preemptions"
    span = _last_window(watched)
    if span is None:
        return Guard(name, True, "first window")
    own = increase(*span, watched.changed, PREEMPTIONS)
    finished = increase(*span, watched.changed, FINISHED)
    exposure = (span[1].at - span[0].at) * len(watched.changed)
    compared, targets = _untouched(watched, span)
    other = increase(*compared, targets, PREEMPTIONS)
    other_exposure = (compared[1].at - compared[0].at) * max(1, len(targets))
    rate, other_rate = own / exposure, other / other_exposure
    critical = rate > PREEMPTIONS_PER_SECOND or own > PREEMPTION_RATIO * finished
    by_chance = binomial_tail(
        own / _PREEMPTED_TOGETHER,
        (own + other) / _PREEMPTED_TOGETHER,
        exposure / (exposure + other_exposure),
    )
    trips = critical and rate > 2 * other_rate and by_chance < CHANCE
    return Guard(name, not trips, f"{rate:.2f}/s against {other_rate:.2f}/s")


def _throughput(watched: Watched) -> Guard:
    name = "throughput"
    if not watched.reference:
        return Guard(name, True, "no untouched replica left to compare with")
    window = watched.window_seconds
    last = watched.recent[-1] if watched.recent else None
    middle = mark_before(watched.recent, watched.now - window)
    first = mark_before(watched.recent, watched.now - 2 * window)
    if last is None or middle is None or first is None:
        return Guard(name, True, "first two windows")
    # a thinking budget makes answers shorter: then requests are the throughput
    by_request = watched.knob in _SETS_OUTPUT_LENGTH
    total, what = (FINISHED, "requests/s") if by_request else (GENERATED, "tokens/s")
    ratios: list[float] = []
    low = True
    for span in ((first, middle), (middle, last)):
        own = increase(*span, watched.changed, total) / len(watched.changed)
        other = increase(*span, watched.reference, total) / len(watched.reference)
        requests = increase(*span, watched.reference, FINISHED) / len(watched.reference)
        if other <= 0 or requests <= 0:
            return Guard(name, True, "no traffic")
        ratios.append(own / other)
        low = low and ratios[-1] < 1 - max(THROUGHPUT_LOSS, _THROUGHPUT_NOISE / math.sqrt(requests))
    words = " then ".join(f"{100 * (ratio - 1):+.0f} %" for ratio in ratios)
    return Guard(name, not low, f"{words} {what} against the baselines")


def _mix(watched: Watched) -> Guard:
    """Whether both sides serve the same kind of requests, as far as their lengths tell."""
    name = "traffic mix"
    if not watched.reference or len(watched.marks) <= _FEWEST_MIX_BLOCKS:
        return Guard(name, True, "first blocks")
    words: list[str] = []
    ok = True
    for what, total in (("prompts", PROMPTED), ("outputs", GENERATED)):
        if total == GENERATED and watched.knob in _SETS_OUTPUT_LENGTH:
            continue
        found = _log_ratio(watched, total)
        if found is None:
            continue
        log_ratio, error = found
        ok = ok and abs(log_ratio) - _MIX_Z * error <= math.log1p(MIX_RATIO)
        words.append(f"{what} {100 * math.expm1(log_ratio):+.1f} %")
    return Guard(name, ok, ", ".join(words) or "lengths not known")


def _log_ratio(watched: Watched, total: str) -> tuple[float, float] | None:
    """Log of (tokens a request, changed over reference) and its standard error, from the blocks."""
    rows = [
        tuple(
            increase(earlier, later, targets, name)
            for targets in (watched.changed, watched.reference)
            for name in (total, FINISHED)
        )
        for earlier, later in pairwise(watched.marks)
    ]
    own, own_count, other, other_count = (sum(column) for column in zip(*rows, strict=True))
    if min(own, own_count, other, other_count) <= 0:
        return None
    influences = [row[0] / own - row[1] / own_count - row[2] / other + row[3] / other_count for row in rows]
    scale = len(rows) / (len(rows) - 1)
    error = math.sqrt(scale * sum(value * value for value in influences))
    return math.log(own / own_count) - math.log(other / other_count), error


def _untouched(watched: Watched, span: tuple[Mark, Mark]) -> tuple[tuple[Mark, Mark], tuple[str, ...]]:
    """Which replicas, over which time, show what is usual without the change."""
    if watched.reference or len(watched.marks) < 2:
        return span, watched.reference
    return (watched.marks[0], watched.marks[-1]), watched.observed


def _last_window(watched: Watched) -> tuple[Mark, Mark] | None:
    """The ends of the last window; None until a third of one is there."""
    if not watched.recent:
        return None
    last = watched.recent[-1]
    first = mark_before(watched.recent, watched.now - watched.window_seconds) or watched.recent[0]
    return (first, last) if last.at - first.at >= watched.window_seconds / 3 else None
