"""The rule for `max_num_batched_tokens`, both ways.

A step serves all decoding requests and fills the rest of its budget with prefill; its time grows with its
tokens, so that a large budget buys throughput and TTFT with TPOT. Lower it when full steps break the TPOT
objective, raise it when prompts queue for it while TPOT has slack. Heuristic, and constants here: the shares
and the hold.
"""

from __future__ import annotations

from enginetop.fleet.snapshot import Advice
from tuners.budget_lowering import Lowering, symptom
from tuners.budget_raising import calls_for_more, raised, why_not_more
from tuners.case import Case, Rule
from tuners.knob_values import BUDGET
from tuners.load import Load, load_of
from tuners.step_time import Unfit
from tuners.words import ms, percent, row, time_text, too_short

TTFT_SHARE = 0.7
"""TTFT must need at most this share of its objective: a smaller budget costs TTFT."""
NOT_KNOWN = f"{BUDGET} is not known: neither the pages nor a knob API tell it"
FULL_SHARE = 0.9
"""A budget binds when steps carry this share of it at p99."""


def calls(case: Case) -> str | None:
    """`lower` when full steps break TPOT while TTFT has slack, `raise` when prompts queue for full steps."""
    load = load_of(case)
    if isinstance(load, str) or case.knobs.budget is None:
        return None
    if _calls_for_less(load, case.knobs.budget):
        return "lower"
    return "raise" if calls_for_more(case, load) else None


def _calls_for_less(load: Load, budget: int) -> bool:
    return (
        load.tpot_seconds > load.tpot_slo
        and load.ttft_seconds <= TTFT_SHARE * load.ttft_slo
        and load.step_tokens >= FULL_SHARE * budget
    )


def advise(case: Case) -> Advice:
    """The advice row."""
    load, budget = load_of(case), case.knobs.budget
    if isinstance(load, str):
        return row(BUDGET, "withheld", load, budget)
    if budget is None:
        return row(BUDGET, "withheld", NOT_KNOWN, None)
    if case.knobs.problem:
        return row(BUDGET, "withheld", case.knobs.problem, budget)
    if _calls_for_less(load, budget):
        return _lowered(case, load, budget)
    if calls_for_more(case, load):
        return raised(case, load, budget)
    return _no_call(case, load, budget)


RULE = Rule(BUDGET, calls, advise)


def _lowered(case: Case, load: Load, budget: int) -> Advice:
    if (short := too_short(case)) is not None:
        return row(BUDGET, "withheld", short, budget, symptom(load))
    fit = case.fit()
    if isinstance(fit, Unfit):
        return row(BUDGET, "withheld", fit.reason, budget, symptom(load))
    return Lowering(load, case.knobs, budget, fit).advice()


def _no_call(case: Case, load: Load, budget: int) -> Advice:
    """Why the load calls for no other budget."""
    tpot_breaks, ttft_breaks = load.tpot_seconds > load.tpot_slo, load.ttft_seconds > load.ttft_slo
    if tpot_breaks and ttft_breaks:
        return row(BUDGET, "hold", f"{symptom(load)}: capacity, not the budget", budget, bound_by="capacity")
    if ttft_breaks:
        said = f"TTFT p95 {time_text(load.ttft)} breaks the {ms(load.ttft_slo)} SLO"
        return row(BUDGET, "hold", why_not_more(case, load), budget, said)
    if not tpot_breaks:
        why = f"TPOT p95 {time_text(load.tpot)} is within the {ms(load.tpot_slo)} SLO"
        return row(BUDGET, "hold", why, budget)
    if load.step_tokens < FULL_SHARE * budget:
        why = f"steps carry {load.step_tokens:.0f} of {budget} tokens at p99: the budget does not bind"
        return row(BUDGET, "hold", why, budget, symptom(load))
    share = percent(load.ttft_seconds / load.ttft_slo)
    why = f"TTFT needs {share} of its SLO, at most {percent(TTFT_SHARE)} leaves room"
    return row(BUDGET, "hold", why, budget, symptom(load), bound_by="capacity")
