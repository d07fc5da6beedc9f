"""The verdict of a canary: SLO attainment against fresh baselines over the same blocks of time.

Requests that share a batch are not independent, and neither are blocks that share a queue. The variance is
therefore taken from the blocks, not from the requests: each block's part of the difference is projected on
the slowest `blocks // 5` cosine waves, whose mean square estimates the variance at frequency zero, with
correlation of neighbours and with exactly that many degrees of freedom for uncorrelated blocks (Mueller 2007;
Lazarus, Lewis, Stock and Watson 2018). No verdict is surer than it would be if all requests were independent.

The bounds are those that either arm's own score limits give the difference (Newcombe 1998, method 10): they
hold where nobody or everybody is in time, and a lucky arm is not also the surer one.

Replicas that do the same differ as well: one is ill, or has a queue for an hour by bad luck. So no verdict
hangs on one baseline: a gain or a loss has to be seen whichever of them is left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

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
_LEFT_OUT_ALPHAS = 2
"""How many alphas a gain or a loss may err by with a baseline left out: what is left tells less."""
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


def judge(
    blocks: Sequence[Block],
    *,
    alpha: float,
    margin: float,
    without: Mapping[str, Sequence[Block]] = MappingProxyType({}),
) -> Judgement:
    """The verdict on all blocks of a finished observation. Pure; looks once, at the fixed end.

    `without` holds, by the name of each baseline, the same blocks with that one left out; empty: there is but
    one.
    """
    requests, other_requests, filled = _traffic(blocks)
    if not _suffices(blocks):
        why = (
            f"too little traffic: {requests:.0f} requests on the canary, {other_requests:.0f} on the "
            f"baselines, {filled} of {len(blocks)} blocks with both; {FEWEST_REQUESTS} requests an arm "
            f"and {FEWEST_BLOCKS} blocks are the least"
        )
        return Judgement(Verdict.INCONCLUSIVE, None, None, None, None, why)
    seen = _compared(blocks, alpha)
    verdict, but = _verdict(
        seen,
        min(margin, _MOST_LOST_RATIO * seen.other.ratio),
        {name: left for name, left in without.items() if _suffices(left)},
        alpha,
    )
    why = (
        f"attainment {100 * seen.own.ratio:.2f} % against {100 * seen.other.ratio:.2f} %: "
        f"{100 * seen.difference:+.2f} points, "
        f"{100 * (1 - alpha):g} % bounds {100 * seen.low:+.2f} and {100 * seen.high:+.2f}"
    )
    if seen.effect is not None and seen.effect >= _TOLD_EFFECT:
        why += f", design effect {seen.effect:.1f}"
    return Judgement(verdict, seen.difference, seen.low, seen.high, seen.effect, f"{why}{but}")


@frozen
class _Compared:
    """One arm held against the other, with one-sided bounds of the difference at alpha each."""

    own: _Arm
    other: _Arm
    low: float
    high: float
    effect: float | None

    @property
    def difference(self) -> float:
        """Of the attainments."""
        return self.own.ratio - self.other.ratio


def _compared(blocks: Sequence[Block], alpha: float) -> _Compared:
    requests, other_requests, _ = _traffic(blocks)
    own = _Arm.of(requests, sum(block.canary_within for block in blocks))
    other = _Arm.of(other_requests, sum(block.baseline_within for block in blocks))
    difference = own.ratio - other.ratio
    waves = max(4, len(blocks) // 5)
    error = math.sqrt(_variance(_parts(blocks, own, other), waves))
    independent = math.sqrt(own.variance + other.variance)
    errors = max(normal_quantile(1 - alpha), t_quantile(1 - alpha, waves) * error / independent)
    (own_low, own_high), (other_low, other_high) = own.limits(errors), other.limits(errors)
    return _Compared(
        own,
        other,
        low=difference - math.hypot(own.ratio - own_low, other_high - other.ratio),
        high=difference + math.hypot(own_high - own.ratio, other.ratio - other_low),
        effect=(error / independent) ** 2 if error > 0 else None,
    )


def _verdict(
    seen: _Compared, margin: float, without: Mapping[str, Sequence[Block]], alpha: float
) -> tuple[Verdict, str]:
    """The verdict, and the end of its reason where a baseline stands against what all together say."""
    claims = {name: _compared(left, _LEFT_OUT_ALPHAS * alpha) for name, left in without.items()}
    no_gain = next((name for name, left in claims.items() if left.low <= 0), None)
    no_loss = next((name for name, left in claims.items() if left.high >= 0), None)
    a_loss = next((name for name, left in without.items() if _compared(left, alpha).high < 0), None)
    if seen.low > 0 and no_gain is None:
        return Verdict.IMPROVED, ""
    if seen.high < 0:
        if no_loss is None:
            return Verdict.WORSE, ""
        return Verdict.INCONCLUSIVE, f"; no loss without {no_loss}"
    if seen.low <= -margin:
        return Verdict.INCONCLUSIVE, ""
    if a_loss is not None:
        return Verdict.INCONCLUSIVE, f"; a loss without {a_loss}"
    return Verdict.NOT_WORSE, f"; no gain without {no_gain}" if seen.low > 0 else ""


def _traffic(blocks: Sequence[Block]) -> tuple[float, float, int]:
    """Judged requests of either side, and the blocks in which both have some."""
    return (
        sum(block.canary_requests for block in blocks),
        sum(block.baseline_requests for block in blocks),
        sum(1 for block in blocks if block.canary_requests > 0 and block.baseline_requests > 0),
    )


def _suffices(blocks: Sequence[Block]) -> bool:
    requests, other_requests, filled = _traffic(blocks)
    return min(requests, other_requests) >= FEWEST_REQUESTS and filled >= FEWEST_BLOCKS


@frozen
class _Arm:
    """Judged requests of one side, and those within the SLO."""

    requests: float
    within: float

    @classmethod
    def of(cls, requests: float, within: float) -> _Arm:
        """What was counted. A page read between two counters tells of one more in time than was judged."""
        return cls(requests, min(requests, within))

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
