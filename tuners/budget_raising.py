"""Raising the token budget: twice as many tokens a step, as far as TPOT allows by the fit of step time.

Called for when prompts wait for room in steps that are full, and nothing else holds them back: KV cache and
batch have room, nothing is preempted, TPOT has slack. A larger budget needs more activation memory, so that
the KV cache shrinks at a restart. Heuristic, and constants here: the shares.
"""

from __future__ import annotations

import math

from enginetop.fleet.snapshot import Advice, Quantile
from tuners.budget_lowering import fit_text
from tuners.case import Case
from tuners.knob_values import BUDGET
from tuners.lateness import Lateness, lateness_of
from tuners.limits import MOST_PREEMPTED_RATIO, MULTIPLE_TOKENS
from tuners.load import Load
from tuners.rows import known_points
from tuners.step_time import REACH, Unfit
from tuners.trend import trend_of
from tuners.words import ms, percent, row, time_text, too_short

FULL_STEP_SHARE = 0.85
"""Steps are full when they carry this share of the budget on average."""
TPOT_SHARE = 0.7
"""TPOT must need at most this share of its objective."""
ROOMY_KV = 0.80
FREE_SEQUENCES_SHARE = 0.9
FACTOR = 2
_RECENT_WINDOWS = 12
_RISE_SECONDS = 120.0
_LEAST_WAITING = 1.0
_FEWEST_QUEUED_WINDOWS = 8


def full_step_tokens(case: Case) -> float | None:
    """Tokens computed in a step, on average over the last windows; None without any.

    Or over those in which requests queued all the time, if that is more: a queue that comes and goes is what
    the budget matters for.
    """
    windows = known_points(case.windows, "tokens", "waiting")
    groups = [[tokens for tokens, _ in windows[-_RECENT_WINDOWS:]]] if windows else []
    queued = [tokens for tokens, waiting in windows if waiting >= _LEAST_WAITING]
    if len(queued) >= _FEWEST_QUEUED_WINDOWS:
        groups.append(queued)
    return max((math.fsum(tokens) / len(tokens) for tokens in groups), default=None)


def calls_for_more(case: Case, load: Load) -> bool:
    """Whether prompts wait for room in full steps, and for nothing else."""
    return _wanted(case, load) and _obstacle(case, load) is None


def raised(case: Case, load: Load, budget: int) -> Advice:
    """The row of a load that calls for more."""
    said = _symptom(case, load)
    if (short := too_short(case)) is not None:
        return row(BUDGET, "withheld", short, budget, said)
    proposed, because, confidence = FACTOR * budget, [said, _full_text(case, budget)], "medium"
    fit = case.fit()
    expected = {"tpot_p95_seconds_from": load.tpot_seconds}
    if isinstance(fit, Unfit):
        because.append(f"no fit of the step time ({fit.reason}): one doubling, watched")
        confidence = "low"
    else:
        most = fit.most_tokens_within(load.step_limit) / MULTIPLE_TOKENS
        proposed = min(proposed, math.floor(most) * MULTIPLE_TOKENS)
        if proposed <= budget:
            why = f"by the fit a step of {FACTOR * budget} tokens takes {ms(fit.seconds(FACTOR * budget))}"
            return row(BUDGET, "hold", why, budget, said, fit_text(fit), bound_by="capacity")
        full = fit.seconds(proposed)
        because.append(f"{fit_text(fit)}: {1e3 * full:.1f} at {proposed}")
        expected["tpot_p95_seconds_high"] = (full + fit.margin_seconds(proposed)) / load.accepted
        if proposed > REACH * fit.most_tokens:
            because.append(f"beyond the fit, which reaches {REACH * fit.most_tokens:.0f} tokens a step")
            confidence = "low"
    apply, via = case.knobs.way(BUDGET, proposed)
    if apply == "restart":
        because.append("a restart: activations take more memory, so the KV cache shrinks; read it again")
    because.append("wrong if decoding slows: TPOT then passes its SLO while steps carry more")
    return Advice(
        BUDGET, "raise", tuple(because), budget, proposed, "token_budget", expected, confidence, apply, via
    )


def why_not_more(case: Case, load: Load) -> str:
    """Why a load with a late TTFT does not call for more."""
    return _obstacle(case, load) or "TTFT breaks its SLO, but nothing waits for room in a step"


def _wanted(case: Case, load: Load) -> bool:
    return load.ttft_seconds > load.ttft_slo or _queue_rises(case) or _often_late(case) is not None


def _often_late(case: Case) -> Lateness | None:
    """How late requests were over minutes, where more missed the TTFT than the objective's target leaves."""
    late = lateness_of(case)
    return late if late is not None and late.ttft_ratio > 1.0 - case.replica.slo.target else None


def _queue_rises(case: Case) -> bool:
    points = known_points(case.recent, "at", "waiting")
    since = points[-1][0] - _RISE_SECONDS if points else 0.0
    trend = trend_of([point for point in points if point[0] >= since])
    return trend is not None and trend.per_second > 0 and trend.now > _LEAST_WAITING * case.engines


def _obstacle(case: Case, load: Load) -> str | None:
    """What else than the budget holds prompts back, or makes a larger one a bad idea."""
    budget, sequences = case.knobs.budget or 0, case.knobs.sequences
    tokens = full_step_tokens(case)
    late = lateness_of(case)
    kv = case.recent[-1].kv_usage_ratio if case.recent else None
    if load.preemptions or (late is not None and late.preempted_ratio > MOST_PREEMPTED_RATIO):
        return "requests are preempted: KV is short, a larger budget makes it worse"
    if kv is not None and kv >= ROOMY_KV:
        return f"KV is {percent(kv)} full: admission waits for blocks, not for tokens"
    if sequences is not None and load.decoding >= FREE_SEQUENCES_SHARE * sequences:
        return f"{load.decoding:.0f} of {sequences} sequences run: max_num_seqs holds prompts back"
    if tokens is None:
        return "no busy windows: how full steps are is not known"
    if tokens < FULL_STEP_SHARE * budget:
        return f"steps carry {tokens:.0f} of {budget} tokens on average: the budget does not bind"
    if load.tpot_seconds > TPOT_SHARE * load.tpot_slo:
        return (
            f"TPOT p95 {time_text(load.tpot)} needs {percent(load.tpot_seconds / load.tpot_slo)} of its SLO, "
            f"at most {percent(TPOT_SHARE)} leaves room"
        )
    return None


def _symptom(case: Case, load: Load) -> str:
    waiting = case.recent[-1].waiting if case.recent else None
    queue = "" if waiting is None else f"; {waiting:.0f} wait"
    ttft: Quantile = load.ttft
    relation = "breaks" if load.ttft_seconds > load.ttft_slo else "is within"
    said = f"TTFT p95 {time_text(ttft)} {relation} the {ms(load.ttft_slo)} SLO{queue}"
    if load.ttft_seconds <= load.ttft_slo and (late := _often_late(case)) is not None:
        said += (
            f"; {percent(late.ttft_ratio)} of {late.requests:.0f} requests in {late.minutes} min were late"
        )
    return said


def _full_text(case: Case, budget: int) -> str:
    tokens = full_step_tokens(case) or 0.0
    return f"steps carry {min(tokens, budget):.0f} of {budget} tokens on average"
