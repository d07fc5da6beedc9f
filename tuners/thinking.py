"""The rule for `thinking_token_budget`: cap the longest thoughts when they crowd out everybody's KV cache.

Never for goodput alone: goodput rises without limit as a budget falls. Only under KV pressure, only where
reasoning is a large part of the output, and never so low that more than one request in twenty is cut. What a
cut does to the quality of answers is not known here and nothing is claimed about it.
"""

from __future__ import annotations

import math

from enginetop.fleet.model import Quality
from enginetop.fleet.snapshot import Advice, Distribution, Quantile
from tuners.case import Case, Rule
from tuners.knob_values import THINKING
from tuners.thinking_maths import FEWEST_FOR_P95, MULTIPLE_TOKENS, SLACK_TOKENS
from tuners.words import at_least, count, lacking, not_fresh, percent, row, too_short

REASONING = "reasoning_tokens"
LARGE_SHARE = 0.3
"""Reasoning is worth a cap when it makes this share of the output."""
LONG_TAIL_RATIO = 2.0
"""And when the p99 is this many times the p95: else a cap at the p95 frees next to nothing."""
FULL_KV = 0.90
_NO_CLAIM = "accuracy is not measured here: try it on an evaluation of your own first"


_NEEDED = ("kv_usage_ratio", "preemptions", "requests_waiting")


def calls(case: Case) -> str | None:
    """`lower` under KV pressure with a long tail of thoughts, `raise` where a budget cuts too many."""
    if _unfit(case) is not None:
        return None
    if _cuts_too_many(case):
        return "raise"
    return "lower" if _pressed(case) is not None and _crowds(case) else None


def advise(case: Case) -> Advice:
    """The advice row."""
    now = case.knobs.thinking
    if (why := _unfit(case)) is not None:
        return row(THINKING, "withheld", why, now)
    if case.knobs.problem:
        return row(THINKING, "withheld", case.knobs.problem, now)
    called = calls(case)
    if called is None:
        return _no_call(case)
    if (short := too_short(case)) is not None:
        return row(THINKING, "withheld", short, now, _thoughts(case))
    return _raised(case) if called == "raise" else _lowered(case)


RULE = Rule(THINKING, calls, advise)


def _unfit(case: Case) -> str | None:
    if (why := not_fresh(case) or lacking(case, _NEEDED)) is not None:
        return why
    thoughts = _distribution(case)
    if thoughts.quality not in (Quality.OK, Quality.ESTIMATED) or thoughts.count is None:
        note = f": {thoughts.note}" if thoughts.note else ""
        return f"{REASONING} is {thoughts.quality.value}{note}"
    if thoughts.count < FEWEST_FOR_P95:
        return f"{REASONING} of {thoughts.count:.0f} requests in the window, a p95 needs {FEWEST_FOR_P95}"
    if at_least(thoughts.quantiles["p95"]) <= 0:
        return "nothing is thought"
    return None


def _distribution(case: Case) -> Distribution:
    return case.replica.distribution(REASONING)


def _upper(quantile: Quantile) -> float | None:
    """The quantile at most: the upper edge of its bucket."""
    return quantile.high if quantile.high is not None else quantile.value


def _budget(case: Case) -> int | None:
    """The budget in force; None: there is none."""
    return case.knobs.thinking if case.knobs.thinking is not None and case.knobs.thinking >= 0 else None


def _cuts_too_many(case: Case) -> bool:
    """Whether the p95 of thoughts has reached the budget, so that more than one in twenty is cut."""
    budget = _budget(case)
    return budget is not None and at_least(_distribution(case).quantiles["p95"]) >= budget - SLACK_TOKENS


def _pressed(case: Case) -> str | None:
    """What the KV cache suffers from, in words."""
    replica = case.replica
    kv = replica.scalar("kv_usage_ratio").number
    if replica.scalar("preemptions").number:
        return f"{replica.scalar('preemptions').number:.0f} preemptions in the window"
    if kv is not None and kv >= FULL_KV and (replica.scalar("requests_waiting").number or 0) > 0:
        return f"KV is {percent(kv)} full and requests wait"
    return None


def _crowds(case: Case) -> bool:
    thoughts = _distribution(case)
    share = case.replica.scalar("reasoning_share_ratio").number
    p95, p99 = at_least(thoughts.quantiles["p95"]), at_least(thoughts.quantiles["p99"])
    return share is not None and share >= LARGE_SHARE and p99 >= LONG_TAIL_RATIO * p95


def _capped_at(case: Case) -> int | None:
    """The smallest multiple of 256 that cuts at most one in twenty; None past the last bucket."""
    p95 = _upper(_distribution(case).quantiles["p95"])
    return None if p95 is None else max(1, math.ceil(p95 / MULTIPLE_TOKENS)) * MULTIPLE_TOKENS


def _lowered(case: Case) -> Advice:
    now, proposed, pressed = _budget(case), _capped_at(case), _pressed(case)
    said = (_thoughts(case), pressed or "")
    if proposed is None:
        why = "the p95 lies past the last bucket: no budget can be named that cuts one in twenty"
        return row(THINKING, "withheld", why, case.knobs.thinking, *said, bound_by="kv")
    if now is not None and proposed >= now:
        return row(THINKING, "hold", f"{now} already cuts one in twenty", now, *said, bound_by="kv")
    thoughts = _distribution(case)
    longest = at_least(thoughts.quantiles["p99"])
    # One in twenty passes the cap; one in a hundred passes the p99.
    freed = 0.01 * max(0.0, longest - proposed)
    because = (
        *said,
        f"{proposed} cuts at most 5 % of requests, and frees {count(freed)} tokens a request or more",
        _NO_CLAIM,
        "wrong if longer thoughts are what these answers need",
    )
    expected = {"truncated_ratio_high": 0.05, "freed_tokens_per_request_low": freed}
    return _changed(case, "lower", proposed, because, "kv", expected, "medium")


def _raised(case: Case) -> Advice:
    now = _budget(case) or 0
    if _pressed(case) is not None:
        why = f"KV is short ({_pressed(case)}): a larger budget needs room first"
        return row(THINKING, "hold", why, now, _thoughts(case), bound_by="kv")
    because = (
        f"more than 5 % of requests reach the budget of {now}: {_thoughts(case)}",
        "thoughts that are cut cost accuracy; how long they would be is not known, so it is doubled",
        _NO_CLAIM,
    )
    return _changed(case, "raise", 2 * now, because, "none", {}, "low")


def _changed(
    case: Case,
    action: str,
    proposed: int,
    because: tuple[str, ...],
    bound_by: str,
    expected: dict[str, float],
    confidence: str,
) -> Advice:
    apply, via = case.knobs.way(THINKING, proposed)
    current = case.knobs.thinking
    return Advice(THINKING, action, because, current, proposed, bound_by, expected, confidence, apply, via)


def _no_call(case: Case) -> Advice:
    now, pressed = case.knobs.thinking, _pressed(case)
    if pressed is None:
        return row(THINKING, "hold", "KV is not short: nothing is gained by a cap", now, _thoughts(case))
    share = case.replica.scalar("reasoning_share_ratio").number
    if share is None:
        return row(THINKING, "withheld", "the share of reasoning is not known", now, pressed)
    why = "thoughts are no large part of the output, or have no long tail: a cap frees little"
    return row(THINKING, "hold", why, now, pressed, _thoughts(case), bound_by="kv")


def _thoughts(case: Case) -> str:
    thoughts = _distribution(case)
    share = case.replica.scalar("reasoning_share_ratio").number
    of_output = "" if share is None else f", {percent(share)} of the output"
    p50, p95, p99 = (count(at_least(thoughts.quantiles[key])) for key in ("p50", "p95", "p99"))
    return f"reasoning p50 {p50}, p95 {p95}, p99 {p99} tokens of {thoughts.count:.0f} requests{of_output}"
