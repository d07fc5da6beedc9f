"""The part in each API server process: the knob API's listener, the counters, what API servers apply."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from dataclasses import dataclass
from typing import Any

from enginetop_companion import settings
from enginetop_companion.api import Api
from enginetop_companion.board import Answer
from enginetop_companion.listener import Listener, listen
from enginetop_companion.settings import Objective
from enginetop_companion.truth import RequestTruth, process_metrics
from enginetop_companion_vllm.engine_side import METHOD
from enginetop_companion_vllm.knobs import NO_LIMIT, QUEUE_LIMITS, THINKING
from enginetop_companion_vllm.private_parts import version_problem
from enginetop_companion_vllm.ranks import Ranks
from enginetop_companion_vllm.reasoning import watch_chat, watch_completions
from enginetop_companion_vllm.truth import OUTCOMES, watch_output

log = logging.getLogger("vllm.plugins.enginetop")

LOOK_SECONDS = 1.0
"""How often each API server asks the engine for what it has to apply and the objective."""

CHAT_SERVINGS = ("openai_serving_chat", "anthropic_serving_messages")
COMPLETION_SERVINGS = ("openai_serving_completion",)


class EnginetopEndpoint:
    """Entry point `vllm.endpoint_plugins`. Adds no route to the serving port."""

    name = "enginetop"
    required_tasks = ("generate",)

    def attach_router(self, app: Any) -> None:
        """Nothing: the knob API listens elsewhere."""

    async def init_state(self, engine_client: Any, state: Any, args: Any) -> None:
        """Start, once the engine is ready. Never raises: serving goes on without us."""
        if engine_client is None or not settings.is_on(os.environ):
            return
        try:
            await start(engine_client, state, getattr(args, "port", 0))
        except Exception as error:  # noqa: BLE001 - see above
            log.warning("enginetop companion steps aside: %s", error)


@dataclass(frozen=True)
class Told:
    """What the engine told of one setting, and what follows when its lease is over (the clock's seconds)."""

    value: int
    deadline: float | None
    former: int | None

    def limit(self, now: float) -> int | None:
        """What is in force; None: no limit."""
        value = self.former if self.deadline is not None and now >= self.deadline else self.value
        return None if value is None or value == NO_LIMIT else int(value)


class EngineView:
    """What this process knows of the engine's objective and of what API servers apply, and until when.

    Queue limits are put into `config`, vLLM's scheduler config in this process; None: it has none.
    """

    def __init__(self, ranks: Ranks, objective: Objective, config: Any = None) -> None:
        self._ranks = ranks
        self._config = config
        self._told: dict[str, Told] = {}
        self._truth: RequestTruth | None = None
        self.objective = objective

    def tell(self, truth: RequestTruth) -> None:
        """Let these counters know of a new objective."""
        self._truth = truth

    def thinking_budget(self) -> int | None:
        """The default for a request that comes in now; None: leave it alone."""
        told = self._told.get(THINKING)
        return None if told is None else told.limit(time.monotonic())

    async def refresh(self) -> None:
        """Ask the engine. What is known is kept when it does not answer."""
        view = await self._ranks.view()
        now = time.monotonic()
        if view is not None:
            self._told = {name: _told(row, now) for name, row in view["served"].items()}
            if view["objective"] is not None and Objective(*view["objective"]) != self.objective:
                self.objective = Objective(*view["objective"])
                if self._truth is not None:
                    self._truth.set_objective(self.objective)
        self._put_queue_limits(now)

    def _put_queue_limits(self, now: float) -> None:
        for name in QUEUE_LIMITS:
            told = self._told.get(name)
            if told is not None and hasattr(self._config, name):
                setattr(self._config, name, told.limit(now))

    async def keep_looking(self, listener: Listener | None) -> None:
        """Refresh until the server ends, since another API server may take a change; then stop listening."""
        try:
            while True:
                await asyncio.sleep(LOOK_SECONDS)
                await self.refresh()
        finally:
            if listener is not None:
                listener.stop()


def _told(row: dict[str, Any], now: float) -> Told:
    left = row["expires_in_seconds"]
    return Told(row["value"], None if left is None else now + left, row["former"])


class EngineSeenHere:
    """The engine as the knob API of this process knows it: what it changed is asked for again at once."""

    def __init__(self, ranks: Ranks, view: EngineView) -> None:
        self._ranks = ranks
        self._view = view

    async def sheet(self) -> Answer:
        """See `enginetop_companion.api.Engine`."""
        return await self._ranks.sheet()

    async def change(self, asked: dict[str, Any]) -> Answer:
        """See `enginetop_companion.api.Engine`."""
        answer = await self._ranks.change(asked)
        await self._view.refresh()
        return answer

    async def reset(self, name: str) -> Answer:
        """See `enginetop_companion.api.Engine`."""
        answer = await self._ranks.reset(name)
        await self._view.refresh()
        return answer

    async def set_objective(self, objective: list[float]) -> Answer:
        """See `enginetop_companion.api.Engine`."""
        answer = await self._ranks.set_objective(objective)
        await self._view.refresh()
        return answer

    def objective(self) -> Objective:
        """See `enginetop_companion.api.Engine`."""
        return self._view.objective


async def start(engine_client: Any, state: Any, serving_port: int) -> None:
    """Start everything that this server can have. RuntimeError with the reason where it cannot run."""
    import vllm

    problem = version_problem(vllm.__version__)
    if problem:
        raise RuntimeError(problem)
    mine = settings.read_settings(os.environ, "vllm", serving_port)
    client = engine_client.engine_core
    ranks = Ranks(
        lambda verb, asked: client.call_utility_all_async(METHOD, verb, asked),
        engine_client.vllm_config.parallel_config.data_parallel_size,
    )
    sheet = await ranks.sheet()
    if sheet.status != 200:
        raise RuntimeError(sheet.body["error"])
    view = EngineView(ranks, mine.objective, getattr(engine_client, "scheduler_config", None))
    await view.refresh()
    truth = _count_requests(engine_client, view)
    for name in CHAT_SERVINGS:
        serving = getattr(state, name, None)
        if serving is not None:
            watch_chat(serving, view.thinking_budget, truth)
    for name in COMPLETION_SERVINGS:
        serving = getattr(state, name, None)
        if serving is not None:
            watch_completions(serving, view.thinking_budget)
    api = Api(EngineSeenHere(ranks, view), "vllm", vllm.__version__, log)
    listener = await listen(mine, api.answer, log)
    # Kept alive by the application's state, and cancelled with the server's loop.
    state.enginetop_companion = asyncio.get_running_loop().create_task(view.keep_looking(listener))


def _count_requests(engine_client: Any, view: EngineView) -> RequestTruth | None:
    processor = engine_client.output_processor
    if not processor.log_stats:
        log.warning("enginetop companion: no request is counted, the server keeps no statistics")
        return None
    truth = RequestTruth(process_metrics(), view.objective, OUTCOMES, log)
    view.tell(truth)
    watch_output(processor, truth)
    return truth
