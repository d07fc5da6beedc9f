"""The arithmetic of a thinking budget: what it cuts, what it frees.

`samples` are reasoning tokens of single requests; a histogram gives bounds of the same figures.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tuners.limits import MULTIPLE_TOKENS

SLACK_TOKENS = 32
"""A request may pass its budget by so much: the closing of the thought."""
MOST_TRUNCATED_RATIO = 0.05
RISKY_TRUNCATED_RATIO = 0.10
"""A budget below the p90 costs accuracy sooner or later."""


def truncated_ratio(samples: Sequence[float], budget: float) -> float:
    """Share of requests that think longer than `budget`."""
    return sum(tokens > budget for tokens in samples) / len(samples)


def mean_after(samples: Sequence[float], budget: float) -> float:
    """Mean reasoning tokens with every thought cut at `budget`."""
    return math.fsum(min(tokens, budget) for tokens in samples) / len(samples)


def least_budget(samples: Sequence[float], most_truncated_ratio: float = MOST_TRUNCATED_RATIO) -> int:
    """The smallest multiple of 256 that truncates no more than this share."""
    ordered = sorted(samples)
    kept = math.ceil(len(ordered) * (1.0 - most_truncated_ratio) - 1e-9)
    longest_kept = ordered[max(0, kept - 1)]
    return max(1, math.ceil(longest_kept / MULTIPLE_TOKENS)) * MULTIPLE_TOKENS


def within_max_tokens(budget: int, max_tokens: int, answer_reserve_tokens: int) -> int:
    """The budget that leaves room for the answer."""
    return min(budget, max_tokens - answer_reserve_tokens)


def violated_ratio(samples: Sequence[float], budget: float) -> float:
    """Share of requests that passed a budget in force, its slack included: the budget is not enforced."""
    return truncated_ratio(samples, budget + SLACK_TOKENS)


def resident_tokens(prompt_tokens: float, output_tokens: float) -> float:
    """Mean KV tokens of a request over its stay: the prompt, and half of what it generates."""
    return prompt_tokens + output_tokens / 2


def kv_token_steps(prompt_tokens: float, output_tokens: float, squared_output_tokens: float) -> float:
    """KV tokens of a request, added up over its decode steps: P E[N] + E[N^2] / 2."""
    return prompt_tokens * output_tokens + squared_output_tokens / 2


def sequences_that_fit(kv_tokens: float, prompt_tokens: float, output_tokens: float) -> float:
    """Requests that a KV cache holds on average. Prefix sharing makes it more, spread of lengths less."""
    return kv_tokens / resident_tokens(prompt_tokens, output_tokens)


def running_requests(
    requests_per_second: float, ttft_seconds: float, tpot_seconds: float, output_tokens: float
) -> float:
    """Little's law: requests in the engine at an arrival rate."""
    return requests_per_second * (ttft_seconds + tpot_seconds * output_tokens)


def gqa_bytes_per_token(layers: int, kv_heads: int, head_dim: int, bytes_each: float, tp: int = 1) -> float:
    """KV bytes of a token on one GPU with grouped-query attention; not for sliding windows or Mamba."""
    return 2 * layers * max(1.0, kv_heads / tp) * head_dim * bytes_each


def mla_bytes_per_token(layers: int, rank_and_rope: int, bytes_each: float) -> float:
    """KV bytes of a token with multi-head latent attention: one compressed vector a layer."""
    return layers * rank_and_rope * bytes_each
