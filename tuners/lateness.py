"""How many requests missed the TTFT objective or were preempted, over minutes: a p95 of one minute hides what
comes and goes, and a single bad minute is no reason to change a knob.
"""

from __future__ import annotations

import math

from enginetop.fleet.frozen import frozen
from tuners.case import Case, once
from tuners.kv_maths import preempted_ratio
from tuners.limits import FEWEST_FOR_P99

FEWEST_MINUTES = 5


@frozen
class Lateness:
    """The share of the requests that missed the TTFT objective, preemptions for each request, and over how
    many minutes and requests."""

    ttft_ratio: float
    preempted_ratio: float
    minutes: int
    requests: float


@once
def lateness_of(case: Case) -> Lateness | None:
    """Over all minutes since the knobs are as they are; None with too few of them."""
    minutes = case.minutes
    requests = math.fsum(one.requests for one in minutes)
    if len(minutes) < FEWEST_MINUTES or requests < FEWEST_FOR_P99:
        return None
    return Lateness(
        math.fsum(one.requests * (1.0 - one.ttft_within) for one in minutes) / requests,
        preempted_ratio(math.fsum(one.preemptions for one in minutes), requests),
        len(minutes),
        requests,
    )
