"""What engine steps leave for prefill: the arithmetic of a token budget.

B is the budget in tokens a step, R the decoding requests, k the draft tokens of each. All decoding requests
come first and take 1 + k tokens a step each.
"""

from __future__ import annotations

import math


def room(budget: float, decoding: float, drafts: float = 0) -> float:
    """Tokens of a step that prefill can have: B - R (1 + k). Holds while all R requests decode."""
    return budget - decoding * (1 + drafts)


def chunks(prompt_tokens: float, room_tokens: float) -> int:
    """Steps that a prompt takes when it is alone in its prefill: ceil(L / room)."""
    return math.ceil(prompt_tokens / room_tokens)


def tokens_per_second(room_tokens: float, step_seconds: float) -> float:
    """Prompt tokens that full steps take in each second."""
    return room_tokens / step_seconds


def least_budget(max_num_seqs: int, drafts: int = 0) -> int:
    """The hard floor of a budget: max_num_seqs (1 + k). Without chunked prefill it is also max_model_len."""
    return max_num_seqs * (1 + drafts)
