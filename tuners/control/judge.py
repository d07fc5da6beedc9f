"""The verdict of a canary: SLO attainment against fresh baselines over the same blocks of time.

Requests that share a batch are not independent, and neither are blocks that share a queue. The variance is
therefore taken from the blocks, not from the requests: each block's influence on the difference of the two
log odds is projected on the slowest `blocks // 5` cosine waves, whose mean square estimates the variance at
frequency zero, neighbours' correlation included, with exactly that many degrees of freedom for uncorrelated
blocks (Mueller 2007; Lazarus, Lewis, Stock and Watson 2018). No verdict is surer than it would be if all
requests were independent, which also settles attainments of exactly 0 and 1.
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
    within = sum(block.canary_within for block in blocks)
    other_within = sum(block.baseline_within for block in blocks)
    difference = within / requests - other_within / other_requests
    own, other = _Odds.of(within, requests), _Odds.of(other_within, other_requests)
    waves = max(4, len(blocks) // 5)
    error = math.sqrt(_variance(_influences(blocks, own, other), waves))
    independent = math.sqrt(1 / own.information + 1 / other.information)
    reach = max(
        t_quantile(1 - alpha, waves) * error,
        normal_quantile(1 - alpha) * independent,
    )
    gain = own.log_odds - other.log_odds
    low, high = (other.moved_by(gain + side * reach) - other.ratio for side in (-1, 1))
    # the half request of either count moves both a little: the difference that was seen stays between them
    low, high = min(low, difference), max(high, difference)
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
        f"attainment {100 * within / requests:.2f} % against {100 * other_within / other_requests:.2f} %: "
        f"{100 * difference:+.2f} points, "
        f"{100 * (1 - alpha):g} % bounds {100 * low:+.2f} and {100 * high:+.2f}"
    )
    if effect is not None and effect >= _TOLD_EFFECT:
        why += f", design effect {effect:.1f}"
    return Judgement(verdict, difference, low, high, effect, why)


@frozen
class _Odds:
    """One arm on the scale of log odds, where a lucky arm is not also the surer one.

    Half a request is added to either count, so that an arm without a miss has a place there (Haldane).
    """

    requests: float
    ratio: float

    @classmethod
    def of(cls, within: float, requests: float) -> _Odds:
        return cls(requests, (within + 0.5) / (requests + 1.0))

    @property
    def log_odds(self) -> float:
        return math.log(self.ratio / (1 - self.ratio))

    @property
    def information(self) -> float:
        """The inverse of the variance of the log odds of independent requests."""
        return (self.requests + 1.0) * self.ratio * (1 - self.ratio)

    def moved_by(self, log_odds: float) -> float:
        """The ratio that lies so much higher in log odds."""
        return 1.0 / (1.0 + math.exp(-(self.log_odds + log_odds)))


def _influences(blocks: Sequence[Block], own: _Odds, other: _Odds) -> list[float]:
    """What each block adds to the difference of the log odds, to first order; centred."""
    raw = [
        (block.canary_within - own.ratio * block.canary_requests) / own.information
        - (block.baseline_within - other.ratio * block.baseline_requests) / other.information
        for block in blocks
    ]
    mean = sum(raw) / len(raw)
    return [value - mean for value in raw]


def _variance(influences: Sequence[float], waves: int) -> float:
    """Long-run variance of the sum of `influences`, from their slowest cosine waves."""
    count = len(influences)
    power = 0.0
    for wave in range(1, waves + 1):
        turn = math.pi * wave / count
        projection = sum(value * math.cos(turn * (i + 0.5)) for i, value in enumerate(influences))
        power += projection * projection * 2.0 / count
    return count * power / waves
