"""The parts of vLLM that are touched, none of them promised by it: one table for the start and for tests.

Versions are those whose source was read. Another version, or a missing part, and the companion steps aside.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

SUPPORTED = ((0, 32), (0, 33))
"""Major and minor of the releases whose source this table was checked against."""


@dataclass(frozen=True, slots=True)
class Part:
    """An attribute of a vLLM class: where it is set, and the method that reads it again each time."""

    file: str
    owner: str
    name: str
    read_in: str = ""


_SCHEDULER = "v1/core/sched/scheduler.py"
SCHEDULER_PARTS = (
    Part(_SCHEDULER, "Scheduler", "max_num_scheduled_tokens", "schedule"),
    Part(_SCHEDULER, "Scheduler", "max_num_active_reqs", "schedule"),
    Part(_SCHEDULER, "Scheduler", "dynamic_sd_lookup", "schedule"),
    Part(_SCHEDULER, "Scheduler", "scheduler_config", "schedule"),
    Part(_SCHEDULER, "Scheduler", "max_num_running_reqs", "schedule"),
    Part(_SCHEDULER, "Scheduler", "num_spec_tokens", "schedule"),
    Part(_SCHEDULER, "Scheduler", "max_model_len", "schedule"),
    Part(_SCHEDULER, "Scheduler", "max_num_encoder_input_tokens", "schedule"),
    Part(_SCHEDULER, "Scheduler", "need_mamba_block_aligned_split", "schedule"),
    Part(_SCHEDULER, "Scheduler", "block_size"),
    Part(_SCHEDULER, "Scheduler", "num_prefill_lookahead", "schedule"),
    Part(_SCHEDULER, "Scheduler", "kv_cache_manager", "schedule"),
)
"""Set in the constructor of the scheduler; `read_in` reads them anew at every step."""

KV_PARTS = (
    Part("v1/core/kv_cache_manager.py", "KVCacheManager", "watermark_blocks", "allocate_slots"),
    Part("v1/core/kv_cache_manager.py", "KVCacheManager", "block_pool", "allocate_slots"),
    Part("v1/core/block_pool.py", "BlockPool", "num_gpu_blocks"),
)
"""What is reached through the scheduler's `kv_cache_manager`."""

ADMISSION = Part("v1/engine/async_llm.py", "AsyncLLM", "check_admission")
"""Reads the queue limits of `scheduler_config` for every request, in each API server."""

SCHEDULER_CONFIG_FIELDS = (
    "long_prefill_token_threshold",
    "enable_chunked_prefill",
    "disable_chunked_mm_input",
)
"""Fields of `SchedulerConfig` (config/scheduler.py) that the scheduler reads through `scheduler_config`."""

METHODS = (
    Part("v1/engine/core.py", "EngineCoreProc", "_handle_client_request", "_process_input_queue"),
    Part("v1/engine/core_client.py", "AsyncMPClient", "call_utility_all_async"),
    Part(
        "v1/engine/output_processor.py", "OutputProcessor", "_update_stats_from_finished", "process_outputs"
    ),
    Part("v1/engine/output_processor.py", "OutputProcessor", "abort_requests"),
    Part("entrypoints/openai/chat_completion/serving.py", "OpenAIServingChat", "create_chat_completion"),
    Part("entrypoints/openai/completion/serving.py", "OpenAIServingCompletion", "create_completion"),
)
"""Methods that are called, or wrapped on the object in use; `read_in` calls them through `self`."""


def version_problem(version: str) -> str:
    """Why this vLLM version is not one of ours; empty when it is."""
    parts = version.split(".")
    try:
        known = (int(parts[0]), int(parts[1])) in SUPPORTED
    except (IndexError, ValueError):
        known = False
    read = ", ".join(f"{major}.{minor}" for major, minor in SUPPORTED)
    return "" if known else f"vLLM {version} is not a version that was checked ({read})"


def missing_parts(scheduler: Any) -> str:
    """Which parts of the scheduler are not there; empty when all are."""
    gone = [part.name for part in SCHEDULER_PARTS if not hasattr(scheduler, part.name)]
    config = getattr(scheduler, "scheduler_config", None)
    manager = getattr(scheduler, "kv_cache_manager", None)
    gone += [f"kv_cache_manager.{part.name}" for part in KV_PARTS[:2] if not hasattr(manager, part.name)]
    gone += [f"scheduler_config.{name}" for name in SCHEDULER_CONFIG_FIELDS if not hasattr(config, name)]
    return f"this vLLM's scheduler has no {', '.join(gone)}" if gone else ""
