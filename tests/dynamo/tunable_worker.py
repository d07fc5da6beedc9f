"""A worker of Dynamo's runtime whose engine is a batch in Python, and whose `max_num_seqs` changes while it
runs: by the knob API of `enginetop_companion`, and by `/engine/control/set_limits` of its system port.

Run with Dynamo's Python, `companions/common` on its path, and the environment of a companion. Its page has
the names that Dynamo's mocker gives an engine of vLLM, and the exact counts of a companion.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import time
import uuid
from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any

import prometheus_client as prometheus
from dynamo.common.backend.engine import (  # type: ignore[import-not-found]
    EngineConfig,
    LLMEngine,
    LlmRegistration,
)
from dynamo.common.backend.metrics import register_engine_registry  # type: ignore[import-not-found]
from dynamo.common.backend.run import run  # type: ignore[import-not-found]
from dynamo.common.backend.worker import WorkerConfig  # type: ignore[import-not-found]

from enginetop_companion.api import Api
from enginetop_companion.board import Answer, Board, Bounds
from enginetop_companion.listener import listen
from enginetop_companion.settings import Objective, read_settings
from enginetop_companion.truth import PrometheusMetrics, RequestTruth, Times

SEATS = "max_num_seqs"
MOST_SEATS = 64
STEP_SECONDS = 0.05
_FULL_STEP = 32
"""So many sequences make a step twice as long as one does."""
_LETTER = 40
"""A token that is a printable byte in the vocabulary of `tiny_model`."""
_LOG = logging.getLogger("tunable_worker")


@dataclass(slots=True, eq=False)
class Seat:
    """A request in the engine: when it came, and its tokens as they are made."""

    arrived: float
    wanted: int
    made: int = 0
    first_at: float = 0.0
    last_at: float = 0.0
    tokens: asyncio.Queue[int] = field(default_factory=asyncio.Queue)

    @property
    def times(self) -> Times:
        """What it took, in full."""
        gaps = self.made - 1
        tpot = (self.last_at - self.first_at) / gaps if gaps else None
        return Times(self.first_at - self.arrived, tpot)


class Batch:
    """Continuous batching: each step gives every running request a token; `seats` run at most.

    Who runs above a lowered number of seats runs on.
    """

    def __init__(self, seats: int) -> None:
        self.seats = seats
        self.running: list[Seat] = []
        self.waiting: deque[Seat] = deque()
        self._came = asyncio.Event()

    def join(self, seat: Seat) -> None:
        """Queue a request."""
        self.waiting.append(seat)
        self._came.set()

    def leave(self, seat: Seat) -> None:
        """Forget a request, wherever it is."""
        for place in (self.running, self.waiting):
            with contextlib.suppress(ValueError):
                place.remove(seat)

    async def work(self) -> None:
        """Step after step, until this is cancelled."""
        while True:
            while self.waiting and len(self.running) < self.seats:
                self.running.append(self.waiting.popleft())
            if not self.running:
                self._came.clear()
                await self._came.wait()
                continue
            await asyncio.sleep(STEP_SECONDS * (1 + len(self.running) / _FULL_STEP))
            now = time.monotonic()
            for seat in list(self.running):
                seat.made += 1
                seat.first_at = seat.first_at or now
                seat.last_at = now
                seat.tokens.put_nowait(_LETTER + seat.made % 20)
                if seat.made == seat.wanted:
                    self.running.remove(seat)


class Seats:
    """The knob."""

    name, unit = SEATS, "requests"

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self.start = batch.seats

    def bounds(self) -> Bounds:
        """See `Knob`."""
        return Bounds(1, MOST_SEATS)

    def write(self, value: int) -> None:
        """See `Knob`."""
        self._batch.seats = value


class Knobs:
    """The engine as the knob API sees it: one process, one rank."""

    def __init__(self, batch: Batch, truth: RequestTruth) -> None:
        self._board = Board([Seats(batch)])
        self._truth = truth
        self._instance = uuid.uuid4().hex[:12]

    async def sheet(self) -> Answer:
        """See `api.Engine`."""
        self._board.expire(time.monotonic())
        head = {"instance": self._instance, "applied": 1, "total": 1}
        return Answer(200, head | {"knobs": self._board.rows(time.monotonic())})

    async def change(self, asked: dict[str, Any]) -> Answer:
        """See `api.Engine`."""
        return _by_one(self._board.change(asked, time.monotonic()))

    async def reset(self, name: str) -> Answer:
        """See `api.Engine`."""
        return _by_one(self._board.reset(name, time.monotonic()))

    async def set_objective(self, objective: list[float]) -> Answer:
        """See `api.Engine`."""
        self._truth.set_objective(Objective(*objective))
        return Answer(200, {})

    def objective(self) -> Objective:
        """See `api.Engine`."""
        return self._truth.objective

    async def keep(self) -> None:
        """Let leases end when they are over, until this is cancelled."""
        while True:
            await asyncio.sleep(0.5)
            for name in self._board.expire(time.monotonic()):
                _LOG.warning("%s is back, nobody renewed the change", name)


class Page:
    """The engine's series."""

    def __init__(self, batch: Batch, model: str) -> None:
        self.registry = registry = prometheus.CollectorRegistry()

        def named(kind: Any, name: str, **more: Any) -> Any:
            made = kind(f"vllm:{name}", name, ["model_name", "engine"], registry=registry, **more)
            return made.labels(model, "0")

        named(prometheus.Gauge, "num_requests_running").set_function(lambda: len(batch.running))
        named(prometheus.Gauge, "num_requests_waiting").set_function(lambda: len(batch.waiting))
        self.preemptions = named(prometheus.Counter, "num_preemptions")
        self.prompt_tokens = named(prometheus.Counter, "prompt_tokens")
        self.generation_tokens = named(prometheus.Counter, "generation_tokens")
        self.ttft = named(prometheus.Histogram, "time_to_first_token_seconds")
        self.e2e = named(prometheus.Histogram, "e2e_request_latency_seconds")
        lengths = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
        self.prompts = named(prometheus.Histogram, "request_prompt_tokens", buckets=lengths)
        self.outputs = named(prometheus.Histogram, "request_generation_tokens", buckets=lengths)
        finished = prometheus.Counter(
            "vllm:request_success", "ended", ["model_name", "engine", "finished_reason"], registry=registry
        )
        self._finished = {one: finished.labels(model, "0", one) for one in ("length", "abort")}

    def ended(self, seat: Seat, prompt: int, outcome: str) -> None:
        """Count a request."""
        self._finished[outcome].inc()
        self.prompt_tokens.inc(prompt)
        self.prompts.observe(prompt)
        self.outputs.observe(seat.made)
        self.e2e.observe(time.monotonic() - seat.arrived)


class TunableEngine(LLMEngine):  # type: ignore[misc]
    """The batch as Dynamo's unified backend drives it."""

    def __init__(self, folder: str, model: str, seats: int) -> None:
        self._folder, self._model = folder, model
        self._batch = Batch(seats)
        self._page = Page(self._batch, model)
        self._tasks: list[asyncio.Task[None]] = []
        self._mine = read_settings(os.environ, "dynamo", os.getpid())
        metrics = PrometheusMetrics(self._page.registry)
        self._truth = RequestTruth(metrics, self._mine.objective, ("length", "abort"), _LOG)
        self._knobs = Knobs(self._batch, self._truth)

    @classmethod
    async def from_args(cls, argv: list[str] | None = None) -> tuple[TunableEngine, Any]:
        """See `BaseEngine`."""
        parser = argparse.ArgumentParser()
        parser.add_argument("--model-path", required=True)
        parser.add_argument("--model-name", required=True)
        parser.add_argument("--max-num-seqs", type=int, required=True)
        args = parser.parse_args(argv)
        config = WorkerConfig(
            namespace="dynamo",
            component="backend",
            model_name=args.model_path,
            served_model_name=args.model_name,
            endpoint_types="chat",
            discovery_backend=os.environ["DYN_DISCOVERY_BACKEND"],
            event_plane=os.environ["DYN_EVENT_PLANE"],
            enable_kv_routing=False,
        )
        return cls(args.model_path, args.model_name, args.max_num_seqs), config

    async def start(self, worker_id: int) -> EngineConfig:
        """See `BaseEngine`."""
        self._tasks = [asyncio.create_task(self._batch.work()), asyncio.create_task(self._knobs.keep())]
        await listen(self._mine, Api(self._knobs, "vllm", "tunable", _LOG).answer, _LOG)
        llm = LlmRegistration(
            context_length=2048,
            kv_cache_block_size=16,
            total_kv_blocks=1000,
            max_num_seqs=self._batch.seats,
            max_num_batched_tokens=2048,
        )
        return EngineConfig(model=self._folder, served_model_name=self._model, llm=llm)

    async def register_prometheus(self, metrics: Any) -> None:
        """See `BaseEngine`."""
        register_engine_registry(metrics, self._page.registry)

    def supported_controls(self) -> set[str]:
        """See `BaseEngine`."""
        return {"set_limits"}

    async def engine_control(self, control: str, body: dict[str, Any]) -> dict[str, Any]:
        """See `BaseEngine`. What is refused is told in a body, as all of Dynamo's engines do it."""
        asked = {"knob": SEATS, "value": body.get(SEATS), "if_version": None, "ttl_seconds": None}
        if not isinstance(asked["value"], int):
            return {"status": "error", "message": f"{SEATS}: a whole number"}
        answer = await self._knobs.change(asked | {"change": control})
        status = "ok" if answer.status == 200 else "error"
        return {"status": status, "message": answer.body.get("error", ""), SEATS: self._batch.seats}

    async def generate(self, request: Any, context: Any) -> AsyncGenerator[dict[str, Any], None]:
        """See `LLMEngine`."""
        prompt = len(request["token_ids"])
        seat = Seat(time.monotonic(), request["stop_conditions"].get("max_tokens") or 16)
        outcome = "abort"
        self._batch.join(seat)
        try:
            for number in range(seat.wanted):
                token = await seat.tokens.get()
                if context.is_stopped():
                    break
                self._page.generation_tokens.inc()
                if number == 0:
                    self._page.ttft.observe(seat.first_at - seat.arrived)
                chunk: dict[str, Any] = {"token_ids": [token], "index": 0}
                if number == seat.wanted - 1:
                    chunk["finish_reason"] = "length"
                    chunk["completion_usage"] = {
                        "prompt_tokens": prompt,
                        "completion_tokens": seat.wanted,
                        "total_tokens": prompt + seat.wanted,
                    }
                    outcome = "length"
                yield chunk
        finally:
            self._batch.leave(seat)
            self._page.ended(seat, prompt, outcome)
            self._truth.ended(outcome, lambda: seat.times)

    async def cleanup(self) -> None:
        """See `BaseEngine`."""
        for task in self._tasks:
            task.cancel()


def _by_one(answer: Answer) -> Answer:
    return Answer(200, answer.body | {"applied": 1, "total": 1}) if answer.status == 200 else answer


if __name__ == "__main__":
    run(TunableEngine)
