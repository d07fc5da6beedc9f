"""What stands on the page of a simulated SGLang engine: names, types, labels of SGLang 0.5.23.

The same truth as on the page of vLLM (`vllm_families`), told as SGLang does: request series move when a
request ends and carry no rank, scheduler series stand once a rank. Left out is what SGLang has only with
optional features, and what its HTTP layer and its start-up tell.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from enginetop.fleet.model import Role
from enginetop.simulator.family import Family, Labels
from enginetop.simulator.metrics import EngineMetrics, Histogram
from enginetop.simulator.model import EngineModel
from enginetop.simulator.scenario import EngineSettings

ENGINE_TYPES = {Role.PREFILL: "prefill", Role.DECODE: "decode"}
"""The label `engine_type` by role; `unified` for all others."""

_RATE_SECONDS = 1.0
_SCHEDULER = frozenset({"dp_rank", "engine_type", "model_name", "moe_ep_rank", "pp_rank", "tp_rank"})
REQUEST_LABELS = frozenset({"engine_type", "model_name"})
"""Labels of the engine that series of requests carry: none of them names a rank."""

_STREAMING: tuple[Labels, ...] = ((("is_streaming", "true"),),)
_NEW_TOKEN_RATIO = 0.098


def common_labels(settings: EngineSettings, rank: int) -> dict[str, str]:
    """The labels of a rank's series; `dp_rank` only where there are several."""
    labels = {
        "engine_type": ENGINE_TYPES.get(settings.role, "unified"),
        "model_name": settings.model,
        "moe_ep_rank": "0",
        "pp_rank": "0",
        "tp_rank": "0",
    }
    return labels | ({"dp_rank": str(rank)} if settings.ranks > 1 else {})


def _gauge(name: str, text: str, read: Callable[[EngineModel], float]) -> Family:
    return Family(f"sglang:{name}", "gauge", text, lambda model, _: (read(model),), common=_SCHEDULER)


def _counter(name: str, text: str, read: Callable[[EngineMetrics], float]) -> Family:
    return Family(
        f"sglang:{name}", "counter", text, lambda model, _: (read(model.metrics),), common=_SCHEDULER
    )


def _modes(name: str, text: str, modes: dict[str, Callable[[EngineMetrics], float]]) -> Family:
    return Family(
        f"sglang:{name}",
        "counter",
        text,
        lambda model, _: tuple(read(model.metrics) for read in modes.values()),
        tuple((("mode", mode),) for mode in modes),
        _SCHEDULER,
    )


def _of_requests(
    name: str,
    kind: str,
    text: str,
    read: Callable[[EngineMetrics], Sequence[float] | Histogram],
    children: tuple[Labels, ...] = ((),),
) -> Family:
    """A series of the tokenizer process: one for all ranks."""
    return Family(
        f"sglang:{name}",
        kind,
        text,
        lambda model, _: read(model.metrics),
        children,
        REQUEST_LABELS,
        summed=True,
    )


class _Throughput:
    """Generated tokens per second of each rank, over at least the last second."""

    def __init__(self) -> None:
        self._looks: dict[int, tuple[float, float, float]] = {}

    def read(self, model: EngineModel, seconds: float) -> Sequence[float]:
        at, tokens, rate = self._looks.get(id(model), (0.0, 0.0, 0.0))
        generated = model.metrics.generation_tokens
        if seconds - at >= _RATE_SECONDS:
            rate = max(0.0, generated - tokens) / (seconds - at)
            self._looks[id(model)] = (seconds, generated, rate)
        return (rate,)


def _hit_rate(metrics: EngineMetrics) -> float:
    return metrics.prefix_hits / metrics.prefix_queries if metrics.prefix_queries else 0.0


def _accept_length(model: EngineModel) -> float:
    counts = model.metrics.speculation
    return 1.0 + sum(counts.accepted_at) / counts.drafts if counts.drafts else 0.0


def _accept_rate(model: EngineModel) -> float:
    counts = model.metrics.speculation
    return sum(counts.accepted_at) / counts.draft_tokens if counts.draft_tokens else 0.0


def _knob(model: EngineModel, name: str) -> int:
    return next((state.value for state in model.knobs() if state.name == name), 0)


def _used_tokens(model: EngineModel) -> int:
    return round(model.kv_usage_ratio * model.settings.kv_capacity_tokens)


def _scheduler(settings: EngineSettings) -> tuple[Family, ...]:
    capacity = settings.kv_capacity_tokens
    return (
        _gauge("max_total_num_tokens", "Tokens that the KV cache can hold.", lambda _: capacity),
        _gauge("page_size", "Tokens of a KV page.", lambda _: settings.block_size),
        _gauge("num_pages", "KV pages.", lambda _: settings.kv_blocks),
        _gauge("context_len", "Longest context.", lambda _: settings.max_model_len),
        _gauge("num_running_reqs", "Running requests.", lambda e: e.requests_running),
        _gauge("num_queue_reqs", "Requests in the queue.", lambda e: len(e.waiting)),
        _gauge("num_grammar_queue_reqs", "Requests that wait for a grammar.", lambda _: 0),
        Family(
            "sglang:gen_throughput",
            "gauge",
            "Generated tokens per second.",
            _Throughput().read,
            common=_SCHEDULER,
        ),
        _gauge("cache_hit_rate", "Prefix cache hits.", lambda e: _hit_rate(e.metrics)),
        # Two digits, unlike the one after it.
        _gauge("token_usage", "Share of the KV cache in use.", lambda e: round(e.kv_usage_ratio, 2)),
        _gauge("full_token_usage", "Share of the KV cache in use.", lambda e: e.kv_usage_ratio),
        _gauge("num_used_tokens", "Tokens in the KV cache.", _used_tokens),
        _gauge("kv_available_tokens", "Free tokens.", lambda e: capacity - _used_tokens(e)),
        _gauge("kv_evictable_tokens", "Cached tokens that can be evicted.", lambda _: 0),
        _gauge("kv_used_tokens", "Tokens in use.", _used_tokens),
        _gauge("spec_accept_length", "Tokens per draft step.", _accept_length),
        _gauge("spec_accept_rate", "Share of drafted tokens that are accepted.", _accept_rate),
        _gauge("spec_num_steps", "Draft steps.", lambda e: _knob(e, "num_speculative_tokens")),
        _gauge(
            "spec_num_draft_tokens",
            "Tokens verified in a step.",
            lambda e: (drafts := _knob(e, "num_speculative_tokens")) + (drafts > 0),
        ),
        _gauge("utilization", "Unused.", lambda _: 0),
        _gauge("fwd_occupancy", "Share of time in the forward pass; needs a flag.", lambda _: math.nan),
        _gauge("new_token_ratio", "Guess of the output still to come.", lambda _: _NEW_TOKEN_RATIO),
        _gauge("is_cuda_graph", "Whether the last step ran as a CUDA graph.", lambda _: 1),
    )


def sglang_families(settings: EngineSettings) -> tuple[Family, ...]:
    """Everything on the page of an SGLang engine with these `settings`."""
    return (
        _modes(
            "prefill_effective_tokens_total",
            "Prefilled tokens, those of retracted requests once.",
            {
                "input": lambda m: m.prompt_tokens - m.prompt_tokens_cached,
                "device_hit": lambda m: m.prompt_tokens_cached,
                "host_hit": lambda _: 0,
                "storage_hit": lambda _: 0,
            },
        ),
        _modes(
            "realtime_tokens_total",
            "Tokens, counted as they are computed.",
            {
                "prefill_compute": lambda m: m.prompt_tokens - m.prompt_tokens_cached,
                "decode": lambda m: m.generation_tokens,
                "prefill_cache": lambda m: m.prompt_tokens_cached,
            },
        ),
        _counter("num_retracted_requests_total", "Retractions.", lambda m: m.preemptions),
        *_scheduler(settings),
        Family(
            "sglang:queue_time_seconds",
            "histogram",
            "Time in the queue.",
            lambda model, _: model.metrics.queue_time,
            common=_SCHEDULER,
        ),
        _of_requests(
            "prompt_tokens_total",
            "counter",
            "Prompt tokens of ended requests.",
            lambda m: (m.request_prompt_tokens.sum,),
            _STREAMING,
        ),
        _of_requests(
            "generation_tokens_total",
            "counter",
            "Generated tokens of ended requests.",
            lambda m: (m.request_generation_tokens.sum,),
            _STREAMING,
        ),
        _of_requests(
            "num_requests_total",
            "counter",
            "Ended requests.",
            lambda m: (m.request_prompt_tokens.count,),
            _STREAMING,
        ),
        _of_requests(
            "num_aborted_requests_total",
            "counter",
            "Aborted requests.",
            lambda m: (m.finished["abort"],),
        ),
        _of_requests(
            "cached_tokens_total",
            "counter",
            "Cached prompt tokens of ended requests.",
            lambda m: (m.request_prompt_tokens.sum - m.request_prefill_computed_tokens.sum,),
            ((("cache_source", "device"),),),
        ),
        _of_requests(
            "time_to_first_token_seconds",
            "histogram",
            "From arrival to the first token.",
            lambda m: m.time_to_first_token,
            _STREAMING,
        ),
        _of_requests(
            "e2e_request_latency_seconds",
            "histogram",
            "From arrival to the last token.",
            lambda m: m.e2e_latency,
            _STREAMING,
        ),
        _of_requests(
            "request_time_per_output_token_seconds",
            "histogram",
            "Decode time per token after the first.",
            lambda m: m.time_per_output_token,
            _STREAMING,
        ),
        _of_requests(
            "prompt_tokens_histogram", "histogram", "Prompt length.", lambda m: m.request_prompt_tokens
        ),
        _of_requests(
            "uncached_prompt_tokens_histogram",
            "histogram",
            "Prompt tokens that were computed.",
            lambda m: m.request_prefill_computed_tokens,
        ),
        _of_requests(
            "generation_tokens_histogram",
            "histogram",
            "Output length.",
            lambda m: m.request_generation_tokens,
        ),
        _of_requests(
            "inter_token_latency_seconds",
            "histogram",
            "Between two outputs of a request.",
            lambda m: m.inter_token_latency,
        ),
    )
