"""How the time of an engine step grows with the tokens in it: an affine fit with its uncertainty.

Step time = base + per token x tokens (ordinary least squares). A fit counts only with enough windows, enough
spread and enough of the variance explained; beyond its range it says nothing. What it leaves out: attention
over long contexts, kinks of mixture-of-experts and quantised kernels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from enginetop.fleet.frozen import frozen
from tuners.control.probability import t_quantile
from tuners.rows import known

FEWEST_WINDOWS = 8
LEAST_SPREAD = 2.0
"""Fullest window over emptiest one, where a fit is to be believed beyond them."""
LEAST_R_SQUARED = 0.8
REACH = 1.5
"""How far beyond its windows a fit is believed, as a factor."""
CONFIDENCE = 0.95

_FLAT_SECONDS = 1e-9


@frozen
class StepWindow:
    """Means over a stretch of time in which the engine was busy throughout: tokens a step, seconds a step.

    `waiting`: the fewest requests that queued at its ends.
    """

    tokens: float
    seconds: float
    waiting: float = 0.0


@frozen
class Unfit:
    """Why there is no fit, in words."""

    reason: str


@frozen
class StepFit:
    """A step of n tokens takes `base_seconds + per_token_seconds * n`.

    `fewest_tokens` and `most_tokens` are the means of the emptiest and the fullest window. The last three
    fields carry the uncertainty: mean and summed squares of the windows' tokens, and the standard deviation
    of a window's step time around the line.
    """

    base_seconds: float
    per_token_seconds: float
    r_squared: float
    windows: int
    fewest_tokens: float
    most_tokens: float
    mean_tokens: float
    squares_tokens: float
    deviation_seconds: float

    def seconds(self, tokens: float) -> float:
        """Time of a step with `tokens` tokens."""
        return self.base_seconds + self.per_token_seconds * tokens

    def reaches(self, tokens: float) -> bool:
        """Whether the fit says anything about steps of `tokens` tokens."""
        return self.fewest_tokens / REACH <= tokens <= self.most_tokens * REACH

    def margin_seconds(self, tokens: float) -> float:
        """Half the width of the `CONFIDENCE` interval of the mean step time at `tokens` tokens."""
        leverage = 1.0 / self.windows + (tokens - self.mean_tokens) ** 2 / self.squares_tokens
        return self._t * self.deviation_seconds * math.sqrt(leverage)

    def scatter_seconds(self, tokens: float) -> float:
        """Half the width of the `CONFIDENCE` interval of one window's step time at `tokens` tokens."""
        return math.hypot(self.margin_seconds(tokens), self._t * self.deviation_seconds)

    @property
    def per_token_margin_seconds(self) -> float:
        """Half the width of the `CONFIDENCE` interval of `per_token_seconds`."""
        return self._t * self.deviation_seconds / math.sqrt(self.squares_tokens)

    def tilted(self, per_token_seconds: float) -> StepFit:
        """The line through the same centre with another slope."""
        centre = self.seconds(self.mean_tokens)
        return StepFit(
            centre - per_token_seconds * self.mean_tokens,
            per_token_seconds,
            self.r_squared,
            self.windows,
            self.fewest_tokens,
            self.most_tokens,
            self.mean_tokens,
            self.squares_tokens,
            self.deviation_seconds,
        )

    def most_tokens_within(self, seconds: float) -> float:
        """The largest step that takes at most `seconds`; 0 or less: not even an empty one does."""
        return (seconds - self.base_seconds) / self.per_token_seconds

    @property
    def _t(self) -> float:
        return t_quantile(1.0 - (1.0 - CONFIDENCE) / 2.0, self.windows - 2)


def fit_step_time(windows: Sequence[StepWindow], least_spread: float = LEAST_SPREAD) -> StepFit | Unfit:
    """The fit, or why there is none. `least_spread`: fullest window over emptiest one, in tokens a step."""
    if len(windows) < FEWEST_WINDOWS:
        return Unfit(f"{len(windows)} busy windows, a fit of the step time needs {FEWEST_WINDOWS}")
    tokens, seconds = known(windows, "tokens"), known(windows, "seconds")
    if not all(0 < one < math.inf for one in (*tokens, *seconds)):
        return Unfit("windows of steps hold figures that are not to be believed")
    fewest, most = min(tokens), max(tokens)
    if most < least_spread * fewest:
        return Unfit(
            f"steps carried {fewest:.0f} to {most:.0f} tokens in {len(windows)} windows: too alike for a fit "
            f"of the step time, which needs a factor of {least_spread:g}"
        )
    count = len(windows)
    mean_tokens = math.fsum(tokens) / count
    mean_seconds = math.fsum(seconds) / count
    squares = math.fsum([(one - mean_tokens) ** 2 for one in tokens])
    pairs = list(zip(tokens, seconds, strict=True))
    products = math.fsum([(one - mean_tokens) * (took - mean_seconds) for one, took in pairs])
    per_token = products / squares
    base = mean_seconds - per_token * mean_tokens
    total = math.fsum([(took - mean_seconds) ** 2 for took in seconds])
    left = math.fsum([(took - base - per_token * one) ** 2 for one, took in pairs])
    r_squared = 1.0 - left / total if total > 0 else 0.0
    if r_squared < LEAST_R_SQUARED or per_token * mean_tokens <= _FLAT_SECONDS:
        return Unfit(
            f"tokens explain {100 * max(0.0, r_squared):.0f} % of the step time over {count} windows, "
            f"a fit needs {100 * LEAST_R_SQUARED:.0f} %"
        )
    deviation = math.sqrt(max(0.0, left) / (count - 2))
    return StepFit(base, per_token, r_squared, count, fewest, most, mean_tokens, squares, deviation)
