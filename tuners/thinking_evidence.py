"""What is known of the thoughts of a case: whether they can be judged, and what a cap would save."""

from __future__ import annotations

import math

from enginetop.fleet.model import BELIEVED
from tuners.case import Case, once
from tuners.kv_maths import kv_token_steps
from tuners.limits import FEWEST_FOR_P99
from tuners.thoughts import NO_THOUGHTS, Thoughts
from tuners.words import contradiction, lacking, missing, not_fresh

REASONING = "reasoning_tokens"
LARGE_SHARE = 0.3
"""Reasoning is worth a cap when it makes this share of the output."""
LONGEST_THOUGHTS = 10.0
"""Thoughts are counted when they end. They must have been counted for so many times as long as one at the
budget takes: then a log that began with an engine, or with a change, misses at most a tenth of those.
"""
_NEEDED = ("kv_usage_ratio", "preemptions", "requests_waiting")


@once
def unfit(case: Case) -> str | None:
    """Why thoughts cannot be judged; None: they can."""
    if (why := not_fresh(case) or lacking(case, _NEEDED)) is not None:
        return why
    thoughts = case.replica.distribution(REASONING)
    if thoughts.quality not in BELIEVED or thoughts.count is None:
        return missing(REASONING, thoughts)
    if (why := contradiction(thoughts) or (case.thoughts or NO_THOUGHTS).contradiction) is not None:
        return f"{REASONING} {why}"
    share = case.replica.scalar("reasoning_share_ratio").number
    if share is not None and not 0.0 <= share <= 1.0:
        return f"reasoning_share_ratio is {share:g}: not to be believed"
    for name in ("prompt_tokens", "output_tokens", "tpot_seconds"):
        if (why := contradiction(case.replica.distribution(name))) is not None:
            return f"{name} {why}"
    return _too_few(case)


def _too_few(case: Case) -> str | None:
    counted = thoughts_of(case).count
    if counted < FEWEST_FOR_P99:
        return f"{REASONING} of {counted:.0f} requests so far, a budget needs {FEWEST_FOR_P99}"
    return None


def counts_still(case: Case) -> bool:
    """Whether a cap may be called for once enough thoughts have ended, and nothing else is missing."""
    share = case.replica.scalar("reasoning_share_ratio").number
    if case.thoughts is None or share is None or share < LARGE_SHARE:
        return False
    return too_young(case) is not None if unfit(case) is None else unfit(case) == _too_few(case)


def too_young(case: Case, cap: int | None = None) -> str | None:
    """Why the log is too young for thoughts of `cap` tokens (None: those that one in twenty passes)."""
    thoughts, tpot = thoughts_of(case), case.replica.distribution("tpot_seconds").mean.value
    tokens = thoughts.least_cap() or thoughts.longest if cap is None else cap
    needed = math.inf if tpot is None else LONGEST_THOUGHTS * tokens * tpot
    if thoughts.seconds >= needed:
        return None
    return (
        f"a thought of {tokens:.0f} tokens takes {needed / LONGEST_THOUGHTS:.0f} s, counted at its end: "
        f"{thoughts.seconds:.0f} s were seen, {needed:.0f} are needed"
    )


@once
def thoughts_of(case: Case) -> Thoughts:
    """How long requests thought, as far as the budget in force lets it be seen."""
    return (case.thoughts or NO_THOUGHTS).below(case.knobs.thinking)


def budget_in_force(case: Case) -> int | None:
    """The budget in force; None: there is none."""
    return case.knobs.thinking if case.knobs.thinking is not None and case.knobs.thinking >= 0 else None


def relief_of(case: Case, cap: int) -> float | None:
    """Share of KV token-steps that a cap would save; None where lengths are not known.

    A request with prompt P and output N holds P N + N^2 / 2 of them. Thoughts are capped, answers stay; the
    spread of answers is left out, which makes the share a little too large.
    """
    prompt = case.replica.distribution("prompt_tokens").mean.value
    output = case.replica.distribution("output_tokens").mean.value
    if prompt is None or output is None:
        return None
    mean, square = lengths_at(case)
    capped_mean, capped_square = lengths_at(case, cap)
    answer = max(0.0, output - mean)
    now, then = (
        kv_token_steps(prompt, thought + answer, squared + 2 * thought * answer + answer**2)
        for thought, squared in ((mean, square), (capped_mean, capped_square))
    )
    return 1.0 - then / now if now > 0 else None


def lengths_at(case: Case, cap: float = math.inf) -> tuple[float, float]:
    """Mean and mean squared length of thoughts with the budget in force, and with a cap below it."""
    now = budget_in_force(case)
    return (case.thoughts or NO_THOUGHTS).powers(cap if now is None else min(now, cap))
