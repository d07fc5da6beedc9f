"""What a knob would do at another value, by the evidence at hand: a prediction with its ends, or why none.

Nothing is tried. The formulas are those that the rules suggest by, asked at any value. Where the evidence
does not carry an answer it is `withheld`, and what is missing is named. What a value does to the quality of
answers is never told.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

from enginetop.fleet.snapshot import Outlook
from tuners.budget_lowering import Lowering, fit_text
from tuners.budget_raising import FULL_STEP_SHARE, full_step_tokens
from tuners.case import Case
from tuners.draft_comparison import compared
from tuners.draft_maths import MOST_EXTRA_POSITIONS, accepted_length
from tuners.knob_values import BUDGET, DRAFTS, SEQUENCES, THINKING, Knobs
from tuners.load import load_of
from tuners.seats import most_running, what_fits
from tuners.sequences import unfit as unfit_for_sequences
from tuners.speculation import drafts_seen
from tuners.step_time import REACH, Unfit
from tuners.thinking_evidence import lengths_at, relief_of, thoughts_of
from tuners.thinking_evidence import unfit as unfit_for_thinking
from tuners.thoughts import MOST_TRUNCATED_RATIO, RISKY_TRUNCATED_RATIO
from tuners.words import count, ms, percent

ERRORS_TOLD = 2.0
"""Standard errors of a share to both sides of it."""
NO_CLAIM = "what it does to the quality of answers is not known"


class _NoAnswerError(Exception):
    """Why nothing is predicted, in words."""


_Told = tuple[tuple[str, ...], Mapping[str, float], tuple[str, ...]]
"""Reasons, what is expected, and what bounds it."""


def what_if(case: Case, knob: str, value: int) -> Outlook:
    """The outlook of `knob` at `value`. Raises KeyError: no such knob."""
    current = _CURRENT[knob](case.knobs)
    try:
        if value < _LEAST[knob]:
            raise _NoAnswerError(f"{value} is no value of {knob}")
        if case.knobs.problem:
            raise _NoAnswerError(case.knobs.problem)
        if current is None and knob != THINKING:
            raise _NoAnswerError(f"{knob} is not known: neither the pages nor a knob API tell it")
        if value == current:
            return Outlook(knob, value, "predicted", ("it is as it is",), current)
        because, expected, limits = _ASKED[knob](case, value)
    except _NoAnswerError as why:
        return Outlook(knob, value, "withheld", (str(why),), current)
    if not all(map(math.isfinite, expected.values())):
        return Outlook(knob, value, "withheld", ("the figures are not to be believed",), current)
    return Outlook(knob, value, "predicted", because, current, MappingProxyType(dict(expected)), limits)


def _budget(case: Case, value: int) -> _Told:
    load, budget, fit = load_of(case), case.knobs.budget or 0, case.fit()
    if isinstance(load, str):
        raise _NoAnswerError(load)
    floor = case.knobs.floor
    if floor is not None and value < floor:
        raise _NoAnswerError(f"below its floor: max_num_seqs x (1 + k) = {floor}")
    full = full_step_tokens(case)
    if value < budget and load.step_tokens <= value:
        why = f"steps carry at most {load.step_tokens:.0f} tokens at p99: {value} would not bind"
        return (why,), {}, ("as long as the traffic is as it is",)
    if value > budget and full is not None and full < FULL_STEP_SHARE * budget:
        why = f"steps carry {full:.0f} of {budget} tokens on average: the budget does not bind"
        return (why,), {}, ("as long as the traffic is as it is",)
    if isinstance(fit, Unfit):
        raise _NoAnswerError(fit.reason)
    if not fit.reaches(value):
        reach = f"{fit.fewest_tokens / REACH:.0f} to {fit.most_tokens * REACH:.0f} tokens a step"
        raise _NoAnswerError(f"the fit reaches {reach}, not {value}")
    model = Lowering(load, case.knobs, budget, fit)
    because = (f"a full step takes {ms(fit.seconds(value))}, now {ms(fit.seconds(budget))}",)
    limits: tuple[str, ...] = (fit_text(fit), "attention over long contexts is not in the fit")
    if (short := model.prefill_short(value)) is not None:
        return (*because, short), {}, limits
    expected = dict(model.expected(value))
    if value > budget:
        high = (fit.seconds(value) + fit.margin_seconds(value)) / load.accepted
        expected["tpot_p95_seconds_low"] = load.tpot_seconds
        expected["tpot_p95_seconds_high"] = max(load.tpot_seconds, high)
        expected["ttft_p95_change_high_ratio"] = 0.0
        limits = (*limits, "activations take more memory: the KV cache shrinks at a restart")
    expected["tpot_p95_seconds_low"] = min(
        expected["tpot_p95_seconds_low"], expected["tpot_p95_seconds_high"]
    )
    return because, expected, limits


def _drafts(case: Case, value: int) -> _Told:
    measured = compared(case)
    if measured is not None and value in measured.gains:
        then = case.drafted.speeds[value]
        why = f"measured before: {then.tokens_per_second:.1f} tokens/s at {then.running:.0f} running"
        return (why,), {"tokens_per_second_change_ratio": measured.gains[value]}, ("at a batch like that",)
    seen = drafts_seen(case)
    if isinstance(seen, str):
        raise _NoAnswerError(seen)
    if value > len(seen.positions) + MOST_EXTRA_POSITIONS:
        raise _NoAnswerError(f"only {len(seen.positions)} positions were observed")
    limits = ["once the batch has settled at this traffic"]
    if seen.costs.measured:
        limits.append("a draft's cost by the comparison of two numbers of drafts")
    else:
        limits.append("a draft's cost is assumed, from 3 to 20 % of an empty step")
    if value > len(seen.positions):
        limits.append(f"the acceptance of position {value} is a guess: the last conditional one goes on")
    because = (
        seen.acceptance_text(),
        f"{accepted_length(seen.positions, value):.2f} tokens a step at {value}",
    )
    pairs = [(seen.tpot(value, cost), seen.tpot(seen.drafts, cost)) for cost in seen.costs.ends]
    if any(math.isinf(now) for _, now in pairs):
        raise _NoAnswerError("by the fit this traffic cannot be served as it is: the model does not hold")
    if any(math.isinf(then) for then, _ in pairs):
        return (*because, "tokens alone would take all the time: it would not keep up"), {}, tuple(limits)
    changes = sorted(then / now - 1.0 for then, now in pairs)
    expected = {"tpot_change_low_ratio": changes[0], "tpot_change_high_ratio": changes[-1]}
    return because, expected, tuple(limits)


def _thinking(case: Case, value: int) -> _Told:
    if (why := unfit_for_thinking(case)) is not None:
        raise _NoAnswerError(why)
    thoughts, now = thoughts_of(case), case.knobs.thinking
    if now is not None and now >= 0 and (value < 0 or value > now):
        raise _NoAnswerError(f"what the budget of {now} cuts was not seen whole")
    if value < 0:
        return ("thinking has no limit now",), {}, ()
    share = thoughts.share_above(value)
    if share is None:
        seen = f"{value} lies past {count(thoughts.longest)}, the longest that is seen whole"
        raise _NoAnswerError(seen)
    error = ERRORS_TOLD * thoughts.error(max(share, 1.0 / thoughts.count))
    low, high = thoughts.bounds_of(value)
    held = lengths_at(case)[0] - lengths_at(case, value)[0]
    expected = {
        "truncated_low_ratio": max(0.0, share - error),
        "truncated_high_ratio": min(1.0, share + error),
        "freed_tokens_per_request": held,
    }
    because = [f"{100 * share:.1f} % of {count(thoughts.count)} requests thought longer"]
    if share > RISKY_TRUNCATED_RATIO:
        because.append("below the p90 of thoughts: accuracy is at risk")
    elif share > MOST_TRUNCATED_RATIO:
        because.append(f"more than {percent(MOST_TRUNCATED_RATIO)} are cut: it would not be suggested")
    if (relief := relief_of(case, value)) is not None:
        expected["kv_token_steps_change_ratio"] = -relief
    limits = [f"{100 * low:.1f} to {100 * high:.1f} % by the buckets alone", NO_CLAIM]
    if relief is None:
        limits.append("prompt or output lengths are not known: nor is the KV that it frees")
    return tuple(because), expected, tuple(limits)


def _sequences(case: Case, value: int) -> _Told:
    if (why := unfit_for_sequences(case)) is not None:
        raise _NoAnswerError(why)
    now, running = case.knobs.sequences or 0, most_running(case)
    budget, fits = case.knobs.budget, what_fits(case)
    if budget is not None and value * (1 + case.knobs.drafts) > budget:
        raise _NoAnswerError(f"every sequence must fit into a step of {budget} tokens")
    if value >= running and running < now:
        why = f"{running} ran at once in the last minutes, of {now} seats: {value} would not bind"
        return (why,), {}, ("as long as the traffic is as it is",)
    if isinstance(fits, str):
        raise _NoAnswerError(fits)
    because, limits = [f"{fits[0]} sequences of {count(fits[1])} tokens (p90) fit into 90 % of KV"], []
    if value < running:
        because.append(f"{running - value} of the {running} that ran at once would queue for a seat")
    elif value > fits[0]:
        because.append("more than fit: requests would be preempted")
    expected = {"running_from": float(running), "running_high": float(value)}
    capacity = (case.replica.scalar("kv_capacity_tokens").number or 0.0) / case.engines
    expected["kv_usage_high_ratio"] = min(1.0, value * fits[1] / capacity)
    fit, tpot = case.fit(), case.replica.distribution("tpot_seconds").mean.value
    if isinstance(fit, Unfit) or tpot is None:
        limits.append(f"nothing on TPOT: {fit.reason if isinstance(fit, Unfit) else 'it is not known'}")
        return tuple(because), expected, tuple(limits)
    accepted = case.replica.scalar("spec_accepted_length").number if case.knobs.drafts else None
    more = (value - running) * (1 + case.knobs.drafts) / (accepted or 1.0)
    slopes = [fit.per_token_seconds + side * fit.per_token_margin_seconds for side in (-1, 1)]
    ends = sorted(max(0.0, tpot + more * slope) for slope in slopes)
    expected |= {"tpot_mean_seconds_from": tpot}
    expected |= {"tpot_mean_seconds_low": ends[0], "tpot_mean_seconds_high": ends[1]}
    return tuple(because), expected, (fit_text(fit), "KV that each sequence reads is not in the fit")


_CURRENT: Mapping[str, Callable[[Knobs], int | None]] = {
    BUDGET: lambda knobs: knobs.budget,
    DRAFTS: lambda knobs: knobs.drafts,
    THINKING: lambda knobs: knobs.thinking,
    SEQUENCES: lambda knobs: knobs.sequences,
}
_LEAST: Mapping[str, int] = {BUDGET: 1, DRAFTS: 0, THINKING: -1, SEQUENCES: 1}
_ASKED: Mapping[str, Callable[[Case, int], _Told]] = {
    BUDGET: _budget,
    DRAFTS: _drafts,
    THINKING: _thinking,
    SEQUENCES: _sequences,
}
