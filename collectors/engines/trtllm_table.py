"""Which series of TensorRT-LLM mean which measure.

1.0 and 1.1 have five series, the first of them without a prefix; gauges and token counters are of 1.3.
Dynamo's stand-in for the engine writes the prefix with a colon, and a few names of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from collectors.engines.mapping import Row, Table

PREFIXES = ("trtllm_", "trtllm:")
_BARE = (*PREFIXES, "")
"""The first releases wrote these names without a prefix."""

_STATS = "set at an engine iteration, with enable_iter_perf_stats"
_SWITCH_STATS_ON = "set enable_iter_perf_stats in the options file of trtllm-serve"
_FIRST = "counted when a request ends"


def _where(label: str, *values: str) -> Mapping[str, frozenset[str]]:
    return MappingProxyType({label: frozenset(values)})


def _stat(measure: str, *names: str) -> Row:
    return Row(measure, names, lazy=True, note=_STATS, since="1.3")


def _finished(measure: str, *names: str) -> Row:
    return Row(measure, names, lazy=True, note=_FIRST, prefixes=_BARE, since="1.0")


_ROWS = (
    # Paused requests are among the running ones.
    _stat("requests_running", "num_requests_running"),
    _stat("requests_waiting", "num_requests_waiting"),
    _stat("kv_usage_ratio", "kv_cache_utilization", "kv_cache_usage_perc", "gpu_cache_usage_perc"),
    _stat("paused_requests", "num_paused_requests"),
    Row("preemptions", ("num_preemptions",)),
    Row("prompt_tokens_processed", ("prompt_tokens",), lazy=True, note=_FIRST, since="1.3"),
    Row("generation_tokens", ("generation_tokens",), lazy=True, note=_FIRST, since="1.3"),
    _finished("requests_finished", "request_success"),
    Row("requests_finished", ("request_error",), lazy=True, since="1.3"),
    Row(
        "requests_aborted",
        ("request_success",),
        where=_where("finished_reason", "cancelled", "abort"),
        lazy=True,
        prefixes=_BARE,
        since="1.0",
    ),
    Row("requests_errored", ("request_error",), lazy=True, note="counted at the first error", since="1.3"),
    Row("spec_draft_tokens", ("spec_decode_num_draft_tokens",), lazy=True, note=_STATS, since="1.3"),
    Row("spec_accepted_tokens", ("spec_decode_num_accepted_tokens",), lazy=True, note=_STATS, since="1.3"),
    # Every draft has a first position, so its drafted tokens count the drafts.
    Row(
        "spec_drafts",
        ("spec_decode_drafted_tokens",),
        where=_where("token_position", "0"),
        lazy=True,
        note=_FIRST,
        since="1.3",
    ),
    Row(
        "spec_accepted_at_position",
        ("spec_decode_accepted_tokens",),
        position_label="token_position",
        lazy=True,
        note=_FIRST,
        since="1.3",
    ),
    _stat("spec_accepted_length_now", "spec_decode_acceptance_length"),
    _finished("ttft_seconds", "time_to_first_token_seconds"),
    _finished("tpot_seconds", "time_per_output_token_seconds"),
    Row("itl_seconds", ("inter_token_latency_seconds",)),
    _finished("e2e_seconds", "e2e_request_latency_seconds"),
    _finished("queue_seconds", "request_queue_time_seconds"),
    Row("kv_host_usage_ratio", ("kv_cache_host_utilization",), since="1.3"),
    Row("kv_offload_bytes", ("kv_cache_offload_bytes",), since="1.3"),
    Row("kv_onload_bytes", ("kv_cache_onboard_bytes",), since="1.3"),
    Row("kv_host_hit_tokens", ("prompt_cache_hit_tokens",), _where("cache_tier", "host"), since="1.3"),
    Row("kv_disk_hit_tokens", ("prompt_cache_hit_tokens",), _where("cache_tier", "disk"), since="1.3"),
    Row("kv_transfer_seconds", ("kv_transfer_latency_seconds",), note="Dynamo workers"),
)
_HITS_IN_TOKENS = (
    Row("prefix_queries", ("prompt_tokens",), lazy=True, note=_FIRST, since="1.3"),
    Row("prefix_hits", ("prompt_cached_tokens",), lazy=True, note=_FIRST, since="1.3"),
)
_HITS_IN_BLOCKS = (
    _stat("prefix_queries", "kv_cache_reused_blocks"),
    _stat("prefix_queries", "kv_cache_missed_blocks"),
    _stat("prefix_hits", "kv_cache_reused_blocks"),
)
_UNSUPPORTED = {
    "preemptions": "TensorRT-LLM tells how many requests are paused now, not how often one was",
    "itl_seconds": "TensorRT-LLM tells the time per output token of whole requests only",
    "prompt_tokens": "TensorRT-LLM tells the sum only",
    "output_tokens": "TensorRT-LLM tells the sum only",
    "iteration_tokens": "TensorRT-LLM tells the prompt tokens of a step only",
    "reasoning_tokens": "TensorRT-LLM counts no reasoning tokens",
    "external_prefix_queries": "TensorRT-LLM does not tell it",
    "external_prefix_hits": "TensorRT-LLM does not tell it",
}


def _table(hits: tuple[Row, ...]) -> Table:
    return Table(
        title="TensorRT-LLM",
        prefixes=PREFIXES,
        rows=(*_ROWS, *hits),
        rank_labels=(("dp_rank", "engine"),),
        shard_labels=("pid",),
        unsupported=_UNSUPPORTED,
        enable=dict.fromkeys(("requests_running", "requests_waiting", "kv_usage_ratio"), _SWITCH_STATS_ON),
    )


STAND_IN = frozenset({"preemptions", "itl_seconds"})
"""Told by Dynamo's stand-in for the engine, never by the engine itself."""

TABLE = _table(_HITS_IN_TOKENS)
"""Releases that count the prompt tokens found in the cache, with the requests that they belong to."""

OLDER_TABLE = _table(_HITS_IN_BLOCKS)
"""Releases that count blocks only: the same share, in another unit."""
