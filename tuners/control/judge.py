"""The verdict of a canary: SLO attainment against fresh baselines over the same blocks of time.

Requests that share a batch are not independent, and neither are blocks that share a queue. The variance is
therefore taken from the blocks, not from the requests: each block's part of the difference is projected on
the slowest `blocks // 5` cosine waves, whose mean square estimates the variance at frequency zero, with
correlation of neighbours and with exactly that many degrees of freedom for uncorrelated blocks (Mueller 2007;
Lazarus, Lewis, Stock and Watson 2018). No verdict is surer than it would be if all requests were independent.

The bounds are those that either arm's own score limits give the difference (Newcombe 1998, method 10): they
hold where nobody or everybody is in time, and a lucky arm is not also the surer one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from enginetop.fleet.change import Verdict
from enginetop.fleet.frozen import frozen
from tuners.control.probability import normal_quantile, t_quantile

FEWEST_BLOCKS = 8
"""Blocks with requests on both sides, below which nothing is concluded."""
FEWEST_REQUESTS = 50
"""Judged requests an arm, below which nothing is concluded."""
POWER = 0.8
"""The power that sample sizes are worked out for."""

_MOST_LOST_RATIO = 0.1
"""`not_worse` rules out the loss of so much of what the baselines attain, too: where hardly anybody is in
time, losing all of them lies within the margin.
"""
_TOLD_EFFECT = 0.1
"""A smaller design effect only says that one side never varied; it is not worth a word."""


@frozen
class Block:
    """Counts of one block of time: judged requests and those within the SLO, canary and pooled baselines."""

    began: float
    ended: float
    canary_requests: float
    canary_within: float
    baseline_requests: float
    baseline_within: float


@frozen
class Judgement:
    """A verdict with its figures. `low` and `high` are one-sided bounds of the difference at alpha each.

    `design_effect` is the variance found over that of independent requests; None before there is any.
    """

    verdict: Verdict
    difference: float | None
    low: float | None
    high: float | None
    design_effect: float | None
    why: str


def required_requests(
    attainment: float, difference: float, alpha: float, *, design_effect: float = 1.0
) -> int:
    """Requests an arm to see `difference` (a ratio) at `attainment`: 2 (z_a + z_b)^2 p (1 - p) / d^2."""
    z = normal_quantile(1 - alpha) + normal_quantile(POWER)
    return math.ceil(2 * z * z * attainment * (1 - attainment) / difference**2 * design_effect)


def judge(blocks: Sequence[Block], *, alpha: float, margin: float) -> Judgement:
    """The verdict on all blocks of a finished observation. Pure; looks once, at the fixed end."""
    requests = sum(block.canary_requests for block in blocks)
    other_requests = sum(block.baseline_requests for block in blocks)
    filled = sum(1 for block in blocks if block.canary_requests > 0 and block.baseline_requests > 0)
    if min(requests, other_requests) < FEWEST_REQUESTS or filled < FEWEST_BLOCKS:
        why = (
            f"too little traffic: {requests:.0f} requests on the canary, {other_requests:.0f} on the "
            f"baselines, {filled} of {len(blocks)} blocks with both; {FEWEST_REQUESTS} requests an arm "
            f"and {FEWEST_BLOCKS} blocks are the least"
        )
        return Judgement(Verdict.INCONCLUSIVE, None, None, None, None, why)
    own = _Arm(requests, sum(block.canary_within for block in blocks))
    other = _Arm(other_requests, sum(block.baseline_within for block in blocks))
    difference = own.ratio - other.ratio
    waves = max(4, len(blocks) // 5)
    error = math.sqrt(_variance(_parts(blocks, own, other), waves))
    independent = math.sqrt(own.variance + other.variance)
    errors = max(normal_quantile(1 - alpha), t_quantile(1 - alpha, waves) * error / independent)
    (own_low, own_high), (other_low, other_high) = own.limits(errors), other.limits(errors)
    low = difference - math.hypot(own.ratio - own_low, other_high - other.ratio)
    high = difference + math.hypot(own_high - own.ratio, other.ratio - other_low)
    if low > 0:
        verdict = Verdict.IMPROVED
    elif high < 0:
        verdict = Verdict.WORSE
    elif low > -min(margin, _MOST_LOST_RATIO * other.ratio):
        verdict = Verdict.NOT_WORSE
    else:
        verdict = Verdict.INCONCLUSIVE
    effect = (error / independent) ** 2 if error > 0 else None
    why = (
        f"attainment {100 * own.ratio:.2f} % against {100 * other.ratio:.2f} %: "
        f"{100 * difference:+.2f} points, "
        f"{100 * (1 - alpha):g} % bounds {100 * low:+.2f} and {100 * high:+.2f}"
    )
    if effect is not None and effect >= _TOLD_EFFECT:
        why += f", design effect {effect:.1f}"
    return Judgement(verdict, difference, low, high, effect, why)


@frozen
class _Arm:
    """Judged requests of one side, and those within the SLO."""

    requests: float
    within: float

    @property
    def ratio(self) -> float:
        """The attainment."""
        return self.within / self.requests

    @property
    def variance(self) -> float:
        """Of the attainment of independent requests; half a request is added to either count, so that an arm
        without a miss has some.
        """
        ratio = (self.within + 0.5) / (self.requests + 1.0)
        return ratio * (1.0 - ratio) / self.requests

    def limits(self, errors: float) -> tuple[float, float]:
        """The attainments which this one is so many of their own standard errors from (Wilson 1927)."""
        doubt = errors * errors / self.requests
        middle = self.ratio + doubt / 2
        reach = math.sqrt(doubt * self.ratio * (1.0 - self.ratio) + doubt * doubt / 4)
        return (middle - reach) / (1.0 + doubt), (middle + reach) / (1.0 + doubt)


def _parts(blocks: Sequence[Block], own: _Arm, other: _Arm) -> list[float]:
    """What each block adds to the difference; their sum is 0."""
    return [
        (block.canary_within - own.ratio * block.canary_requests) / own.requests
        - (block.baseline_within - other.ratio * block.baseline_requests) / other.requests
        for block in blocks
    ]


def _variance(parts: Sequence[float], waves: int) -> float:
    """Long-run variance of the sum of `parts`, from their slowest cosine waves."""
    count = len(parts)
    power = 0.0
    for wave in range(1, waves + 1):
        turn = math.pi * wave / count
        projection = sum(value * math.cos(turn * (i + 0.5)) for i, value in enumerate(parts))
        power += projection * projection * 2.0 / count
    return count * power / waves
