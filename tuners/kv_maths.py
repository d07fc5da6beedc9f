"""The arithmetic of KV pressure: what requests hold, how many fit, and what is done twice."""

from __future__ import annotations

import math

FITTING_RATIO = 0.9
"""Share of the KV cache that admitted requests may fill by expectation."""


def fitting_sequences(kv_tokens: float, resident_tokens: float) -> int:
    """Requests that fit when each needs `resident_tokens` (a p90): floor(0.9 KV / resident)."""
    return math.floor(FITTING_RATIO * kv_tokens / resident_tokens)


def preempted_ratio(preemptions: float, finished: float) -> float:
    """Preemptions per finished request; infinite when requests are preempted and none ends."""
    if finished > 0:
        return preemptions / finished
    return math.inf if preemptions > 0 else 0.0


def redone_ratio(redone_per_second: float, useful_per_second: float) -> float:
    """Share of all computed tokens that are computed again; 0 when nothing is computed."""
    computed = redone_per_second + useful_per_second
    return redone_per_second / computed if computed > 0 else 0.0


def resident_tokens(prompt_tokens: float, output_tokens: float) -> float:
    """Mean KV tokens of a request over its stay: the prompt, and half of what it generates."""
    return prompt_tokens + output_tokens / 2


def kv_token_steps(prompt_tokens: float, output_tokens: float, squared_output_tokens: float) -> float:
    """KV tokens of a request, added up over its decode steps: P E[N] + E[N^2] / 2."""
    return prompt_tokens * output_tokens + squared_output_tokens / 2
