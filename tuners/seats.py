"""The seats of an engine: who runs and waits, how many would fit, and how much preemptions compute again."""

from __future__ import annotations

import math

from tuners.case import Case
from tuners.kv_maths import fitting_sequences, redone_ratio, resident_tokens
from tuners.limits import FEWEST_FOR_P95
from tuners.rows import known
from tuners.words import LONGER_WINDOW, contradiction, known_count, missing

FEWEST_MINUTES = 10
"""So long preemptions and running requests are watched before: a cap at the peak of a quiet moment queues."""


def running_requests(case: Case) -> float:
    """Running requests of one engine; the median of the last pages, since the gauge is a sample."""
    seen = sorted(known(case.recent, "running"))
    total = seen[len(seen) // 2] if seen else case.replica.scalar("requests_running").number or 0.0
    return total / case.engines


def most_running(case: Case) -> int:
    """The most requests that one engine ran at once in up to half an hour. A cap below costs seats that the
    KV cache had, while a preemption costs one prefill: queues grow more than they shrink.
    """
    seen = [*known(case.recent, "running")]
    seen += [one.most_running for one in case.minutes if one.most_running > 0]
    return math.floor(max(seen, default=running_requests(case) * case.engines) / case.engines)


def waiting_requests(case: Case) -> float:
    """Requests of one engine that wait."""
    return (case.replica.scalar("requests_waiting").number or 0.0) / case.engines


def kv_usage_ratio(case: Case) -> float:
    """Share of the KV cache in use, on average over the engines of the replica."""
    kv = case.replica.scalar("kv_usage_ratio")
    return kv.mean if kv.mean is not None else kv.number or 0.0


def redone_now(case: Case) -> float | None:
    """Share of the computed tokens that preemptions have computed twice; None where lengths are not known.

    A victim computes its prompt again, and half of its output by expectation.
    """
    per_second = case.replica.scalar("preemptions_per_second").number or 0.0
    if not per_second:
        return 0.0
    lengths = _mean_lengths(case)
    computed = [
        case.replica.scalar(name).number
        for name in ("prompt_tokens_per_second", "generation_tokens_per_second")
    ]
    if lengths is None or None in computed:
        return None
    return redone_ratio(per_second * resident_tokens(*lengths), math.fsum(one or 0.0 for one in computed))


def redone_lately(case: Case) -> float | None:
    """The same share over all minutes since the knobs are as they are; None: not known yet."""
    requests = math.fsum(one.requests for one in case.minutes)
    lengths = _mean_lengths(case)
    if len(case.minutes) < FEWEST_MINUTES or not requests or lengths is None:
        return None
    preempted = math.fsum(one.preemptions for one in case.minutes) / requests
    return redone_ratio(preempted * resident_tokens(*lengths), math.fsum(lengths))


def _mean_lengths(case: Case) -> tuple[float, float] | None:
    """Mean tokens of prompts and of outputs."""
    prompt, output = (
        case.replica.distribution(name).mean.value for name in ("prompt_tokens", "output_tokens")
    )
    return None if prompt is None or output is None else (prompt, output)


def what_fits(case: Case) -> tuple[int, float] | str:
    """Sequences that fit into the KV of one engine, and the p90 that each needs; or what is missing."""
    replica = case.replica
    capacity = replica.scalar("kv_capacity_tokens").number
    if not capacity:
        return "kv_capacity_tokens is not known"
    lengths = _lengths(case)
    if isinstance(lengths, str):
        return lengths
    needed = resident_tokens(*lengths)
    return (fitting_sequences(capacity / case.engines, needed), needed) if needed > 0 else "lengths are zero"


def _lengths(case: Case) -> tuple[float, float] | str:
    """The p90 of prompts and of outputs in the window, or, where it holds too few requests, on average over
    those of the last minutes; or what is missing.
    """
    prompts, outputs = (case.replica.distribution(name) for name in ("prompt_tokens", "output_tokens"))
    for name, lengths in (("prompt_tokens", prompts), ("output_tokens", outputs)):
        if (why := contradiction(lengths)) is not None:
            return f"{name} {why}"
        if lengths.count is None:
            return missing(name, lengths)
    lacks = f"prompt and output lengths of {FEWEST_FOR_P95} requests are needed"
    if (seen := min(known_count(prompts), known_count(outputs))) >= FEWEST_FOR_P95:
        prompt, output = prompts.quantiles["p90"].value, outputs.quantiles["p90"].value
        return "the lengths pass the last bucket" if prompt is None or output is None else (prompt, output)
    told = [
        (one.requests, one.prompt_p90, one.output_p90)
        for one in case.minutes
        if one.prompt_p90 is not None and one.output_p90 is not None
    ]
    requests = math.fsum(count for count, _, _ in told)
    if requests < FEWEST_FOR_P95:
        few = f"{lacks}, {seen:.0f} are in the window and {requests:.0f} in the last minutes"
        return f"{few}; {LONGER_WINDOW}"
    return (
        math.fsum(count * prompt for count, prompt, _ in told) / requests,
        math.fsum(count * output for count, _, output in told) / requests,
    )
