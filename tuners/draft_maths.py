"""The arithmetic of speculative decoding: k draft tokens a step, of which some are accepted.

Positions are counted from 1. p_i is the unconditional chance that position i is accepted: accepted at i over
drafts. Sources: Leviathan et al., arXiv 2211.17192 (tokens a step); TurboSpec, arXiv 2406.14066 (choice by
accepted tokens per second under load).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from enginetop.fleet.frozen import frozen

MOST_EXTRA_POSITIONS = 1
"""So far beyond the deepest observed position is anything said, and then as a guess."""
_NORMAL_975 = 1.959963984540054
"""The standard normal's 97.5th percentile."""


def accepted_length(positions: Sequence[float], drafts: int) -> float:
    """Tokens a step with `drafts` drafts: 1 + p_1 + ... + p_k. Beyond the positions it is a guess.

    Raises:
        ValueError: more than `MOST_EXTRA_POSITIONS` beyond them.
    """
    beyond = drafts - len(positions)
    if beyond > MOST_EXTRA_POSITIONS:
        raise ValueError(f"{drafts} drafts: only {len(positions)} positions were observed")
    known = math.fsum(positions[: max(0, drafts)])
    return 1.0 + known + (extrapolated(positions) if beyond > 0 else 0.0)


def luck_ratio(positions: Sequence[float], drafts: int, output_tokens: float) -> float:
    """Standard deviation of a request's TPOT over its mean by the luck of its drafts alone.

    A step gains 1 + h tokens, with h >= i at chance p_i: E[h^2] = sum of (2i - 1) p_i. The steps until N
    tokens are gained have a variance of N Var(h) / AL^3 around N / AL (renewal theory, N large).
    """
    chances = positions[: max(0, drafts)]
    mean = math.fsum(chances)
    square = math.fsum((2 * place + 1) * chance for place, chance in enumerate(chances))
    variance = max(0.0, square - mean * mean)
    return math.sqrt(variance / (output_tokens * (1.0 + mean))) if output_tokens > 0 else 0.0


def extrapolated(positions: Sequence[float]) -> float:
    """A guess of the next position's acceptance: the last conditional chance goes on, which is at most 1."""
    if not positions or positions[-1] <= 0:
        return 0.0
    before = positions[-2] if len(positions) > 1 else 1.0
    return positions[-1] * (positions[-1] / before if before > positions[-1] else 1.0)


def falls_from_position_to_position(positions: Sequence[float], tolerance: float = 1e-9) -> bool:
    """Whether acceptance never rises: if it does, counters of several k are mixed, or broken."""
    return all(later <= earlier + tolerance for earlier, later in pairwise(positions))


def wilson(successes: float, trials: float) -> tuple[float, float]:
    """The 95 % confidence interval of a share (Wilson's score); (0, 1) without trials."""
    if trials <= 0:
        return 0.0, 1.0
    z, share = _NORMAL_975, successes / trials
    square = z * z
    centre = (share + square / (2 * trials)) / (1 + square / trials)
    half = z / (1 + square / trials) * math.sqrt(share * (1 - share) / trials + square / (4 * trials**2))
    return max(0.0, centre - half), min(1.0, centre + half)


@frozen
class Traffic:
    """What one engine serves: tokens per second that are generated, and that are computed of prompts."""

    generated_per_second: float
    prefilled_per_second: float = 0.0


@frozen
class StepCost:
    """A step of n tokens with k drafts takes `base_seconds + draft_seconds * k + token_seconds * n`."""

    base_seconds: float
    token_seconds: float
    draft_seconds: float

    def tokens_per_second(self, positions: Sequence[float], drafts: int, running: float) -> float:
        """Tokens per second of a full batch of `running` requests and no prefill."""
        seconds = (
            self.base_seconds + self.draft_seconds * drafts + self.token_seconds * running * (1 + drafts)
        )
        return running * accepted_length(positions, drafts) / seconds

    def load_ratio(self, positions: Sequence[float], drafts: int, traffic: Traffic) -> float:
        """Share of the time that tokens alone take at this traffic; from 1 on nothing keeps up."""
        length = accepted_length(positions, drafts)
        verified_per_second = traffic.generated_per_second * (1 + drafts) / length
        return self.token_seconds * (verified_per_second + traffic.prefilled_per_second)

    def tpot_seconds(self, positions: Sequence[float], drafts: int, traffic: Traffic) -> float:
        """Mean TPOT once the batch has settled at this traffic; infinite where nothing keeps up.

        With R requests in the batch, each gets AL(k) tokens a step of t seconds, so that R = G t / AL(k)
        serve G tokens a second; t = t0 + d k + b ((1+k) R + prefill) solved for t, divided by AL(k).
        """
        load = self.load_ratio(positions, drafts, traffic)
        if load >= 1.0:
            return math.inf
        length = accepted_length(positions, drafts)
        return (self.base_seconds + self.draft_seconds * drafts) / (1.0 - load) / length
