"""What some engines say beyond the core signals: KV tiers, LoRA, grammar, transfer, experts, admission.

A signal of this catalogue is in a snapshot only where a page exports it, so that it costs nothing elsewhere
and a fleet of engines without it is not full of empty rows. The measures below are those that an engine's
mapping table may name beside the core ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from enginetop.fleet.frozen import frozen
from enginetop.fleet.signals import MEASURES, MeasureKind


class Form(StrEnum):
    """How a signal is made of its measures.

    `TOTAL`: gauge, summed over ranks and replicas. `MAXIMUM`: gauge, the largest. `AVERAGE`: gauge, the mean
    over ranks. `SHARE_NOW`: one gauge over another. `RATE`: a counter's increase per second. `SHARE`: the
    increase of one counter over that of another. `DISTRIBUTION`: a histogram.
    """

    TOTAL = "total"
    MAXIMUM = "maximum"
    AVERAGE = "average"
    SHARE_NOW = "share_now"
    RATE = "rate"
    SHARE = "share"
    DISTRIBUTION = "distribution"


_KINDS = {
    Form.TOTAL: MeasureKind.GAUGE,
    Form.MAXIMUM: MeasureKind.GAUGE,
    Form.AVERAGE: MeasureKind.GAUGE,
    Form.SHARE_NOW: MeasureKind.GAUGE,
    Form.RATE: MeasureKind.COUNTER,
    Form.SHARE: MeasureKind.COUNTER,
    Form.DISTRIBUTION: MeasureKind.HISTOGRAM,
}


@frozen
class Beyond:
    """One row of the catalogue. `measures`: one, or numerator and denominator of a share.

    `group` and `title` are how a screen heads and calls it.
    """

    name: str
    group: str
    title: str
    unit: str
    form: Form
    measures: tuple[str, ...]
    meaning: str


def _row(name: str, group: str, title: str, unit: str, form: Form, meaning: str, *measures: str) -> Beyond:
    return Beyond(name, group, title, unit, form, measures or (name,), meaning)


BEYOND: tuple[Beyond, ...] = (
    _row(
        "requests_errored_per_second",
        "errors",
        "rate",
        "requests/s",
        Form.RATE,
        "requests that ended in an error, per second",
        "requests_errored",
    ),
    _row(
        "requests_errored_ratio",
        "errors",
        "share",
        "ratio",
        Form.SHARE,
        "requests that ended in an error over all that ended",
        "requests_errored",
        "requests_finished",
    ),
    _row(
        "kv_host_usage_ratio",
        "KV tiers",
        "host used",
        "ratio",
        Form.MAXIMUM,
        "share of the host-memory KV tier in use",
    ),
    _row(
        "kv_host_tokens_ratio",
        "KV tiers",
        "host used",
        "ratio",
        Form.SHARE_NOW,
        "tokens held in the host-memory KV tier over its size",
        "kv_host_used_tokens",
        "kv_host_total_tokens",
    ),
    _row(
        "kv_host_hit_tokens_per_second",
        "KV tiers",
        "host hits",
        "tokens/s",
        Form.RATE,
        "prompt tokens found in host memory instead of computed",
        "kv_host_hit_tokens",
    ),
    _row(
        "kv_disk_hit_tokens_per_second",
        "KV tiers",
        "disk hits",
        "tokens/s",
        Form.RATE,
        "prompt tokens found on local storage",
        "kv_disk_hit_tokens",
    ),
    _row(
        "kv_remote_hit_tokens_per_second",
        "KV tiers",
        "remote hits",
        "tokens/s",
        Form.RATE,
        "prompt tokens fetched from another instance or an external store (LMCache and the like)",
        "kv_remote_hit_tokens",
    ),
    _row(
        "kv_offload_bytes_per_second",
        "KV tiers",
        "written out",
        "bytes/s",
        Form.RATE,
        "KV written out to a lower tier",
        "kv_offload_bytes",
    ),
    _row(
        "kv_onload_bytes_per_second",
        "KV tiers",
        "read back",
        "bytes/s",
        Form.RATE,
        "KV read back from a lower tier",
        "kv_onload_bytes",
    ),
    _row(
        "kv_offload_blocks_per_second",
        "KV tiers",
        "blocks out",
        "blocks/s",
        Form.RATE,
        "KV blocks written out to a lower tier",
        "kv_offload_blocks",
    ),
    _row(
        "kv_onload_blocks_per_second",
        "KV tiers",
        "blocks back",
        "blocks/s",
        Form.RATE,
        "KV blocks read back from a lower tier",
        "kv_onload_blocks",
    ),
    _row(
        "kv_host_hit_ratio",
        "KV tiers",
        "host hit",
        "ratio",
        Form.AVERAGE,
        "share of looked up KV found in host memory",
    ),
    _row(
        "kv_disk_hit_ratio",
        "KV tiers",
        "disk hit",
        "ratio",
        Form.AVERAGE,
        "share of looked up KV found on local storage",
    ),
    _row(
        "lora_running_adapters", "LoRA", "running", "adapters", Form.TOTAL, "adapters with running requests"
    ),
    _row(
        "lora_waiting_adapters", "LoRA", "waiting", "adapters", Form.TOTAL, "adapters with waiting requests"
    ),
    _row("lora_slots_used", "LoRA", "resident", "adapters", Form.TOTAL, "adapters resident on the GPU"),
    _row("lora_slots_total", "LoRA", "slots", "adapters", Form.TOTAL, "adapters that fit on the GPU"),
    _row(
        "grammar_waiting_requests",
        "grammar",
        "waiting",
        "requests",
        Form.TOTAL,
        "requests waiting for their grammar to be compiled",
    ),
    _row(
        "grammar_compile_seconds",
        "grammar",
        "compile p95",
        "seconds",
        Form.DISTRIBUTION,
        "time to compile a grammar",
    ),
    _row("models_loaded", "models", "loaded", "models", Form.TOTAL, "models ready to answer"),
    _row("models_loading", "models", "loading", "models", Form.TOTAL, "models that are being loaded"),
    _row("models_sleeping", "models", "asleep", "models", Form.TOTAL, "models that a request would wake"),
    _row("models_unloaded", "models", "unloaded", "models", Form.TOTAL, "models that a request would load"),
    _row(
        "deferred_requests",
        "admission",
        "deferred",
        "requests",
        Form.TOTAL,
        "waiting for something other than capacity: a LoRA slot, remote KV",
    ),
    _row(
        "paused_requests",
        "admission",
        "paused",
        "requests",
        Form.TOTAL,
        "set aside for want of KV blocks now: a level where an engine does not count preemptions",
    ),
    _row(
        "requests_rejected_per_second",
        "admission",
        "rejected",
        "requests/s",
        Form.RATE,
        "requests refused at the door",
        "requests_rejected",
    ),
    _row(
        "admission_waiting_requests",
        "admission",
        "held",
        "requests",
        Form.TOTAL,
        "held at the door by an admission limit, before any engine has them",
    ),
    _row(
        "transfer_waiting_requests",
        "transfer",
        "waiting",
        "requests",
        Form.TOTAL,
        "requests waiting for, or in, a KV transfer between prefill and decode",
    ),
    _row(
        "kv_transfer_seconds", "transfer", "time p95", "seconds", Form.DISTRIBUTION, "time of one KV transfer"
    ),
    _row(
        "kv_transfer_failures_per_second",
        "transfer",
        "failed",
        "1/s",
        Form.RATE,
        "KV transfers that failed or came too late",
        "kv_transfer_failures",
    ),
    _row(
        "expert_balance_ratio",
        "experts",
        "balance",
        "ratio",
        Form.AVERAGE,
        "mean over maximum load of the experts: 1 is even",
    ),
    _row(
        "backends_healthy",
        "gateway",
        "healthy",
        "backends",
        Form.TOTAL,
        "backends that the gateway routes to",
    ),
    _row("backends_total", "gateway", "known", "backends", Form.TOTAL, "backends that the gateway knows"),
    _row(
        "gateway_waiting_requests",
        "gateway",
        "held",
        "requests",
        Form.TOTAL,
        "requests held by the gateway itself",
    ),
    _row(
        "gateway_queue_seconds",
        "gateway",
        "held for",
        "seconds",
        Form.DISTRIBUTION,
        "time that requests are held by the gateway",
    ),
    _row(
        "pool_saturation_ratio",
        "gateway",
        "saturation",
        "ratio",
        Form.MAXIMUM,
        "load of the pool over what the gateway lets through; from 1 on it holds requests back",
    ),
    _row(
        "routed_prefix_match_ratio",
        "gateway",
        "prefix match",
        "ratio",
        Form.DISTRIBUTION,
        "share of a prompt that the chosen backend is thought to have in its cache",
    ),
    _row(
        "routed_prefix_hit_ratio",
        "gateway",
        "routed by prefix",
        "ratio",
        Form.SHARE,
        "share of requests that went to a backend for a prefix known there",
        "routed_prefix_hits",
        "routed_prefix_queries",
    ),
    _row(
        "retries_per_second",
        "gateway",
        "retries",
        "1/s",
        Form.RATE,
        "requests tried again on another backend",
        "retries",
    ),
    _row(
        "migrations_per_second",
        "gateway",
        "migrations",
        "1/s",
        Form.RATE,
        "requests moved to another worker while being served",
        "migrations",
    ),
    _row(
        "models_ready",
        "gateway",
        "models",
        "models",
        Form.TOTAL,
        "models that the gateway has workers for",
    ),
    _row(
        "prefill_replicas",
        "planner",
        "prefill",
        "replicas",
        Form.TOTAL,
        "prefill workers as the planner counts them",
    ),
    _row(
        "prefill_replicas_wanted",
        "planner",
        "prefill wanted",
        "replicas",
        Form.TOTAL,
        "prefill workers that the planner decided on",
    ),
    _row(
        "decode_replicas",
        "planner",
        "decode",
        "replicas",
        Form.TOTAL,
        "decode workers as the planner counts them",
    ),
    _row(
        "decode_replicas_wanted",
        "planner",
        "decode wanted",
        "replicas",
        Form.TOTAL,
        "decode workers that the planner decided on",
    ),
)

BEYOND_MEASURES: Mapping[str, MeasureKind] = MappingProxyType(
    {m: _KINDS[row.form] for row in BEYOND for m in row.measures if m not in MEASURES}
)
"""Raw measures that only this catalogue is made of."""

MEASURE_KINDS: Mapping[str, MeasureKind] = MappingProxyType({**MEASURES, **BEYOND_MEASURES})
"""Every measure that an engine's table may map to, core and beyond."""
