"""The JSON pages beside the metrics: what a simulated server says of itself and how it was started.

Static, like the originals, but for SGLang's loads: a change of a knob never shows here. Only the knob API
tells values in force.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from enginetop.fleet.model import EngineKind, Role
from enginetop.simulator.model import EngineModel
from enginetop.simulator.scenario import EngineSettings

ENGINE_VERSIONS = {EngineKind.VLLM: "0.32.0", EngineKind.SGLANG: "0.5.23"}
"""The versions whose pages are imitated."""

_OWNER = "enginetop-simulator"


def models(settings: EngineSettings) -> dict[str, Any]:
    """The list of models of the OpenAI API."""
    card = {
        "id": settings.model,
        "object": "model",
        "owned_by": _OWNER,
        "max_model_len": settings.max_model_len,
    }
    return {"object": "list", "data": [card]}


def vllm_server_info(settings: EngineSettings, instance: str, reasons: bool) -> dict[str, Any]:
    """vLLM's `/server_info?config_format=json` of its development mode, as far as the settings go."""
    drafts = settings.num_speculative_tokens
    return {
        "vllm_config": {
            "model_config": {
                "model": settings.model,
                "served_model_name": settings.model,
                "max_model_len": settings.max_model_len,
            },
            "cache_config": {
                "block_size": settings.block_size,
                "enable_prefix_caching": True,
                "gpu_memory_utilization": 0.92,
                "num_gpu_blocks": settings.kv_blocks,
                "kv_cache_size_tokens": settings.kv_capacity_tokens,
            },
            "parallel_config": {
                "tensor_parallel_size": max(1, settings.gpus // settings.ranks),
                "data_parallel_size": settings.ranks,
            },
            "scheduler_config": {
                "max_num_batched_tokens": settings.max_num_batched_tokens,
                "max_num_scheduled_tokens": None,
                "max_num_seqs": settings.max_num_seqs,
                "enable_chunked_prefill": True,
                "policy": "fcfs",
            },
            "speculative_config": {"num_speculative_tokens": drafts} if drafts else None,
            "reasoning_config": {"reasoning_parser": _OWNER} if reasons else None,
            "instance_id": instance,
        },
        "vllm_env": {},
        "system_env": {},
    }


def sglang_server_info(settings: EngineSettings, reasons: bool) -> dict[str, Any]:
    """SGLang's `/server_info`, as far as the settings go, without a key that could hold a secret."""
    drafts = settings.num_speculative_tokens
    return {
        "served_model_name": settings.model,
        "context_length": settings.max_model_len,
        "chunked_prefill_size": settings.max_num_batched_tokens,
        "max_prefill_tokens": settings.max_num_batched_tokens,
        "max_running_requests": settings.max_num_seqs,
        "max_total_num_tokens": settings.kv_capacity_tokens,
        "page_size": settings.block_size,
        "tp_size": max(1, settings.gpus // settings.ranks),
        "dp_size": settings.ranks,
        "speculative_num_steps": drafts or None,
        "speculative_num_draft_tokens": drafts + 1 if drafts else None,
        "reasoning_parser": _OWNER if reasons else None,
        "disaggregation_mode": _disaggregation_mode(settings),
        "enable_metrics": True,
        "status": "ready",
        "internal_states": [
            {"effective_max_running_requests_per_dp": settings.max_num_seqs} for _ in range(settings.ranks)
        ],
        "version": ENGINE_VERSIONS[EngineKind.SGLANG],
    }


def sglang_loads(ranks: Sequence[EngineModel], at: float) -> dict[str, Any]:
    """SGLang's `/v1/loads` at the Unix time `at`: what its schedulers publish, rank by rank."""
    return {
        "timestamp": datetime.fromtimestamp(at, UTC).isoformat(),
        "version": ENGINE_VERSIONS[EngineKind.SGLANG],
        "loads": [
            {
                "timestamp": at,
                "dp_rank": rank,
                "num_running_reqs": engine.requests_running,
                "num_waiting_reqs": len(engine.waiting),
                "num_used_tokens": round(engine.kv_usage_ratio * engine.settings.kv_capacity_tokens),
                "max_total_num_tokens": engine.settings.kv_capacity_tokens,
                "max_running_requests": engine.settings.max_num_seqs,
                "token_usage": round(engine.kv_usage_ratio, 4),
                "disaggregation": {"mode": _disaggregation_mode(engine.settings)},
                "queues": {"waiting": len(engine.waiting), "grammar": 0, "paused": 0, "retracted": 0},
            }
            for rank, engine in enumerate(ranks)
        ],
    }


def _disaggregation_mode(settings: EngineSettings) -> str:
    return settings.role.value if settings.role in (Role.PREFILL, Role.DECODE) else "null"
