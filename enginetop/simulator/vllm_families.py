"""What stands on the page of a simulated vLLM engine: names, types, labels of vLLM 0.32.

One table, `vllm_families`; `pages` writes it out. Left out are the families that vLLM has only with optional
features, the HTTP layer's and the garbage collector's.
"""

from __future__ import annotations

from collections.abc import Callable

from enginetop.simulator.family import VLLM_LABELS, Family, Labels, each
from enginetop.simulator.metrics import EngineMetrics, Histogram
from enginetop.simulator.model import EngineModel
from enginetop.simulator.scenario import EngineSettings
from enginetop.simulator.truth import FINISH_REASONS

_NO_LABELS: frozenset[str] = frozenset()
_ENGINE_ONLY = frozenset({"engine"})
_MODEL_ONLY = frozenset({"model_name"})


def _gauge(name: str, text: str, read: Callable[[EngineModel], float]) -> Family:
    return Family(name, "gauge", text, lambda model, _: (read(model),))


def _counter(name: str, text: str, read: Callable[[EngineMetrics], float]) -> Family:
    return Family(name, "counter", text, lambda model, _: (read(model.metrics),))


def _histogram(name: str, text: str, read: Callable[[EngineMetrics], Histogram]) -> Family:
    return Family(name, "histogram", text, lambda model, _: read(model.metrics))


def _zeros(
    name: str, text: str, children: tuple[Labels, ...] = ((),), common: frozenset[str] = VLLM_LABELS
) -> Family:
    """A counter that the engine has and that never moves here."""
    zeros = (0,) * len(children)
    return Family(name, "counter", text, lambda _model, _seconds: zeros, children, common)


def _process(begun_at: float) -> tuple[Family, ...]:
    def constant(name: str, text: str, value: float) -> Family:
        return Family(name, "gauge", text, lambda _model, _seconds: (value,), common=_NO_LABELS)

    return (
        Family(
            "python_info",
            "gauge",
            "Python that runs the API server.",
            lambda _model, _seconds: (1,),
            (
                (
                    ("implementation", "CPython"),
                    ("major", "3"),
                    ("minor", "12"),
                    ("patchlevel", "11"),
                    ("version", "3.12.11"),
                ),
            ),
            _NO_LABELS,
        ),
        constant("process_virtual_memory_bytes", "Virtual memory of the process.", 21.4e9),
        constant("process_resident_memory_bytes", "Resident memory of the process.", 1.52e9),
        constant("process_start_time_seconds", "When the process began, in Unix seconds.", begun_at),
        Family(
            "process_cpu_seconds_total",
            "counter",
            "CPU time that the process used.",
            lambda model, seconds: (11.0 + 0.02 * seconds + 0.004 * sum(model.metrics.finished.values()),),
            common=_NO_LABELS,
        ),
        constant("process_open_fds", "Open file descriptors.", 75),
        constant("process_max_fds", "File descriptors that may be open.", 65536),
    )


def _cache_config(settings: EngineSettings) -> Family:
    fields = {
        "block_size": settings.block_size,
        "cache_dtype": "auto",
        "enable_prefix_caching": "True",
        "gpu_memory_utilization": "0.92",
        "kv_cache_max_concurrency": round(settings.kv_capacity_tokens / settings.max_model_len, 2),
        "kv_cache_size_tokens": settings.kv_capacity_tokens,
        "mamba_cache_mode": "none",
        "num_cpu_blocks": "None",
        "num_gpu_blocks": settings.kv_blocks,
        "num_gpu_blocks_override": "None",
        "prefix_caching_hash_algo": "sha256",
        "sliding_window": "None",
    }
    return Family(
        "vllm:cache_config_info",
        "gauge",
        "Configuration of the KV cache.",
        lambda _model, _seconds: (1,),
        (tuple((name, str(value)) for name, value in fields.items()),),
        _ENGINE_ONLY,
    )


def _speculation(positions: int) -> tuple[Family, ...]:
    return (
        _counter("vllm:spec_decode_num_drafts_total", "Draft steps.", lambda m: m.speculation.drafts),
        _counter(
            "vllm:spec_decode_num_draft_tokens_total",
            "Drafted tokens.",
            lambda m: m.speculation.draft_tokens,
        ),
        _counter(
            "vllm:spec_decode_num_accepted_tokens_total",
            "Drafted tokens that were accepted.",
            lambda m: sum(m.speculation.accepted_at),
        ),
        Family(
            "vllm:spec_decode_num_accepted_tokens_per_pos_total",
            "counter",
            "Accepted tokens of each draft position.",
            lambda model, _: model.metrics.speculation.accepted_at,
            each("position", *map(str, range(positions))),
        ),
    )


def vllm_families(settings: EngineSettings, begun_at: float) -> tuple[Family, ...]:
    """Everything on the page of a vLLM engine with these `settings`, in the page's order.

    `begun_at` is the process's start in Unix seconds.
    """
    return (
        *_process(begun_at),
        _zeros("vllm:estimated_flops_per_gpu_total", "Estimated floating point operations per GPU."),
        _zeros("vllm:estimated_read_bytes_per_gpu_total", "Estimated bytes read from memory per GPU."),
        _zeros("vllm:estimated_write_bytes_per_gpu_total", "Estimated bytes written to memory per GPU."),
        _gauge("vllm:num_requests_running", "Requests in the batch.", lambda e: e.requests_running),
        _gauge("vllm:num_requests_waiting", "Requests in the queue.", lambda e: len(e.waiting)),
        Family(
            "vllm:num_requests_waiting_by_reason",
            "gauge",
            "Requests in the queue, by what they wait for.",
            lambda e, _: (len(e.waiting), 0),
            each("reason", "capacity", "deferred"),
        ),
        Family(
            "vllm:engine_sleep_state",
            "gauge",
            "Sleep state; the one that applies is 1.",
            lambda _model, _seconds: (1, 0, 0),
            each("sleep_state", "awake", "weights_offloaded", "discard_all"),
        ),
        _gauge(
            "vllm:kv_cache_usage_perc", "Share of the KV cache in use, 0 to 1.", lambda e: e.kv_usage_ratio
        ),
        _counter("vllm:prefix_cache_queries_total", "Prompt tokens looked up.", lambda m: m.prefix_queries),
        _counter(
            "vllm:prefix_cache_hits_total", "Prompt tokens found in the cache.", lambda m: m.prefix_hits
        ),
        _zeros("vllm:external_prefix_cache_queries_total", "Prompt tokens looked up in an external cache."),
        _zeros("vllm:external_prefix_cache_hits_total", "Prompt tokens found in an external cache."),
        _zeros("vllm:mm_cache_queries_total", "Multi-modal items looked up."),
        _zeros("vllm:mm_cache_hits_total", "Multi-modal items found in the cache."),
        _counter("vllm:num_preemptions_total", "Preemptions.", lambda m: m.preemptions),
        _counter(
            "vllm:prompt_tokens_total", "Prompt tokens, cached ones included.", lambda m: m.prompt_tokens
        ),
        Family(
            "vllm:prompt_tokens_by_source_total",
            "counter",
            "Prompt tokens by where their KV came from.",
            lambda e, _: (
                e.metrics.prompt_tokens - e.metrics.prompt_tokens_cached,
                e.metrics.prompt_tokens_cached - e.metrics.prompt_tokens_transferred,
                e.metrics.prompt_tokens_transferred,
            ),
            each("source", "local_compute", "local_cache_hit", "external_kv_transfer"),
        ),
        _counter(
            "vllm:prompt_tokens_cached_total", "Cached prompt tokens.", lambda m: m.prompt_tokens_cached
        ),
        Family(
            "vllm:prompt_tokens_cached_by_source_total",
            "counter",
            "Cached prompt tokens by cache tier, counted at admission.",
            lambda e, _: (e.metrics.prefix_hits, 0, 0, 0, 0),
            each("source", "device", "host", "p2p", "disk", "external_unspecified"),
        ),
        _counter("vllm:generation_tokens_total", "Generated tokens.", lambda m: m.generation_tokens),
        Family(
            "vllm:request_success_total",
            "counter",
            "Ended requests by reason.",
            lambda e, _: tuple(e.metrics.finished.values()),
            each("finished_reason", *FINISH_REASONS),
        ),
        _zeros(
            "vllm:admission_rejections_total",
            "Requests that a queue limit turned away.",
            each("reason", "max_num_queued_reqs", "max_num_queued_tokens"),
            _MODEL_ONLY,
        ),
        _histogram("vllm:request_prompt_tokens", "Prompt length.", lambda m: m.request_prompt_tokens),
        _histogram("vllm:request_generation_tokens", "Output length.", lambda m: m.request_generation_tokens),
        _histogram("vllm:iteration_tokens_total", "Tokens per engine step.", lambda m: m.iteration_tokens),
        _histogram(
            "vllm:request_max_num_generation_tokens",
            "Longest output among a request's samples.",
            lambda m: m.request_generation_tokens,
        ),
        _histogram("vllm:request_params_n", "Samples asked for.", lambda m: m.request_samples),
        _histogram("vllm:request_params_max_tokens", "Limit of the output.", lambda m: m.request_max_tokens),
        _histogram(
            "vllm:time_to_first_token_seconds",
            "From arrival to the first token.",
            lambda m: m.time_to_first_token,
        ),
        _histogram(
            "vllm:inter_token_latency_seconds",
            "Between two outputs of a request.",
            lambda m: m.inter_token_latency,
        ),
        _histogram(
            "vllm:request_time_per_output_token_seconds",
            "Decode time per token after the first.",
            lambda m: m.time_per_output_token,
        ),
        _histogram(
            "vllm:e2e_request_latency_seconds", "From arrival to the last token.", lambda m: m.e2e_latency
        ),
        _histogram("vllm:request_queue_time_seconds", "Time in the queue.", lambda m: m.queue_time),
        _histogram("vllm:request_inference_time_seconds", "Time in the batch.", lambda m: m.inference_time),
        _histogram("vllm:request_prefill_time_seconds", "Time of the prefill.", lambda m: m.prefill_time),
        _histogram("vllm:request_decode_time_seconds", "Time of the decoding.", lambda m: m.decode_time),
        _histogram(
            "vllm:request_num_preemptions", "Preemptions of a request.", lambda m: m.request_preemptions
        ),
        _histogram(
            "vllm:request_prefill_kv_computed_tokens",
            "Prompt tokens computed, not cached.",
            lambda m: m.request_prefill_computed_tokens,
        ),
        *(_speculation(settings.num_speculative_tokens) if settings.num_speculative_tokens else ()),
        _cache_config(settings),
    )
