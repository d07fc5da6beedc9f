"""The catalogue of signals: every name that a snapshot holds, with unit and meaning.

A *signal* is what people read (`kv_usage_ratio`, `ttft_seconds`). A *measure* is the engine-neutral raw
series that an engine's mapping table yields (`prefix_hits`, a counter); signals are derived from measures
over a window. Names and units are those of the snapshot contract.
"""

from __future__ import annotations

from enum import StrEnum

from enginetop.fleet.frozen import frozen


class Shape(StrEnum):
    """What a signal's value looks like."""

    SCALAR = "scalar"
    LIST = "list"
    DISTRIBUTION = "distribution"


@frozen
class Signal:
    """One row of the catalogue. `title` is the column or row heading on a screen."""

    name: str
    unit: str
    shape: Shape
    title: str
    meaning: str


def _scalar(name: str, unit: str, title: str, meaning: str) -> Signal:
    return Signal(name, unit, Shape.SCALAR, title, meaning)


def _distribution(name: str, unit: str, title: str, meaning: str) -> Signal:
    return Signal(name, unit, Shape.DISTRIBUTION, title, meaning)


SCALARS: tuple[Signal, ...] = (
    _scalar("requests_running", "requests", "run", "requests in the running batch now"),
    _scalar("requests_waiting", "requests", "wait", "requests queued in the engine now"),
    _scalar(
        "kv_usage_ratio", "ratio", "KV", "share of the KV cache in use; maximum over data-parallel ranks"
    ),
    _scalar("kv_capacity_tokens", "tokens", "KV cap", "tokens that the KV cache can hold, all ranks"),
    _scalar("preemptions", "preemptions", "preempt", "preemptions (SGLang: retractions) in the window"),
    _scalar("preemptions_per_second", "1/s", "pre/s", "preemptions per second"),
    _scalar("prompt_tokens_per_second", "tokens/s", "prompt/s", "prompt tokens per second, cached included"),
    _scalar("generation_tokens_per_second", "tokens/s", "tok/s", "generated tokens per second"),
    _scalar("requests_finished_per_second", "requests/s", "req/s", "requests ended per second, all reasons"),
    _scalar("requests_aborted_per_second", "requests/s", "abort/s", "requests aborted per second"),
    _scalar("prefix_hit_ratio", "ratio", "prefix", "share of queried prefix tokens found in the KV cache"),
    _scalar("external_prefix_hit_ratio", "ratio", "ext hit", "share found in an external KV cache"),
    _scalar("spec_acceptance_ratio", "ratio", "accept", "accepted draft tokens over drafted ones"),
    _scalar("spec_accepted_length", "tokens", "acc", "tokens per draft step, bonus token included"),
    Signal(
        "spec_acceptance_per_position",
        "ratio",
        Shape.LIST,
        "by position",
        "unconditional acceptance of each draft position",
    ),
    _scalar("reasoning_share_ratio", "ratio", "reason", "share of output tokens spent on reasoning"),
    _scalar(
        "reasoning_budget_hit_ratio",
        "ratio",
        "at budget",
        "share of requests whose reasoning reached the thinking budget",
    ),
    _scalar(
        "reasoning_kv_tokens", "tokens", "reason KV", "KV tokens that reasoning holds in running requests"
    ),
    _scalar("power_watts", "W", "W", "power drawn by the replica's GPUs"),
    _scalar("energy_joules_per_token", "J/token", "J/tok", "GPU energy per generated token"),
    _scalar("cost_per_million_tokens", "currency", "cost/M", "cost of a million generated tokens"),
    _scalar(
        "cost_per_million_good_tokens", "currency", "cost/M good", "cost of a million tokens within the SLO"
    ),
)

DISTRIBUTIONS: tuple[Signal, ...] = (
    _distribution("ttft_seconds", "seconds", "TTFT", "time to first token, queue included"),
    _distribution(
        "tpot_seconds", "seconds", "TPOT", "decode time per output token after the first, per request"
    ),
    _distribution("itl_seconds", "seconds", "ITL", "time between output events of a request"),
    _distribution("e2e_seconds", "seconds", "e2e", "time from arrival to the last token"),
    _distribution("queue_seconds", "seconds", "queue", "time from arrival to first scheduling"),
    _distribution("prompt_tokens", "tokens", "prompt", "prompt length of finished requests"),
    _distribution("output_tokens", "tokens", "output", "output length of finished requests"),
    _distribution("iteration_tokens", "tokens", "step tokens", "tokens scheduled per engine step"),
    _distribution("reasoning_tokens", "tokens", "reasoning", "reasoning tokens per request"),
)

SIGNALS: dict[str, Signal] = {signal.name: signal for signal in (*SCALARS, *DISTRIBUTIONS)}

PERCENTILES: tuple[tuple[str, float], ...] = (("p50", 0.50), ("p90", 0.90), ("p95", 0.95), ("p99", 0.99))
"""Quantiles of every distribution: key in the snapshot, and q."""

KNOBS: tuple[str, ...] = (
    "max_num_batched_tokens",
    "num_speculative_tokens",
    "thinking_token_budget",
    "max_num_seqs",
)
"""Knobs that every engine replica has an advice row for."""


class MeasureKind(StrEnum):
    """How a measure is read over time."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


MEASURES: dict[str, MeasureKind] = {
    "requests_running": MeasureKind.GAUGE,
    "requests_waiting": MeasureKind.GAUGE,
    "kv_usage_ratio": MeasureKind.GAUGE,
    "kv_capacity_tokens": MeasureKind.GAUGE,
    "preemptions": MeasureKind.COUNTER,
    "prompt_tokens_processed": MeasureKind.COUNTER,
    "generation_tokens": MeasureKind.COUNTER,
    "requests_finished": MeasureKind.COUNTER,
    "requests_aborted": MeasureKind.COUNTER,
    "requests_errored": MeasureKind.COUNTER,
    "requests_judged": MeasureKind.COUNTER,
    "requests_judged_failed": MeasureKind.COUNTER,
    "requests_within_slo": MeasureKind.COUNTER,
    "prefix_queries": MeasureKind.COUNTER,
    "prefix_hits": MeasureKind.COUNTER,
    "external_prefix_queries": MeasureKind.COUNTER,
    "external_prefix_hits": MeasureKind.COUNTER,
    "prefill_steps": MeasureKind.COUNTER,
    "prefill_step_tokens": MeasureKind.COUNTER,
    "spec_drafts": MeasureKind.COUNTER,
    "spec_draft_tokens": MeasureKind.COUNTER,
    "spec_accepted_tokens": MeasureKind.COUNTER,
    "spec_accepted_at_position": MeasureKind.COUNTER,
    "spec_acceptance_ratio_now": MeasureKind.GAUGE,
    "spec_accepted_length_now": MeasureKind.GAUGE,
    **{signal.name: MeasureKind.HISTOGRAM for signal in DISTRIBUTIONS},
    "completed_ttft_seconds": MeasureKind.HISTOGRAM,
    "completed_tpot_seconds": MeasureKind.HISTOGRAM,
}
"""Every measure that an engine's table may map to."""
