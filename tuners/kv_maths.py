"""The arithmetic of KV pressure: how many requests fit, and what else gives room."""

from __future__ import annotations

import math

FITTING_RATIO = 0.9
"""Share of the KV cache that admitted requests may fill by expectation."""
GIB = 2**30
MEMORY_STEP = 0.02
MOST_MEMORY = 0.95


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


def tokens_gained(memory_bytes: float, step_ratio: float, kv_bytes_per_token: float) -> float:
    """KV tokens that a larger share of the GPU's memory holds."""
    return memory_bytes * step_ratio / kv_bytes_per_token
