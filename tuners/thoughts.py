"""How long requests think, over minutes: what share passes a length, and which cap cuts few enough.

Made from the buckets of a histogram. Within a bucket the normal score of the share above a length is taken to
be a straight line over the logarithm of the length. That is exact for log-normal lengths; where the tail is
heavier (a power) it tells a little more than the truth, so that a cap cuts fewer than said. Of a bucket that
nobody leaves only the greatest share is told: thoughts that something cuts (a budget of a gateway, say) end
near its upper bound, and not spread over it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import pairwise

from enginetop.fleet.frozen import frozen
from tuners.control.probability import normal_cdf, normal_quantile
from tuners.limits import MULTIPLE_TOKENS

MOST_TRUNCATED_RATIO = 0.05
"""A budget that is suggested cuts no greater share of the thoughts."""
RISKY_TRUNCATED_RATIO = 0.10
"""A budget that cuts more, which lies below the p90, costs accuracy sooner or later."""
_ROUNDING = 1e-12
"""Shares are differences from 1: one that is met counts as met whatever its last digit."""


@frozen
class Thoughts:
    """Requests by their reasoning tokens: `at_most[bound]` of them thought for at most `bound` tokens.

    `seconds` is over how long they were counted. Bounds rise and the last one is infinite.
    """

    at_most: Mapping[float, float]
    seconds: float = 0.0

    @property
    def count(self) -> float:
        """All requests."""
        return max(self.at_most.values(), default=0.0)

    @property
    def longest(self) -> float:
        """The last finite bound; 0 where there is none."""
        return max((bound for bound in self.at_most if math.isfinite(bound)), default=0.0)

    @property
    def contradiction(self) -> str | None:
        """Why these counts cannot be true; None: they can."""
        counts = list(self.at_most.values())
        if not all(0.0 <= one < math.inf for one in counts):
            return "has counts that are not to be believed"
        if any(later < earlier for earlier, later in pairwise(counts)):
            return "has counts that fall from bucket to bucket"
        return None

    def share_above(self, tokens: float) -> float | None:
        """Share of requests that think longer than `tokens`; None past the last finite bound, or of none.

        At a bound it is exact.
        """
        count = self.count
        if count <= 0:
            return None
        above = [(bound, 1.0 - total / count) for bound, total in self.at_most.items()]
        for (low, more), (high, fewer) in pairwise([(0.0, 1.0), *above]):
            if low <= tokens <= high:
                return _between(tokens, low, high, more, fewer)
        return None

    def bounds_of(self, tokens: float) -> tuple[float, float]:
        """The least and the greatest share that can be above `tokens`: those at the bounds around it."""
        count = self.count
        above = [(bound, 1.0 - total / count if count > 0 else 0.0) for bound, total in self.at_most.items()]
        least = next((share for bound, share in above if bound >= tokens), 0.0)
        greatest = next((share for bound, share in reversed(above) if bound <= tokens), 1.0)
        return least, greatest

    def below(self, budget: int | None) -> Thoughts:
        """What a budget in force leaves as it is: the buckets below it. What it cuts was not seen whole, so
        that nothing is known of shorter budgets in the bucket that it lies in. None or below 0: no limit.
        """
        if budget is None or budget < 0:
            return self
        whole = {bound: total for bound, total in self.at_most.items() if bound < budget}
        return Thoughts(whole | {math.inf: self.count}, self.seconds) if self.at_most else self

    def share_beyond(self, budget: float) -> float | None:
        """Share that would think longer than a budget in force, from the shares above the two highest bounds
        below it, which it leaves as they are. None: there are no two.
        """
        count = self.count
        below = [(bound, total) for bound, total in self.at_most.items() if 0 < bound < budget]
        if count <= 0 or len(below) < 2:
            return None
        (low, more), (high, fewer) = ((bound, 1.0 - total / count) for bound, total in below[-2:])
        return fewer if fewer <= 0.0 or fewer >= more else _along(budget, low, high, more, fewer)

    def quantile(self, q: float) -> float | None:
        """The length that a share `q` of the requests does not pass; None past the last finite bound."""
        count, low, more = self.count, 0.0, 1.0
        for bound, total in self.at_most.items():
            fewer = 1.0 - total / count if count > 0 else 1.0
            if fewer <= 1.0 - q + _ROUNDING:
                return _where(1.0 - q, low, bound, more, fewer) if math.isfinite(bound) else None
            low, more = bound, fewer
        return None

    def error(self, share: float) -> float:
        """Standard error of a share: requests think independently."""
        return math.sqrt(share * (1.0 - share) / self.count)

    def least_cap(self, errors: float = 0.0, most_truncated: float = MOST_TRUNCATED_RATIO) -> int | None:
        """The smallest multiple of 256 that cuts at most this share, `errors` standard errors included.

        None: no length is known to.
        """
        shortest = self.quantile(1.0 - most_truncated)
        if shortest is None:
            return None
        cap = max(1, math.ceil(shortest / MULTIPLE_TOKENS - 1e-9)) * MULTIPLE_TOKENS
        while (share := self.share_above(cap)) is not None:
            if share + errors * self.error(max(share, 1.0 / self.count)) <= most_truncated + 1e-12:
                return cap
            cap += MULTIPLE_TOKENS
        return None

    def powers(self, cap: float = math.inf) -> tuple[float, float]:
        """Mean length and mean squared length when cut at `cap`, from the middles of buckets."""
        count, mean, square = self.count, 0.0, 0.0
        before = 0.0
        low = 0.0
        for bound, total in self.at_most.items():
            length = min(cap, (low + bound) / 2 if math.isfinite(bound) else low)
            share = (total - before) / count if count > 0 else 0.0
            mean += share * length
            square += share * length * length
            low, before = bound, total
        return mean, square


NO_THOUGHTS = Thoughts({})


def together(counted: Iterable[Thoughts]) -> Thoughts:
    """What several replicas counted, as one. Bounds must agree; `seconds` is the mean over the requests."""
    some = [one for one in counted if one.count > 0]
    total = math.fsum(one.count for one in some)
    if not some or total <= 0:
        return NO_THOUGHTS
    at_most = {bound: math.fsum(one.at_most[bound] for one in some) for bound in some[0].at_most}
    return Thoughts(at_most, math.fsum(one.count * one.seconds for one in some) / total)


def _between(tokens: float, low: float, high: float, more: float, fewer: float) -> float | None:
    """The share above `tokens`, between bounds above which `more` and `fewer` lie."""
    if tokens >= high:
        return fewer
    if not math.isfinite(high):
        return more if tokens <= low else None
    if fewer <= 0.0:
        return more
    return _along(tokens, low, high, more, fewer)


def _along(tokens: float, low: float, high: float, more: float, fewer: float) -> float:
    """The share above `tokens` on the line of normal scores through both bounds."""
    if _is_straight(low, more):
        return min(1.0, max(0.0, more + (fewer - more) * (tokens - low) / (high - low)))
    way = math.log(tokens / low) / math.log(high / low)
    start, end = normal_quantile(more), normal_quantile(fewer)
    return normal_cdf(start + way * (end - start))


def _where(share: float, low: float, high: float, more: float, fewer: float) -> float:
    """The length above which `share` lies: `_between` the other way round."""
    if more <= fewer or fewer <= 0.0:
        return high
    if _is_straight(low, more) or not 0.0 < share < 1.0:
        return low + (high - low) * (more - share) / (more - fewer)
    start, end = normal_quantile(more), normal_quantile(fewer)
    return low * math.exp(math.log(high / low) * (normal_quantile(share) - start) / (end - start))


def _is_straight(low: float, more: float) -> bool:
    """Whether a bucket has no logarithm or no normal scores: then lengths are taken to be spread evenly."""
    return low <= 0.0 or more >= 1.0
