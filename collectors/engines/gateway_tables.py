"""Which series of routers and gateways mean what: vLLM Production Stack router, sglang-router and SMG,
vllm-router, llm-d's endpoint picker.

Names are those of the packages (production-stack 0.1.12, sglang-router 0.3.2, smg 1.13.0, vllm-router 0.1.17,
llm-d-router of August 2026) and of the releases before them.
"""

from __future__ import annotations

from types import MappingProxyType

from collectors.engines.gateway_reader import GatewayView
from collectors.engines.mapping import Row, Table
from enginetop.fleet.model import Role

_NOT_TOLD = "the router does not tell how many wait in the engines"


def _where(label: str, *values: str) -> MappingProxyType[str, frozenset[str]]:
    return MappingProxyType({label: frozenset(values)})


PRODUCTION_STACK = GatewayView(
    Table(
        title="vLLM Production Stack router",
        prefixes=("vllm:", "vllm_"),
        rows=(
            # Prefill and decode phases as the router sees them.
            Row("requests_running", ("num_requests_running",)),
            # Declared and never set in 0.1.12.
            Row("requests_waiting", ("num_requests_waiting",), lazy=True, note=_NOT_TOLD),
            Row("requests_finished", ("request_latency_seconds_count",), since="after 0.1.10"),
            Row("requests_errored", ("request_errors",), lazy=True, note="counted at the first error"),
            Row("prompt_tokens_processed", ("input_tokens",), since="0.1.10"),
            Row("generation_tokens", ("output_tokens",), since="0.1.10"),
            Row("e2e_seconds", ("request_latency_seconds",), since="after 0.1.10"),
            Row("prefix_queries", ("gpu_prefix_cache_queries",)),
            Row("prefix_hits", ("gpu_prefix_cache_hits",)),
        ),
        rank_labels=(("server",),),
        unsupported={
            "ttft_seconds": "the router exports no TTFT",
            "itl_seconds": "the router exports a moving mean only",
            "tpot_seconds": "the router exports no TPOT",
            "kv_usage_ratio": "the router does not tell it",
        },
        router_view=True,
    ),
    Role.ROUTER,
    health=("vllm:healthy_pods_total", "vllm_healthy_pods_total"),
    backend_labels=("server",),
    discovered_only=True,
    in_flight=frozenset({"vllm:num_requests_running", "vllm_num_requests_running"}),
)

SMG = GatewayView(
    Table(
        title="SMG",
        prefixes=("smg_",),
        rows=(
            # What SMG polls from its workers; before 1.x what is in flight to each worker.
            Row(
                "requests_running",
                ("engine_running_requests", "worker_requests_active"),
                lazy=True,
                note="appears with the first request",
            ),
            Row("requests_waiting", ("engine_waiting_requests",), since="smg 1.13"),
            Row("kv_usage_ratio", ("engine_token_usage",), since="smg 1.13"),
            Row("requests_finished", ("router_request_duration_seconds_count",), lazy=True),
            Row("requests_errored", ("router_request_errors",), lazy=True, note="counted at the first error"),
            Row("prompt_tokens_processed", ("router_tokens",), where=_where("token_type", "input")),
            Row("generation_tokens", ("router_tokens",), where=_where("token_type", "output")),
            Row("ttft_seconds", ("router_ttft_seconds",)),
            Row("tpot_seconds", ("router_tpot_seconds",)),
            Row("e2e_seconds", ("router_request_duration_seconds",), lazy=True),
            Row("gateway_waiting_requests", ("admission_queue_depth",), since="smg 1.13"),
            Row("requests_rejected", ("http_rate_limit",), where=_where("result", "rejected")),
            Row("retries", ("worker_retries",)),
            Row("routed_prefix_match_ratio", ("cache_aware_match_ratio",), since="smg 1.13"),
            Row("transfer_waiting_requests", ("engine_pd_prefill_queue_reqs",)),
            Row("transfer_waiting_requests", ("engine_pd_decode_queue_reqs",)),
            Row("kv_transfer_seconds", ("pd_kv_transfer_duration_seconds",)),
            Row("kv_transfer_failures", ("pd_kv_transfer_failures",)),
        ),
        rank_labels=(("worker",), ("dp_rank",)),
        enable=dict.fromkeys(
            ("prompt_tokens_processed", "generation_tokens", "ttft_seconds", "tpot_seconds"),
            "workers that speak gRPC: the HTTP path counts no tokens",
        ),
        router_view=True,
    ),
    Role.ROUTER,
    health=("smg_worker_health",),
    backend_labels=("worker",),
    in_flight=frozenset({"smg_worker_requests_active"}),
    instead=MappingProxyType({"smg_worker_requests_active": "smg_engine_running_requests"}),
)

_RUST_PREFIXES = ("vllm_router_", "sgl_router_", "sglang_router_")

VLLM_ROUTER = GatewayView(
    Table(
        title="vllm-router",
        # sglang-router before 0.3, from which vllm-router was forked, has the same names.
        prefixes=_RUST_PREFIXES,
        rows=(
            Row("requests_running", ("running_requests", "worker_load"), lazy=True),
            # Requests answered, and those given up after the last retry, which are not among them.
            Row("requests_finished", ("requests", "pd_requests"), lazy=True),
            Row("requests_finished", ("retries_exhausted",), lazy=True),
            Row("requests_errored", ("retries_exhausted",), lazy=True, note="counted at the first error"),
            Row(
                "e2e_seconds",
                ("generate_duration_seconds", "request_duration_seconds", "pd_request_duration_seconds"),
                lazy=True,
            ),
            Row("gateway_waiting_requests", ("agent_aware_rank_queue_size",)),
            Row("retries", ("retries",)),
            Row("routed_prefix_hits", ("cache_hits",)),
            Row("routed_prefix_queries", ("cache_hits",)),
            Row("routed_prefix_queries", ("cache_misses",)),
        ),
        rank_labels=(("worker", "target"),),
        router_view=True,
    ),
    Role.ROUTER,
    health=tuple(f"{prefix}worker_health" for prefix in _RUST_PREFIXES),
    backend_labels=("worker", "target"),
    in_flight=frozenset(
        f"{prefix}{name}" for prefix in _RUST_PREFIXES for name in ("running_requests", "worker_load")
    ),
)

ENDPOINT_PICKER = GatewayView(
    Table(
        title="llm-d endpoint picker",
        # Newest first: the page holds the deprecated twins beside the new names.
        prefixes=(
            "llm_d_epp_",
            "llm_d_router_epp_",
            "inference_objective_",
            "inference_model_",
            "inference_pool_",
            "inference_extension_",
            "llm_d_inference_scheduler_",
        ),
        rows=(
            Row("requests_running", ("request_running", "running_requests"), lazy=True),
            Row("requests_waiting", ("per_endpoint_queue_size", "per_pod_queue_size")),
            Row("kv_usage_ratio", ("average_kv_cache_utilization",)),
            Row("requests_finished", ("request",), lazy=True),
            Row("requests_errored", ("request_error",), lazy=True, note="counted at the first error"),
            Row("prompt_tokens_processed", ("request_input_tokens_sum", "input_tokens_sum"), lazy=True),
            Row("generation_tokens", ("request_output_tokens_sum", "output_tokens_sum"), lazy=True),
            Row("prefix_queries", ("request_input_tokens_sum", "input_tokens_sum"), lazy=True),
            Row("prefix_hits", ("request_cached_tokens_sum", "prompt_cached_tokens_sum"), lazy=True),
            # For a request that is not streamed it is the duration.
            Row("ttft_seconds", ("request_ttft_seconds",), where=_where("streaming", "true"), lazy=True),
            Row("tpot_seconds", ("request_streaming_tpot_seconds",), lazy=True),
            Row("itl_seconds", ("request_streaming_itl_seconds",), lazy=True),
            Row("e2e_seconds", ("request_duration_seconds",), lazy=True),
            Row("prompt_tokens", ("request_input_tokens", "input_tokens"), lazy=True),
            Row("output_tokens", ("request_output_tokens", "output_tokens"), lazy=True),
            Row("backends_healthy", ("ready_endpoints", "ready_pods")),
            Row("gateway_waiting_requests", ("flow_control_queue_size",)),
            Row("gateway_queue_seconds", ("flow_control_request_queue_duration_seconds",)),
            Row(
                "pool_saturation_ratio",
                ("flow_control_pool_saturation",),
                where=_where("stage", "effective"),
            ),
            Row(
                "requests_rejected",
                ("flow_control_requests",),
                where=_where(
                    "outcome",
                    "RejectedCapacity",
                    "RejectedNoEndpoints",
                    "RejectedOther",
                    "EvictedTTL",
                    "EvictedNoEndpoints",
                    "EvictedOther",
                ),
            ),
            Row("routed_prefix_match_ratio", ("prefix_indexer_hit_ratio",)),
        ),
        rank_labels=(("model_server_endpoint", "model_server_pod"),),
        enable=dict.fromkeys(
            (
                "gateway_waiting_requests",
                "gateway_queue_seconds",
                "pool_saturation_ratio",
                "requests_rejected",
            ),
            "the flowControl feature gate of the endpoint picker",
        ),
        router_view=True,
    ),
    Role.GATEWAY,
    in_flight=frozenset(
        {
            "llm_d_epp_request_running",
            "inference_objective_running_requests",
            "inference_model_running_requests",
        }
    ),
    model_labels=("target_model_name",),
    notes=MappingProxyType(
        {
            "kv_usage_ratio": "mean over the endpoints of the pool; the fullest one is not told",
            "requests_finished": "counted when they come in",
        }
    ),
)
