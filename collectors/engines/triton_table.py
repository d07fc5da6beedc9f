"""Which series of Triton, and of its TensorRT-LLM backend, mean which measure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from collectors.engines.mapping import Row, Table

_NO_BACKEND = "told by the TensorRT-LLM backend only"
_LENGTHS = "told by the TensorRT-LLM backend since 0.17, when a request ends"
_FIRST_RESPONSE = "start Triton with --metrics-config histogram_latencies=true"


def _where(label: str, *values: str) -> Mapping[str, frozenset[str]]:
    return MappingProxyType({label: frozenset(values)})


_COMMON = (
    Row("requests_finished", ("inference_request_success",)),
    Row("requests_finished", ("inference_request_failure",)),
    Row("requests_aborted", ("inference_request_failure",), _where("reason", "CANCELED")),
    Row(
        "requests_errored",
        ("inference_request_failure",),
        _where("reason", "REJECTED", "BACKEND", "OTHER"),
    ),
    Row("requests_rejected", ("inference_request_failure",), _where("reason", "REJECTED")),
    Row("ttft_seconds", ("inference_first_response_histogram_ms",), scale=0.001, note=_FIRST_RESPONSE),
)
_QUEUED = Row("requests_waiting", ("trt_llm_request_metrics",), _where("request_type", "waiting"))
_PENDING = Row("requests_waiting", ("inference_pending_request_count",))
_BATCHING = (
    Row("requests_running", ("trt_llm_request_metrics",), _where("request_type", "active")),
    _QUEUED,
    Row(
        "paused_requests",
        ("trt_llm_inflight_batcher_metrics",),
        _where("inflight_batcher_specific_metric", "paused_requests"),
    ),
    Row(
        "kv_usage_ratio",
        ("trt_llm_kv_cache_block_metrics",),
        _where("kv_cache_block_type", "fraction"),
    ),
    Row("prompt_tokens_processed", ("llm_input_token_len_sum",), note=_LENGTHS),
    Row("generation_tokens", ("llm_output_token_len_sum",), note=_LENGTHS),
    Row("prompt_tokens", ("llm_input_token_len",), note=_LENGTHS),
    Row("output_tokens", ("llm_output_token_len",), note=_LENGTHS),
)
_NOT_TOLD = "Triton does not tell it"

TABLE = Table(
    title="Triton",
    prefixes=("nv_",),
    rows=(*_COMMON, *_BATCHING),
    unsupported={
        "preemptions": "Triton tells how many requests are paused now, not how often one was",
        "tpot_seconds": _NOT_TOLD,
        "itl_seconds": _NOT_TOLD,
        "iteration_tokens": _NOT_TOLD,
        "prefix_queries": "Triton tells reused blocks, not how many were looked for",
        "prefix_hits": "Triton tells reused blocks, not how many were looked for",
        "external_prefix_queries": _NOT_TOLD,
        "external_prefix_hits": _NOT_TOLD,
        "spec_drafts": _NOT_TOLD,
        "spec_draft_tokens": _NOT_TOLD,
        "spec_accepted_tokens": _NOT_TOLD,
        "spec_accepted_at_position": _NOT_TOLD,
        "reasoning_tokens": "Triton counts no reasoning tokens",
    },
    enable={"ttft_seconds": _FIRST_RESPONSE},
)
"""The rows of a server with in-flight batching."""

PLAIN_TABLE = replace(
    TABLE,
    rows=(*_COMMON, _PENDING),
    unsupported={
        **TABLE.unsupported,
        "requests_running": _NO_BACKEND,
        "kv_usage_ratio": _NO_BACKEND,
        "prompt_tokens_processed": _NO_BACKEND,
        "generation_tokens": _NO_BACKEND,
    },
)
"""The rows of a server without it: requests of any model."""


def batching_table(models: Iterable[str], *, several: bool, queue_told: bool) -> Table:
    """The rows for the models with in-flight batching.

    `several`: each model is a rank. `queue_told`: the backend tells its own queue; older ones leave requests
    in the server's.
    """
    ours = frozenset(models)
    rows = TABLE.rows if queue_told else tuple(_PENDING if row is _QUEUED else row for row in TABLE.rows)
    return replace(
        TABLE,
        rows=tuple(replace(row, where={**row.where, "model": ours}) for row in rows),
        rank_labels=(("model",), ("version",)) if several else (),
    )
