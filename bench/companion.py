"""What the vLLM companion costs, measured directly and without vLLM: `python -m bench.companion [--json]`.

Each figure is the CPU time of one call with the companion less that of the same call without it: the lowest
of several rounds, since everything else on the machine only adds. Shares are of one step of `STEP_SECONDS`
with `BATCH` requests that stream one token each and end after `TOKENS` tokens.

In the engine's process there is only a wrapper around each message from an API server, and once a second the
question of each API server. In the API server's process, which does not hold the step up, each streamed chunk
passes a wrapper (only with a reasoning parser), and each request is counted when it ends.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from time import process_time
from types import ModuleType, SimpleNamespace
from typing import Any

sys.path += [str(Path(__file__).parents[1] / "companions" / name) for name in ("common", "vllm")]

from prometheus_client import CollectorRegistry

from bench.figures import tell
from enginetop_companion.settings import Objective
from enginetop_companion.truth import PrometheusMetrics, RequestTruth
from enginetop_companion_vllm import engine_side
from enginetop_companion_vllm.reasoning import watch_chat
from enginetop_companion_vllm.truth import OUTCOMES, finished

STEP_SECONDS = 0.02
BATCH = 64
TOKENS = 300
MESSAGES_A_REQUEST = 2
"""The request itself and, at worst, its abort."""

ROUNDS = 7
CHUNK = 'data: {"id":"chatcmpl-1","choices":[{"index":0,"delta":{"reasoning":"word"}}]}\n\n'


def lowest(work: Callable[[], object], calls: int) -> float:
    """CPU seconds of one call."""
    best = float("inf")
    for _ in range(ROUNDS):
        start = process_time()
        work()
        best = min(best, process_time() - start)
    return best / calls


def message_seconds() -> tuple[float, float]:
    """Wrapper around one message in the engine, and one API server's question."""
    wake_up = object()
    engine = ModuleType("vllm.v1.engine")
    engine.__dict__["EngineCoreRequestType"] = SimpleNamespace(WAKEUP=wake_up)
    for name in ("vllm", "vllm.v1"):
        sys.modules.setdefault(name, ModuleType(name))
    sys.modules["vllm.v1.engine"] = engine

    class Core:
        def __init__(self) -> None:
            self.input_queue = SimpleNamespace(put_nowait=lambda _: None)
            self.scheduler = SimpleNamespace(
                max_num_scheduled_tokens=8192,
                max_num_active_reqs=256,
                max_num_running_reqs=256,
                num_spec_tokens=4,
                dynamic_sd_lookup=None,
                max_model_len=32768,
                block_size=16,
                max_num_encoder_input_tokens=0,
                need_mamba_block_aligned_split=False,
                num_prefill_lookahead=0,
                kv_cache_manager=SimpleNamespace(
                    watermark_blocks=0, block_pool=SimpleNamespace(num_gpu_blocks=16_800)
                ),
                scheduler_config=SimpleNamespace(
                    long_prefill_token_threshold=0,
                    enable_chunked_prefill=True,
                    disable_chunked_mm_input=False,
                    max_num_queued_reqs=None,
                    max_num_queued_tokens=None,
                ),
            )
            self.vllm_config = SimpleNamespace(
                parallel_config=SimpleNamespace(data_parallel_size=1),
                speculative_config=SimpleNamespace(method="eagle"),
                reasoning_config=SimpleNamespace(enabled=True),
            )

        def _handle_client_request(self, _request_type: object, _request: object) -> None:
            return None

    def messages(core: Core) -> Callable[[], None]:
        def work() -> None:
            for _ in range(100_000):
                core._handle_client_request(None, None)

        return work

    bare, watched = Core(), Core()
    assert engine_side.call(watched, "sheet", {})["status"] == 200
    extra = lowest(messages(watched), 100_000) - lowest(messages(bare), 100_000)

    def questions() -> None:
        for _ in range(5_000):
            engine_side.call(watched, "view", {})

    return extra, lowest(questions, 5_000)


def counting(objective: Objective) -> RequestTruth:
    """Counters on a registry of their own."""
    return RequestTruth(
        PrometheusMetrics(CollectorRegistry()), objective, OUTCOMES, logging.getLogger(__name__)
    )


def finish_seconds() -> float:
    """Counting one request that ends."""
    truth = counting(Objective(0.6, 0.05))
    stats = SimpleNamespace(
        first_token_latency=0.2, first_token_ts=1.0, last_token_ts=7.0, num_generation_tokens=TOKENS
    )
    request = SimpleNamespace(stats=stats, detokenizer=object())

    def work() -> None:
        for _ in range(20_000):
            finished(truth, request, "stop")
            truth.reasoned(200, text_seen=True)

    return lowest(work, 20_000)


class _Chat:
    _include_reasoning_tokens_details = True

    async def create_chat_completion(self, _request: Any, _raw_request: Any = None) -> Any:
        return self._stream()

    async def _stream(self) -> AsyncGenerator[str, None]:
        for _ in range(TOKENS):
            yield CHUNK


def stream_seconds() -> tuple[float, float]:
    """One chunk that passes, and one request beside its chunks, on the way in and out."""
    truth = counting(Objective())
    request = SimpleNamespace(
        n=1, thinking_token_budget=None, include_reasoning=True, model_fields_set=frozenset()
    )
    raw = SimpleNamespace(state=SimpleNamespace())
    watched, bare = _Chat(), _Chat()
    watch_chat(watched, lambda: 10, truth)

    def streams(chat: _Chat, chunks: int) -> Callable[[], None]:
        async def scene() -> None:
            for _ in range(200):
                stream = await chat.create_chat_completion(request, raw)
                for _ in range(chunks):
                    await anext(stream)
                await stream.aclose()

        return lambda: asyncio.run(scene())

    whole = lowest(streams(watched, TOKENS), 200) - lowest(streams(bare, TOKENS), 200)
    start = lowest(streams(watched, 1), 200) - lowest(streams(bare, 1), 200)
    return (whole - start) / (TOKENS - 1), start


def measure() -> dict[str, float]:
    """All figures, in microseconds and as shares of a step."""
    message, question = message_seconds()
    finish = finish_seconds()
    chunk, request = stream_seconds()
    ending = BATCH / TOKENS
    engine = ending * MESSAGES_A_REQUEST * message + STEP_SECONDS * question
    server = BATCH * chunk + ending * (request + finish)
    return {
        "engine_message_microseconds": message * 1e6,
        "engine_question_microseconds": question * 1e6,
        "request_end_microseconds": finish * 1e6,
        "request_start_microseconds": request * 1e6,
        "chunk_microseconds": chunk * 1e6,
        "engine_step_microseconds": engine * 1e6,
        "engine_share_of_step_ratio": engine / STEP_SECONDS,
        "api_server_step_microseconds": server * 1e6,
        "api_server_share_of_step_ratio": server / STEP_SECONDS,
        "step_seconds": STEP_SECONDS,
        "batch": BATCH,
    }


def main() -> None:
    figures = measure()
    tell(figures, as_json="--json" in sys.argv[1:])


if __name__ == "__main__":
    main()
