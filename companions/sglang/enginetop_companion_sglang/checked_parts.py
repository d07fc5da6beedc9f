"""The parts of SGLang that are touched, none of them promised by it: one table for the start and for tests.

Versions are those whose source was read; SGLang moves these parts between patch releases. With another
version the companion steps aside, and a knob that lacks a part is not there: the server serves as ever.
"""

from __future__ import annotations

from dataclasses import dataclass

SUPPORTED = ("0.5.23",)

INTERNAL_STATE = "sglang.srt.managers.scheduler_components.internal_state"
CONTROLLER = f"{INTERNAL_STATE}.SchedulerInternalStateController"
TOKENIZER_MANAGER = "sglang.srt.managers.tokenizer_manager.TokenizerManager"
REQUESTS = "sglang.srt.managers.io_struct"
HTTP_SERVER = "sglang.srt.entrypoints.http_server"
RUN_HTTP_SERVER = f"{HTTP_SERVER}._setup_and_run_http_server"


@dataclass(frozen=True, slots=True)
class Part:
    """A method that is hooked or called, or an attribute: in which file of `srt`, of which class (empty: of
    the module), and, for an attribute that is written, the method that reads it again each time.
    """

    file: str
    owner: str
    name: str
    read_in: str = ""


_SCHEDULER = "managers/scheduler.py"
_RATIO = "managers/scheduler_components/new_token_ratio_tracker.py"
_STATE = "managers/scheduler_components/internal_state.py"
_TOKENIZER = "managers/tokenizer_manager.py"

HOOKED = (
    Part(_STATE, "SchedulerInternalStateController", "_update_handlers"),
    Part(_STATE, "SchedulerInternalStateController", "get_internal_state"),
    Part(_TOKENIZER, "TokenizerManager", "collect_metrics"),
    Part(_TOKENIZER, "TokenizerManager", "_handle_abort_req"),
    Part("entrypoints/http_server.py", "", "_setup_and_run_http_server"),
)
CALLED = (
    Part("managers/tokenizer_control_mixin.py", "TokenizerControlMixin", "get_internal_state"),
    Part("managers/tokenizer_control_mixin.py", "TokenizerControlMixin", "set_internal_state"),
    Part("observability/req_time_stats.py", "APIServerReqTimeStats", "get_first_token_latency"),
    Part("observability/req_time_stats.py", "APIServerReqTimeStats", "get_time_per_output_token"),
)
ATTRIBUTES = (
    Part(_SCHEDULER, "Scheduler", "chunked_prefill_size", "_get_new_batch_prefill_raw"),
    Part(_SCHEDULER, "Scheduler", "max_prefill_tokens", "_get_new_batch_prefill_raw"),
    Part(_SCHEDULER, "Scheduler", "new_token_ratio_tracker", "_get_new_batch_prefill_raw"),
    Part(_SCHEDULER, "Scheduler", "max_running_requests", "_get_new_batch_prefill_raw"),
    Part(_SCHEDULER, "Scheduler", "is_mixed_chunk", "_get_new_batch_prefill_raw"),
    Part(_SCHEDULER, "Scheduler", "truncation_align_size", "_get_new_batch_prefill_raw"),
    Part(_SCHEDULER, "Scheduler", "disaggregation_mode"),
    Part(_SCHEDULER, "Scheduler", "dynamic_chunk_sizer"),
    Part(_SCHEDULER, "Scheduler", "dllm_config"),
    Part(_SCHEDULER, "Scheduler", "is_hybrid_ssm"),
    Part(_SCHEDULER, "Scheduler", "page_size"),
    Part(_RATIO, "NewTokenRatioTracker", "init", "reset"),
    Part(_RATIO, "NewTokenRatioTracker", "min", "decay_step"),
    Part(_RATIO, "NewTokenRatioTracker", "decay", "decay_step"),
    Part(_RATIO, "NewTokenRatioTracker", "current", "decay_step"),
)


def version_problem(version: str) -> str:
    """Why this SGLang version is not one of ours; empty when it is."""
    known = version.partition("+")[0] in SUPPORTED
    return "" if known else f"SGLang {version} is not a version that was checked ({', '.join(SUPPORTED)})"
