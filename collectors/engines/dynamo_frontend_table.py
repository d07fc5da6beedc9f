"""The rows of NVIDIA Dynamo's frontend and of a router on its own: names of 0.7 to 1.6."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from collectors.engines.dynamo_worker import COMPONENT
from collectors.engines.mapping import Row, Table

FRONTEND_PREFIX = "dynamo_frontend_"
"""As it is without `DYN_METRICS_PREFIX`."""

_FAILED = frozenset(
    {
        "validation",
        "not_found",
        "overload",
        "unavailable",
        "response_timeout",
        "internal",
        "not_implemented",
    }
)
FIRST_REQUEST = "counted from the first request on"
_PREDICTED = "as the router predicted it at its choice of a worker"

ESTIMATED: Mapping[str, str] = MappingProxyType(
    {
        "prefix_queries": _PREDICTED,
        "prefix_hits": _PREDICTED,
        "kv_transfer_seconds": "estimated by the router",
    }
)
"""What these pages tell only as an estimate."""

_COMPONENT_ONLY = (COMPONENT,)
# In disaggregated mode a request is routed twice, and its second choice, of a decode worker, counts no hits.
_PROMPT_PHASES: Mapping[str, frozenset[str]] = MappingProxyType(
    {"phase": frozenset({"aggregated", "prefill"})}
)

_ROUTED = (
    Row(
        "prefix_queries",
        ("router_input_sequence_tokens_sum",),
        where=_PROMPT_PHASES,
        prefixes=_COMPONENT_ONLY,
        lazy=True,
        note=FIRST_REQUEST,
    ),
    Row(
        "prefix_hits",
        ("router_kv_selected_cached_prefix_tokens",),
        where=_PROMPT_PHASES,
        prefixes=_COMPONENT_ONLY,
        since="after 1.3",
    ),
    Row("backends_total", ("router_worker_registered",), prefixes=_COMPONENT_ONLY, since="after 1.3"),
    Row(
        "kv_transfer_seconds",
        ("router_kv_transfer_estimated_latency_seconds",),
        prefixes=_COMPONENT_ONLY,
        since="after 1.3",
    ),
)

FRONTEND = Table(
    title="Dynamo frontend",
    prefixes=(FRONTEND_PREFIX,),
    rows=(
        Row("requests_waiting", ("queued_requests",), lazy=True, note=FIRST_REQUEST),
        Row("prompt_tokens_processed", ("input_sequence_tokens_sum",), lazy=True, note=FIRST_REQUEST),
        Row(
            "generation_tokens",
            ("output_tokens", "output_sequence_tokens_sum"),
            lazy=True,
            note=FIRST_REQUEST,
        ),
        Row("requests_finished", ("requests",), lazy=True, note=FIRST_REQUEST),
        Row(
            "requests_aborted",
            ("requests",),
            where=MappingProxyType({"error_type": frozenset({"cancelled"})}),
            lazy=True,
            note=FIRST_REQUEST,
        ),
        Row(
            "requests_errored",
            ("requests",),
            where=MappingProxyType({"error_type": _FAILED}),
            lazy=True,
            note=FIRST_REQUEST,
        ),
        Row("ttft_seconds", ("time_to_first_token_seconds",), lazy=True, note=FIRST_REQUEST),
        Row("itl_seconds", ("inter_token_latency_seconds",), lazy=True, note=FIRST_REQUEST),
        Row("e2e_seconds", ("request_duration_seconds",), lazy=True, note=FIRST_REQUEST),
        Row("prompt_tokens", ("input_sequence_tokens",), lazy=True, note=FIRST_REQUEST),
        Row("output_tokens", ("output_sequence_tokens",), lazy=True, note=FIRST_REQUEST),
        Row("requests_rejected", ("model_rejection",), since="after 1.0.2"),
        Row("migrations", ("model_migration",), since="after 1.0.2"),
        Row("admission_waiting_requests", ("router_queue_pending_requests",), since="after 1.0.2"),
        *_ROUTED,
    ),
    unsupported={
        "kv_usage_ratio": "the frontend knows the demand of blocks only, which may exceed the cache",
        "kv_capacity_tokens": "told by model and not by worker",
        "preemptions": "told by the engines only",
        "tpot_seconds": "the frontend measures gaps between tokens",
        "queue_seconds": "the frontend does not tell it",
        "iteration_tokens": "told by the engines only",
        "reasoning_tokens": "Dynamo counts no reasoning tokens",
    },
)

ROUTER = Table(
    title="Dynamo router",
    prefixes=(COMPONENT + "router_",),
    rows=(
        Row("requests_finished", ("requests",)),
        Row("ttft_seconds", ("time_to_first_token_seconds",)),
        Row("itl_seconds", ("inter_token_latency_seconds",)),
        Row("prompt_tokens", ("input_sequence_tokens",), lazy=True, note=FIRST_REQUEST),
        Row("output_tokens", ("output_sequence_tokens",), lazy=True, note=FIRST_REQUEST),
        Row("prompt_tokens_processed", ("input_sequence_tokens_sum",), lazy=True, note=FIRST_REQUEST),
        Row("generation_tokens", ("output_sequence_tokens_sum",), lazy=True, note=FIRST_REQUEST),
        *_ROUTED,
    ),
    unsupported=FRONTEND.unsupported,
)
