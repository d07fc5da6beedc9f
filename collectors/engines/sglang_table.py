"""SGLang's series by measure, 0.4.6 to 0.5.23.

Series of the scheduler stand once a rank and move while requests run; those of the request side have no rank
and move when a request ends. The prefix is `sglang:` in every release; underscores come from gateways, from
Prometheus's escaping, and from `/v1/loads?format=prometheus`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from collectors.engines.mapping import Row, Table
from enginetop.fleet.model import Quality
from enginetop.fleet.reading import Absence

_STEP_NOTE = "set at the first step of the scheduler"
_CAPACITY_NOTE = "on the page since SGLang 0.5.9; /server_info and /v1/loads tell it too"
_RETRACTED_NOTE = "appears with the first retraction"
_ABORTED_NOTE = "appears with the first abort, since SGLang 0.5.9"
_FINISH_NOTE = "appears when the first request has ended"
_TPOT_NOTE = "exported after SGLang 0.5.15"
_QUEUE_NOTE = "exported since SGLang 0.5.9"
_LENGTHS_NOTE = "exported since SGLang 0.5.2, in older releases with --collect-tokens-histogram only"
_SPEC_NOTE = "counted since SGLang 0.5.15, with speculative decoding only"
_NO_SPEC_NOTE = "no speculative decoding is configured"
_NO_HOST_TIER = "no hierarchical cache is configured (--enable-hierarchical-cache)"
_SPECULATE = "start it with --speculative-algorithm"
_COMPANION = "the companion enginetop-companion-sglang"
_PRIORITY = "priority"
_HOST_TIER = ("hicache_host_total_tokens",)


def _mode(*modes: str) -> Mapping[str, frozenset[str]]:
    return MappingProxyType({"mode": frozenset(modes)})


_HITS = _mode("device_hit", "host_hit", "storage_hit")
_DISAGGREGATED = MappingProxyType({"engine_type": frozenset({"prefill", "decode", "dynamic"})})
_REFUSED = MappingProxyType(
    {
        "status_code": frozenset({"429", "503"}),
        "endpoint": frozenset({"/generate", "/v1/chat/completions", "/v1/completions", "/v1/responses"}),
    }
)


def _scheduler(row: Row) -> Row:
    """With priority scheduling these have a series for all and one for each priority."""
    return replace(row, total_label=_PRIORITY)


GAUGES: tuple[Row, ...] = tuple(
    map(
        _scheduler,
        (
            Row("requests_running", ("num_running_reqs",), lazy=True, note=_STEP_NOTE),
            # Requests that wait for their grammar, or for a transfer of KV, are in queues of their own.
            Row("requests_waiting", ("num_queue_reqs", "queues_waiting"), lazy=True, note=_STEP_NOTE),
            # The fullest of full attention, sliding window and Mamba; without the prefix cache, which can be
            # evicted.
            Row("kv_usage_ratio", ("token_usage",), lazy=True, note=_STEP_NOTE),
            Row("kv_capacity_tokens", ("max_total_num_tokens",), note=_CAPACITY_NOTE, since="0.5.9"),
        ),
    )
)
"""What `/v1/loads` tells too, and fresher: on the page they are as old as the scheduler's last report."""

_SCHEDULER: tuple[Row, ...] = (
    Row(
        "preemptions",
        ("num_retracted_requests", "total_retracted_reqs"),
        lazy=True,
        note=_RETRACTED_NOTE,
        since="0.5.2",
    ),
    # A request's first token comes out of its prefill and is not in it.
    Row("generation_tokens", ("realtime_tokens",), where=_mode("decode")),
    # Both are counted in one report of each prefill batch: their quotient is the mean batch, exactly.
    Row(
        "prefill_steps", ("cuda_graph_passes",), where=_mode("prefill_cuda_graph", "prefill_none"), lazy=True
    ),
    Row("prefill_step_tokens", ("realtime_tokens",), where=_mode("prefill_compute"), lazy=True),
    Row("prefix_queries", ("prefill_effective_tokens",)),
    Row("prefix_hits", ("prefill_effective_tokens",), where=_HITS),
    Row(
        "prefix_queries",
        ("realtime_tokens",),
        where=_mode("prefill_compute", "prefill_cache"),
        unless=("prefill_effective_tokens",),
    ),
    Row(
        "prefix_hits",
        ("realtime_tokens",),
        where=_mode("prefill_cache"),
        unless=("prefill_effective_tokens",),
    ),
    # What the device does not hold is looked up in host memory and in storage.
    Row(
        "external_prefix_queries",
        ("prefill_effective_tokens",),
        where=_mode("input", "host_hit", "storage_hit"),
        only_with=_HOST_TIER,
        note=_NO_HOST_TIER,
        since="0.5.23",
    ),
    Row(
        "external_prefix_hits",
        ("prefill_effective_tokens",),
        where=_mode("host_hit", "storage_hit"),
        only_with=_HOST_TIER,
        note=_NO_HOST_TIER,
        since="0.5.23",
    ),
    Row("queue_seconds", ("queue_time_seconds", "queue_time_s"), note=_QUEUE_NOTE, since="0.5.9"),
    Row("spec_accepted_length_now", ("spec_accept_length",), note=_NO_SPEC_NOTE),
    Row("spec_acceptance_ratio_now", ("spec_accept_rate",), note=_NO_SPEC_NOTE, since="0.5.9"),
    Row("grammar_waiting_requests", ("num_grammar_queue_reqs",), since="0.5.2"),
    Row("grammar_compile_seconds", ("grammar_compilation_time_seconds",), since="0.5.2"),
    Row("lora_slots_used", ("lora_pool_slots_used",), since="0.5.9"),
    Row("lora_slots_total", ("lora_pool_slots_total",), since="0.5.9"),
    Row("kv_host_used_tokens", ("hicache_host_used_tokens",), since="0.5.15"),
    Row("kv_host_total_tokens", ("hicache_host_total_tokens",), since="0.5.15"),
    Row(
        "kv_host_hit_tokens",
        ("prefill_effective_tokens",),
        where=_mode("host_hit"),
        only_with=_HOST_TIER,
        since="0.5.23",
    ),
    Row(
        "kv_remote_hit_tokens",
        ("prefill_effective_tokens",),
        where=_mode("storage_hit"),
        only_with=_HOST_TIER,
        since="0.5.23",
    ),
    *(
        Row("transfer_waiting_requests", names, where=_DISAGGREGATED, since="0.5.2")
        for names in (
            ("num_prefill_bootstrap_queue_reqs", "num_prefill_prealloc_queue_reqs"),
            ("num_prefill_inflight_queue_reqs",),
            ("num_decode_prealloc_queue_reqs",),
            ("num_decode_transfer_queue_reqs",),
        )
    ),
    # A gauge of the last transfer before 0.5.15.
    Row("kv_transfer_seconds", ("kv_transfer_latency_ms",), scale=0.001, since="0.5.15"),
    Row("kv_transfer_failures", ("num_transfer_failed_reqs",), since="0.5.2"),
    Row("kv_transfer_failures", ("num_bootstrap_failed_reqs",), since="0.5.2"),
)

_REQUESTS: tuple[Row, ...] = (
    Row("prompt_tokens_processed", ("prompt_tokens",), lazy=True, note=_FINISH_NOTE),
    Row(
        "generation_tokens",
        ("generation_tokens",),
        unless=("realtime_tokens",),
        lazy=True,
        note=_FINISH_NOTE,
    ),
    # A request that is aborted while it runs ends as well; one aborted in the queue is in the aborts only.
    Row("requests_finished", ("num_requests",), lazy=True, note=_FINISH_NOTE),
    Row("requests_aborted", ("num_aborted_requests",), lazy=True, note=_ABORTED_NOTE, since="0.5.9"),
    Row(
        "prefix_queries",
        ("prompt_tokens",),
        unless=("prefill_effective_tokens", "realtime_tokens"),
        lazy=True,
        note=_FINISH_NOTE,
    ),
    # By source (device, host, storage) where SGLang knows it, else under "total": never both for a request.
    Row(
        "prefix_hits",
        ("cached_tokens",),
        unless=("prefill_effective_tokens", "realtime_tokens"),
        lazy=True,
        note=_FINISH_NOTE,
    ),
    Row("spec_drafts", ("spec_verify_calls",), note=_SPEC_NOTE, since="0.5.15"),
    Row("ttft_seconds", ("time_to_first_token_seconds",), lazy=True, note=_FINISH_NOTE),
    Row("tpot_seconds", ("request_time_per_output_token_seconds",), note=_TPOT_NOTE, since="0.5.23"),
    # An output event with several tokens counts each of them, with its share of the interval.
    Row("itl_seconds", ("inter_token_latency_seconds",), lazy=True, note=_FINISH_NOTE),
    Row("e2e_seconds", ("e2e_request_latency_seconds",), lazy=True, note=_FINISH_NOTE),
    Row("prompt_tokens", ("prompt_tokens_histogram",), note=_LENGTHS_NOTE, since="0.5.2"),
    Row("output_tokens", ("generation_tokens_histogram",), note=_LENGTHS_NOTE, since="0.5.2"),
    Row("requests_rejected", ("http_responses",), where=_REFUSED, since="0.5.9"),
)

# The prefix cache names a data-parallel rank even where there is one only.
_CACHE: tuple[Row, ...] = (
    Row("kv_offload_bytes", ("hicache_backup_bytes",), unranked=True, since="0.5.23"),
    Row("kv_onload_bytes", ("load_back_bytes",), unranked=True, since="0.5.23"),
)

NOT_IN_0_4 = MappingProxyType(
    {
        "preemptions": Absence(Quality.UNSUPPORTED, "SGLang counts retractions since 0.5.2"),
        "requests_aborted": Absence(Quality.UNSUPPORTED, "SGLang counts aborts since 0.5.9"),
    }
)
"""What looks like a counter that has not begun, and is not there at all in SGLang 0.4."""

TABLE = Table(
    title="SGLang",
    prefixes=("sglang:", "sglang_"),
    rank_labels=(("dp_rank",),),
    # With attention data parallelism each data-parallel rank has tensor ranks of its own.
    shard_labels=("pp_rank", "tp_rank", "moe_ep_rank"),
    rows=(*GAUGES, *map(_scheduler, _SCHEDULER), *_REQUESTS, *_CACHE),
    unsupported={
        "reasoning_tokens": "SGLang counts no reasoning tokens in its metrics; its responses tell them",
        "iteration_tokens": "SGLang has no histogram of the tokens of a step",
        "requests_errored": "SGLang counts aborts only",
        "spec_draft_tokens": _SPEC_NOTE,
        "spec_accepted_tokens": _SPEC_NOTE,
        "spec_accepted_at_position": "SGLang does not tell it by position",
    },
    enable={
        "spec_drafts": _SPECULATE,
        "spec_draft_tokens": _SPECULATE,
        "spec_accepted_tokens": _SPECULATE,
        "reasoning_tokens": f"{_COMPANION}, or --export-metrics-to-file and --records",
        "requests_within_slo": _COMPANION,
    },
    moving_names=("http_", "process_", "scheduler_", "get_loads_", "startup_", "routing_key"),
    counted=(
        "per_stage_req_latency_seconds",
        "uncached_prompt_tokens_histogram",
        "eviction_duration_seconds",
        "get_loads_duration_seconds",
    ),
)
