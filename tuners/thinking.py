"""The rule for `thinking_token_budget`: cap the longest thoughts when they crowd out everybody's KV cache.

Never for goodput alone: goodput rises without limit as a budget falls. Only under KV pressure, only where
reasoning is a large part of the output, and never so low that more than one request in twenty is cut. What a
cut does to the quality of answers is not known here and nothing is claimed about it.
"""

from __future__ import annotations

import math

from enginetop.fleet.snapshot import Advice
from enginetop.fleet.thinking import SLACK_TOKENS
from tuners.case import Case, Rule, once
from tuners.knob_values import THINKING
from tuners.lateness import lateness_of
from tuners.limits import FEWEST_FOR_P95, MOST_PREEMPTED_RATIO, MULTIPLE_TOKENS
from tuners.thinking_evidence import (
    LARGE_SHARE,
    REASONING,
    budget_in_force,
    counts_still,
    lengths_at,
    relief_of,
    thoughts_of,
    too_young,
    unfit,
)
from tuners.thought_log import KEPT_SECONDS
from tuners.thoughts import MOST_TRUNCATED_RATIO, Thoughts
from tuners.words import (
    at_least,
    count,
    known_count,
    missing,
    percent,
    row,
    too_short,
)

LEAST_RELIEF = 0.02
"""A first cap is worth it when it takes this share off the time that KV tokens are held. Near saturation,
which is where this rule speaks, waits go with 1 / (1 - load), so that two percent are felt. A budget in force
is lowered for less: it takes no further trouble.
"""
ERRORS_IN_HAND = 2.0
"""So many standard errors below one in twenty the estimated share of cut requests must lie: one in forty."""
CLOSE_ENOUGH = 0.95
MOST_PATIENCE_SECONDS = 3000.0
"""So long more requests are waited for where they may allow a budget below that share of the safe one."""
LEAST_CUT_RATIO = 0.025
"""A budget in force that cuts this share is lowered further only when the share is known very well."""
ERRORS_IN_A_STEP = 4.0
"""Namely when so many standard errors lie between the shares of neighbouring budgets: two either way tell
them apart. A budget that is lowered whenever chance allows it ends where it cuts too many.
"""
FULL_KV = 0.90
_NO_CLAIM = "accuracy is not measured here: try it on an evaluation of your own first"


@once
def calls(case: Case) -> str | None:
    """`lower` under KV pressure with thoughts that hold much of it, `raise` where a budget cuts too many."""
    if unfit(case) is not None:
        return None
    if _cuts_too_many(case):
        return "raise"
    return "lower" if _pressed(case) is not None and _crowds(case) else None


def advise(case: Case) -> Advice:
    """The advice row."""
    now = case.knobs.thinking
    if (why := unfit(case)) is not None:
        return row(THINKING, "withheld", why, now)
    if case.knobs.problem:
        return row(THINKING, "withheld", case.knobs.problem, now)
    called = calls(case)
    if called is None:
        return _no_call(case)
    if (short := too_short(case)) is not None:
        return row(THINKING, "withheld", short, now, _told(case))
    return _raised(case) if called == "raise" else _lowered(case)


RULE = Rule(THINKING, calls, advise)


def _cuts_too_many(case: Case) -> bool:
    """Whether the p95 of thoughts has reached the budget, so that more than one in twenty is cut: now, and by
    all that was seen below the budget, so that a window's luck does not raise it.
    """
    budget, window = budget_in_force(case), case.replica.distribution(REASONING)
    if budget is None or known_count(window) < FEWEST_FOR_P95:
        return False
    if at_least(window.quantiles["p95"]) < budget - SLACK_TOKENS:
        return False
    thoughts = thoughts_of(case)
    share = thoughts.share_beyond(budget)
    return share is None or share - ERRORS_IN_HAND * thoughts.error(share) > MOST_TRUNCATED_RATIO


@once
def _pressed(case: Case) -> str | None:
    """What the KV cache suffers from, in words."""
    replica = case.replica
    kv = replica.scalar("kv_usage_ratio").number
    if replica.scalar("preemptions").number:
        return f"{replica.scalar('preemptions').number:.0f} preemptions in the window"
    if kv is not None and kv >= FULL_KV and (replica.scalar("requests_waiting").number or 0) > 0:
        return f"KV is {percent(kv)} full and requests wait"
    late = lateness_of(case)
    if late is not None and late.preempted_ratio > MOST_PREEMPTED_RATIO:
        return f"{percent(late.preempted_ratio)} as many preemptions as requests in {late.minutes} min"
    return None


def _crowds(case: Case) -> bool:
    """Whether a cap that cuts one in twenty would be felt."""
    share, cap = case.replica.scalar("reasoning_share_ratio").number, thoughts_of(case).least_cap()
    if share is None or share < LARGE_SHARE:
        return False
    if cap is None:
        return True
    if (now := budget_in_force(case)) is not None:
        return cap < now
    relief = relief_of(case, cap)
    return relief is not None and relief >= LEAST_RELIEF


def _cuts_enough(thoughts: Thoughts, now: int) -> bool:
    """Whether the budget in force cuts so many that only the luck of a sample would lower it once more."""
    share = thoughts.share_beyond(now)
    return share is None or share >= LEAST_CUT_RATIO


def _unsettled(thoughts: Thoughts, likely: int) -> tuple[str, str] | None:
    """Whether chance would decide a further step, and what would tell: `withheld` while time brings enough
    requests, `hold` where no log of ours is long enough, for the lowest cap that may be. None: the share is
    known well enough.
    """
    needed = _needed_for_a_step(thoughts, likely)
    if thoughts.count >= needed:
        return None
    most = MOST_TRUNCATED_RATIO + ERRORS_IN_HAND * thoughts.error(MOST_TRUNCATED_RATIO)
    lowest = thoughts.least_cap(most_truncated=most) or likely
    if thoughts.count * KEPT_SECONDS < min(needed, _needed_for_a_step(thoughts, lowest)) * thoughts.seconds:
        hours = KEPT_SECONDS / 3600.0
        return "hold", f": chance would lower it, {hours:g} h bring too few requests to tell"
    return (
        "withheld",
        f"; whether a lower one may be, {count(needed)} requests tell ({count(thoughts.count)} yet)",
    )


def _needed_for_a_step(thoughts: Thoughts, cap: int) -> float:
    """Requests that tell the share above a cap from that above the next lower one."""
    more, fewer = (thoughts.share_above(tokens) or 0.0 for tokens in (cap - MULTIPLE_TOKENS, cap))
    error = (more - fewer) / ERRORS_IN_A_STEP
    return MOST_TRUNCATED_RATIO * (1.0 - MOST_TRUNCATED_RATIO) / error**2 if error > 0 else math.inf


def _time_may_tell(thoughts: Thoughts, cap: int) -> bool:
    """Whether the log is not full yet, and then may hold enough requests to show that a cap is safe."""
    in_hand = MOST_TRUNCATED_RATIO - (thoughts.share_above(cap) or 0.0)
    spread = MOST_TRUNCATED_RATIO * (1.0 - MOST_TRUNCATED_RATIO)
    needed = spread * (ERRORS_IN_HAND / in_hand) ** 2 if in_hand > 0 else math.inf
    return thoughts.seconds < KEPT_SECONDS and thoughts.count * KEPT_SECONDS >= needed * thoughts.seconds


def _lowered(case: Case) -> Advice:
    now, pressed, thoughts = budget_in_force(case), _pressed(case) or "", thoughts_of(case)
    said = (_told(case), pressed)
    likely, proposed = thoughts.least_cap(), thoughts.least_cap(ERRORS_IN_HAND)
    if now is not None and likely is None:
        why = f"what {now} cuts was not seen whole: no lower one is known to cut at most one in twenty"
        return row(THINKING, "hold", why, now, *said, bound_by="kv")
    if now is not None and proposed is None:
        proposed = now
    if likely is None or proposed is None:
        why = "the p95 lies past the last bucket: no budget can be named that cuts one in twenty"
        return row(THINKING, "withheld", why, case.knobs.thinking, *said, bound_by="kv")
    if now is not None and likely < now <= proposed and _time_may_tell(thoughts, likely):
        why = f"{now} cuts about one in twenty; {likely} may be enough: more requests will tell"
        return row(THINKING, "withheld", why, now, *said, bound_by="kv")
    if now is not None and (proposed >= now or _cuts_enough(thoughts, now)):
        if (unsettled := _unsettled(thoughts, likely)) is not None:
            action, why = unsettled
            return row(THINKING, action, f"{now} cuts about one in twenty{why}", now, *said, bound_by="kv")
        if proposed >= now:
            why = f"{now} cuts about one in twenty, a lower one would cut more"
            return row(THINKING, "hold", why, now, *said, bound_by="kv")
        likely = proposed
    if likely < CLOSE_ENOUGH * proposed and thoughts.seconds < MOST_PATIENCE_SECONDS:
        why = (
            f"{proposed} is safe by what was seen, {likely} may be: more requests will tell "
            f"({thoughts.seconds / 60:.0f} of {MOST_PATIENCE_SECONDS / 60:.0f} min)"
        )
        return row(THINKING, "withheld", why, case.knobs.thinking, *said, bound_by="kv")
    answers = case.replica.distribution("tpot_seconds")
    tpot = answers.mean.value
    if tpot is None:
        why = missing("tpot_seconds", answers)
        return row(THINKING, "withheld", why, case.knobs.thinking, *said, bound_by="kv")
    if (young := too_young(case, proposed)) is not None:
        return row(THINKING, "withheld", young, case.knobs.thinking, *said, bound_by="kv")
    share = thoughts.share_above(proposed) or 0.0
    most = share + ERRORS_IN_HAND * thoughts.error(share)
    freed = lengths_at(case)[0] - lengths_at(case, proposed)[0]
    relief = relief_of(case, proposed) or 0.0
    because = (
        *said,
        f"{proposed} cuts {100 * share:.1f} % of requests (at most {percent(MOST_TRUNCATED_RATIO)})",
        f"it saves {count(freed)} tokens a request and {percent(relief)} of the KV cache's time",
        _NO_CLAIM,
        "wrong if longer thoughts are what these answers need",
    )
    expected = {
        "truncated_ratio_high": most,
        "freed_tokens_per_request": freed,
        "kv_token_steps_change_ratio": -relief,
    }
    return _changed(case, "lower", proposed, because, "kv", expected, "medium")


def _raised(case: Case) -> Advice:
    now = budget_in_force(case) or 0
    if _pressed(case) is not None:
        why = f"KV is short ({_pressed(case)}): a larger budget needs room first"
        return row(THINKING, "hold", why, now, _told(case), bound_by="kv")
    because = (
        f"more than 5 % of requests reach the budget of {now}: {_told(case)}",
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
        return row(THINKING, "hold", "KV is not short: nothing is gained by a cap", now, _told(case))
    share = case.replica.scalar("reasoning_share_ratio")
    if share.number is None:
        return row(THINKING, "withheld", missing("reasoning_share_ratio", share), now, pressed)
    for name in ("prompt_tokens", "output_tokens"):
        lengths = case.replica.distribution(name)
        if lengths.mean.value is None:
            return row(THINKING, "withheld", missing(name, lengths), now, pressed)
    if counts_still(case):
        return row(THINKING, "withheld", too_young(case) or "", now, pressed, _told(case), bound_by="kv")
    why = "thoughts hold no large part of the KV cache: a cap that cuts one in twenty frees little"
    return row(THINKING, "hold", why, now, pressed, _told(case), bound_by="kv")


def _told(case: Case) -> str:
    """The lengths of thoughts in words."""
    thoughts, share = thoughts_of(case), case.replica.scalar("reasoning_share_ratio").number
    of_output = "" if share is None else f", {percent(share)} of the output"
    p50, p95, p99 = (_length(thoughts, q) for q in (0.50, 0.95, 0.99))
    return f"reasoning p50 {p50}, p95 {p95}, p99 {p99} tokens of {thoughts.count:.0f} requests{of_output}"


def _length(thoughts: Thoughts, q: float) -> str:
    """A quantile in words, `over` the longest that was seen whole where it is past it."""
    tokens = thoughts.quantile(q)
    return f"over {count(thoughts.longest)}" if tokens is None else count(tokens)
