"""The rule for `max_num_seqs`, and what else helps against KV pressure.

Too many sequences for the KV cache are preempted: work is destroyed and done again. Too few leave a queue
beside a cache that would have held them, which costs more unless much work is destroyed. What fits is worked
out from the lengths of what is served. Heuristic, and constants here: the shares and the steps.
"""

from __future__ import annotations

import math

from enginetop.fleet.snapshot import Advice
from tuners import thinking, thinking_evidence
from tuners.case import Case, Rule, once
from tuners.knob_values import SEQUENCES, THINKING
from tuners.limits import FEWEST_FOR_P95
from tuners.rows import known_points
from tuners.seats import (
    FEWEST_MINUTES,
    kv_usage_ratio,
    most_running,
    redone_lately,
    redone_now,
    running_requests,
    waiting_requests,
    what_fits,
)
from tuners.trend import seconds_to_full, trend_of
from tuners.words import (
    at_least,
    count,
    known_count,
    lacking,
    not_fresh,
    percent,
    row,
    time_text,
    too_short,
)

LEAST_REDONE_RATIO = 0.1
"""A lower cap is worth its queue when this share of all computed tokens is computed a second time."""
ROOMY_KV = 0.50
FULL_SEQUENCES_SHARE = 0.98
RAISE_RATIO, MOST_RAISE_RATIO = 1.25, 2.0
"""A raise is by a quarter at least, and up to twice where that many more wait."""
TPOT_SHARE = 0.9
"""TPOT must need at most this share of its objective: each step serves more requests then."""

REMEDIES = (
    "else, in this order: gpu_memory_utilization in steps of .02 up to .95 where memory is free, fp8 KV, a "
    "thinking or max_tokens cap, more tensor parallelism, another replica"
)


_NEEDED = (
    "requests_running",
    "requests_waiting",
    "kv_usage_ratio",
    "preemptions",
    "preemptions_per_second",
    "prompt_tokens_per_second",
    "generation_tokens_per_second",
)


@once
def calls(case: Case) -> str | None:
    """`lower` while preemptions destroy much work, `raise` while requests queue beside an empty cache."""
    if case.knobs.sequences is None or unfit(case) is not None:
        return None
    if _preempts(case):
        return "lower"
    return "raise" if _queues_for_a_seat(case, case.knobs.sequences) else None


def advise(case: Case) -> Advice:
    """The advice row."""
    sequences = case.knobs.sequences
    if (why := unfit(case)) is not None:
        return row(SEQUENCES, "withheld", why, sequences)
    if sequences is None:
        why = f"{SEQUENCES} is not known: neither the pages nor a knob API tell it"
        return row(SEQUENCES, "withheld", why, None)
    if case.knobs.problem:
        return row(SEQUENCES, "withheld", case.knobs.problem, sequences)
    called = calls(case)
    if called is None:
        return _no_call(case, sequences)
    said = _symptom(case, sequences, called)
    if called == "lower" and _thoughts_come_first(case):
        why = f"{THINKING} comes first: a cap on thoughts takes work away, fewer seats only queue it"
        return row(SEQUENCES, "hold", why, sequences, said, bound_by="kv")
    if (short := too_short(case)) is not None:
        return row(SEQUENCES, "withheld", short, sequences, said)
    if called == "lower" and (seen := len(case.minutes)) < FEWEST_MINUTES:
        why = f"how many run at once is told by {FEWEST_MINUTES} minutes, {seen} were seen"
        return row(SEQUENCES, "withheld", why, sequences, said)
    return _lowered(case, sequences, said) if called == "lower" else _raised(case, sequences, said)


RULE = Rule(SEQUENCES, calls, advise)


@once
def unfit(case: Case) -> str | None:
    """Why the pages cannot be judged; None: they can."""
    return not_fresh(case) or lacking(case, _NEEDED)


def _preempts(case: Case) -> bool:
    """Whether preemptions destroy enough work, or may for all that is known: now, and over minutes."""
    return all(
        redone is None or redone >= LEAST_REDONE_RATIO for redone in (redone_now(case), redone_lately(case))
    )


def _thoughts_come_first(case: Case) -> bool:
    """Whether a cap on thoughts is called for that can be set here, suggested or waiting for evidence, or may
    be once enough thoughts have ended.
    """
    told = thinking.advise(case)
    _, via = case.knobs.way(THINKING, int(told.proposed or 0))
    if not via:
        return False
    if thinking.calls(case) == "lower":
        return told.action in ("lower", "withheld")
    return thinking_evidence.counts_still(case)


def _queues_for_a_seat(case: Case, sequences: int) -> bool:
    return _seats_are_taken(case, sequences) and not _tpot_is_full(case)


def _tpot_is_full(case: Case) -> bool:
    tpot = case.replica.distribution("tpot_seconds")
    if known_count(tpot) < FEWEST_FOR_P95:
        return False
    return at_least(tpot.quantiles["p95"]) > TPOT_SHARE * case.replica.slo.tpot_seconds


def _seats_are_taken(case: Case, sequences: int) -> bool:
    """Whether requests queue for a seat beside an empty cache."""
    return (
        waiting_requests(case) > 0
        and running_requests(case) >= FULL_SEQUENCES_SHARE * sequences
        and kv_usage_ratio(case) < ROOMY_KV
        and not case.replica.scalar("preemptions").number
    )


def _lowered(case: Case, sequences: int, said: str) -> Advice:
    fitting = what_fits(case)
    if isinstance(fitting, str):
        return row(SEQUENCES, "withheld", fitting, sequences, said)
    fits, resident = fitting
    running = most_running(case)
    proposed = max(fits, running, 1)
    need = f"{count(resident)} KV tokens a sequence (p90) fit {fits} times into 90 % of the cache"
    if proposed >= sequences:
        why = f"{running} ran at once, {fits} would fit: a cap of {proposed} would not bind"
        return row(SEQUENCES, "hold", why, sequences, said, need, REMEDIES, bound_by="kv")
    because = [said, need]
    if proposed == running > fits:
        because.append(
            f"not below the {running} that ran at once in the last {len(case.minutes)} min: those did fit"
        )
    because += [REMEDIES, "wrong if prompts or answers grow shorter: then requests queue for a seat"]
    apply, via = case.knobs.way(SEQUENCES, proposed)
    expected = {"running_high": float(proposed), "preemptions_per_second_low": 0.0}
    return Advice(
        SEQUENCES, "lower", tuple(because), sequences, proposed, "kv", expected, "medium", apply, via
    )


def _raised(case: Case, sequences: int, said: str) -> Advice:
    wanted = sequences + waiting_requests(case)
    proposed = math.ceil(min(max(RAISE_RATIO * sequences, wanted), MOST_RAISE_RATIO * sequences))
    fitting = what_fits(case)
    if isinstance(fitting, str):
        return row(SEQUENCES, "withheld", fitting, sequences, said)
    fits, resident = fitting
    need = f"{count(resident)} KV tokens a sequence (p90) fit {fits} times into 90 % of the cache"
    proposed = min(proposed, fits)
    if proposed <= sequences:
        return row(SEQUENCES, "hold", "no more would fit", sequences, said, need, bound_by="kv")
    if case.knobs.budget is not None:
        proposed = min(proposed, case.knobs.budget // (1 + case.knobs.drafts))
    if proposed <= sequences:
        why = "every sequence must fit into a step: max_num_batched_tokens comes first"
        return row(SEQUENCES, "hold", why, sequences, said, need, bound_by="token_budget")
    because = (said, need, "wrong if TPOT has no room: each step serves more requests")
    apply, via = case.knobs.way(SEQUENCES, proposed)
    return Advice(SEQUENCES, "raise", because, sequences, proposed, "sequences", {}, "medium", apply, via)


def _symptom(case: Case, sequences: int, called: str) -> str:
    if called == "lower":
        per_second = case.replica.scalar("preemptions_per_second").number or 0.0
        said = f"{per_second:.2f} preemptions a second at KV {percent(kv_usage_ratio(case))}"
        redone = redone_now(case)
        return said if redone is None else f"{said}: {percent(redone)} of the work is done again"
    kv, waiting = percent(kv_usage_ratio(case)), waiting_requests(case)
    return f"{waiting:.0f} wait: all {sequences} seats are taken while KV is {kv} full"


def _no_call(case: Case, sequences: int) -> Advice:
    kv = percent(kv_usage_ratio(case))
    full = seconds_to_full(trend_of(known_points(case.recent, "at", "kv_usage_ratio")))
    if full is not None and full < 600:
        why = f"KV is {kv} full and will be full in {full / 60:.0f} min at this pace"
        return row(SEQUENCES, "hold", why, sequences, bound_by="kv")
    if _seats_are_taken(case, sequences):
        tpot = case.replica.distribution("tpot_seconds").quantiles["p95"]
        why = f"TPOT p95 {time_text(tpot)} leaves no room: each step would serve more requests"
        return row(SEQUENCES, "hold", why, sequences, _symptom(case, sequences, "raise"), bound_by="capacity")
    running = running_requests(case)
    if waiting_requests(case) > 0 and running >= FULL_SEQUENCES_SHARE * sequences:
        why = f"all {sequences} seats are taken, but KV is {kv} full: more would not fit"
        return row(SEQUENCES, "hold", why, sequences, bound_by="kv")
    if case.replica.scalar("preemptions_per_second").number:
        why = _symptom(case, sequences, "lower")
        if (lately := redone_lately(case)) is not None and lately < LEAST_REDONE_RATIO:
            why += f", {percent(lately)} over the last minutes"
        why += ": less than a queue for fewer seats would cost"
        return row(SEQUENCES, "hold", why, sequences, bound_by="kv")
    why = f"{running:.0f} of {sequences} seats are taken and nothing is preempted"
    return row(SEQUENCES, "hold", why, sequences)
