"""Which series of vLLM 0.6 to 0.33 mean which measure: the notes on the rows tell the versions."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from collectors.engines.mapping import Row, Table

_SPECULATE = "start it with --speculative-config"
_COMPANION = "the companion enginetop-companion-vllm"
_SPEC_NOTE = "no speculative decoding is configured"
_HIT_NOTE = "counted since vLLM 0.7.3, before that a lifetime hit rate only"
_TPOT_NOTE = "exported since vLLM 0.11; the older time_per_output_token_seconds is the ITL"
_STEP_NOTE = "set at the first engine step"


def _where(label: str, *values: str) -> Mapping[str, frozenset[str]]:
    return MappingProxyType({label: frozenset(values)})


def _reasons(*reasons: str) -> Mapping[str, frozenset[str]]:
    return _where("finished_reason", *reasons)


def _cached(*sources: str) -> Mapping[str, frozenset[str]]:
    return _where("source", *sources)


# What vLLM says of KV tiers, transfers and admission. Without a KV connector most of it stays away.
_BEYOND = (
    Row("deferred_requests", ("num_requests_waiting_by_reason",), _where("reason", "deferred"), since="0.20"),
    Row("requests_rejected", ("admission_rejections",), since="0.32"),
    Row("kv_host_hit_tokens", ("prompt_tokens_cached_by_source",), _cached("host"), since="0.32"),
    Row("kv_disk_hit_tokens", ("prompt_tokens_cached_by_source",), _cached("disk"), since="0.32"),
    Row(
        "kv_remote_hit_tokens",
        ("prompt_tokens_cached_by_source",),
        _cached("p2p", "external_unspecified"),
        since="0.32",
    ),
    Row("kv_host_usage_ratio", ("kv_offload_cpu_cache_usage_perc", "cpu_cache_usage_perc")),
    Row("kv_offload_bytes", ("kv_offload_store_bytes",)),
    Row("kv_onload_bytes", ("kv_offload_load_bytes",)),
    Row(
        "transfer_waiting_requests",
        ("num_requests_kv_fetch_by_stage",),
        _where("stage", "waiting_to_start", "in_progress"),
    ),
    Row("kv_transfer_seconds", ("nixl_xfer_time_seconds",), since="0.11.1"),
    Row("kv_transfer_failures", ("nixl_num_failed_transfers",), since="0.11.1"),
    Row("kv_transfer_failures", ("nixl_num_failed_notifications",), since="0.11.1"),
    Row("kv_transfer_failures", ("nixl_num_kv_expired_reqs", "nixl_kv_expired_reqs"), since="0.15"),
)


TABLE = Table(
    title="vLLM",
    prefixes=("vllm:", "vllm_", "ray_vllm:", "ray_vllm_"),
    # Ray collects the series of many replicas on one page.
    rank_labels=(("engine", "dp_rank"), ("ReplicaId", "WorkerId")),
    rows=(
        Row("requests_running", ("num_requests_running",), lazy=True, note=_STEP_NOTE),
        Row("requests_waiting", ("num_requests_waiting",), lazy=True, note=_STEP_NOTE),
        Row("kv_usage_ratio", ("kv_cache_usage_perc", "gpu_cache_usage_perc"), lazy=True, note=_STEP_NOTE),
        Row("preemptions", ("num_preemptions",)),
        Row("prompt_tokens_processed", ("prompt_tokens",)),
        Row("generation_tokens", ("generation_tokens",)),
        # The name lies: aborted and failed requests are in it.
        Row("requests_finished", ("request_success",)),
        Row("requests_aborted", ("request_success",), where=_reasons("abort")),
        Row("requests_errored", ("request_success",), where=_reasons("error")),
        # Blocks in 0.7.3 to 0.8.5, tokens since 0.9.2; the ratio is the same.
        Row(
            "prefix_queries",
            ("prefix_cache_queries", "gpu_prefix_cache_queries"),
            note=_HIT_NOTE,
            since="0.7.3",
        ),
        Row("prefix_hits", ("prefix_cache_hits", "gpu_prefix_cache_hits"), note=_HIT_NOTE, since="0.7.3"),
        Row(
            "external_prefix_queries",
            ("external_prefix_cache_queries",),
            note="exported since vLLM 0.11.1",
            since="0.11.1",
        ),
        Row(
            "external_prefix_hits",
            ("external_prefix_cache_hits",),
            note="exported since vLLM 0.11.1",
            since="0.11.1",
        ),
        Row(
            "spec_drafts",
            ("spec_decode_num_drafts",),
            note=f"{_SPEC_NOTE}, or vLLM before 0.8.5",
            since="0.8.5",
        ),
        Row("spec_draft_tokens", ("spec_decode_num_draft_tokens",), note=_SPEC_NOTE),
        Row("spec_accepted_tokens", ("spec_decode_num_accepted_tokens",), note=_SPEC_NOTE),
        Row(
            "spec_accepted_at_position",
            ("spec_decode_num_accepted_tokens_per_pos",),
            position_label="position",
            note=_SPEC_NOTE,
            since="0.8.5",
        ),
        Row("ttft_seconds", ("time_to_first_token_seconds",)),
        Row("tpot_seconds", ("request_time_per_output_token_seconds",), note=_TPOT_NOTE, since="0.11.0"),
        Row("itl_seconds", ("inter_token_latency_seconds", "time_per_output_token_seconds")),
        Row("e2e_seconds", ("e2e_request_latency_seconds",)),
        Row(
            "queue_seconds", ("request_queue_time_seconds",), note="exported since vLLM 0.6.6", since="0.6.6"
        ),
        Row("prompt_tokens", ("request_prompt_tokens",)),
        Row("output_tokens", ("request_generation_tokens",)),
        # A histogram in spite of its suffix.
        Row("iteration_tokens", ("iteration_tokens_total",), note="exported since vLLM 0.6.6", since="0.6.6"),
        *_BEYOND,
    ),
    unsupported={"reasoning_tokens": "vLLM counts no reasoning tokens"},
    # Counted by the API server, also while the engine stands still with a full queue.
    moving_names=("admission_rejections", "websocket_"),
    counted=(
        "request_prefill_time_seconds",
        "request_decode_time_seconds",
        "request_inference_time_seconds",
        "request_max_num_generation_tokens",
        "request_params_n",
        "request_params_max_tokens",
        "request_num_preemptions",
        "request_prefill_kv_computed_tokens",
        "kv_block_lifetime_seconds",
        "kv_block_idle_before_evict_seconds",
        "kv_block_reuse_gap_seconds",
    ),
    enable={
        "reasoning_tokens": f"{_COMPANION}, with --reasoning-parser",
        "requests_within_slo": _COMPANION,
        "spec_drafts": _SPECULATE,
        "spec_draft_tokens": _SPECULATE,
        "spec_accepted_tokens": _SPECULATE,
        "spec_accepted_at_position": _SPECULATE,
    },
)
