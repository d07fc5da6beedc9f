"""The part in each API server process: the knob API's listener, the counters, the default thinking budget."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from typing import Any

from enginetop_companion import settings
from enginetop_companion.api import Api
from enginetop_companion.board import Answer
from enginetop_companion.listener import Listener, listen
from enginetop_companion.settings import Objective
from enginetop_companion.truth import RequestTruth, process_metrics
from enginetop_companion_vllm.engine_side import METHOD
from enginetop_companion_vllm.knobs import NO_THINKING_BUDGET
from enginetop_companion_vllm.private_parts import version_problem
from enginetop_companion_vllm.ranks import Ranks
from enginetop_companion_vllm.reasoning import watch_chat, watch_completions
from enginetop_companion_vllm.truth import OUTCOMES, watch_output

log = logging.getLogger("vllm.plugins.enginetop")

LOOK_SECONDS = 1.0
"""How often each API server asks the engine for the default thinking budget and the objective."""

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


class EngineView:
    """What this process knows of the engine's objective and default thinking budget, and until when."""

    def __init__(self, ranks: Ranks, objective: Objective) -> None:
        self._ranks = ranks
        self._thinking: dict[str, Any] | None = None
        self._expires_at: float | None = None
        self._truth: RequestTruth | None = None
        self.objective = objective

    def tell(self, truth: RequestTruth) -> None:
        """Let these counters know of a new objective."""
        self._truth = truth

    def thinking_budget(self) -> int | None:
        """The default for a request that comes in now; None: leave it alone."""
        if self._thinking is None:
            return None
        over = self._expires_at is not None and time.monotonic() >= self._expires_at
        value = self._thinking["former"] if over else self._thinking["value"]
        return None if value is None or value == NO_THINKING_BUDGET else int(value)

    async def refresh(self) -> None:
        """Ask the engine. What is known is kept when it does not answer."""
        view = await self._ranks.view()
        if view is None:
            return
        thinking = view["thinking"]
        left = thinking["expires_in_seconds"] if thinking else None
        self._expires_at = None if left is None else time.monotonic() + left
        self._thinking = thinking
        if view["objective"] is not None and Objective(*view["objective"]) != self.objective:
            self.objective = Objective(*view["objective"])
            if self._truth is not None:
                self._truth.set_objective(self.objective)

    async def keep_looking(self, listener: Listener | None) -> None:
        """Refresh until the server ends, since another API server may take a change; then stop listening."""
        try:
            while True:
                await asyncio.sleep(LOOK_SECONDS)
                await self.refresh()
        finally:
            if listener is not None:
                listener.stop()


class EngineSeenHere:
    """The engine as the knob API of this process knows it: what it changed is asked for again at once."""

    def __init__(self, ranks: Ranks, view: EngineView) -> None:
        self._ranks = ranks
        self._view = view

    async def sheet(self) -> Answer:
        """See `enginetop_companion.api.Engine`, as the others."""
        return await self._ranks.sheet()

    async def change(self, asked: dict[str, Any]) -> Answer:
        answer = await self._ranks.change(asked)
        await self._view.refresh()
        return answer

    async def reset(self, name: str) -> Answer:
        answer = await self._ranks.reset(name)
        await self._view.refresh()
        return answer

    async def set_objective(self, objective: list[float]) -> Answer:
        answer = await self._ranks.set_objective(objective)
        await self._view.refresh()
        return answer

    def objective(self) -> Objective:
        return self._view.objective


async def start(engine_client: Any, state: Any, serving_port: int) -> None:
    """Start everything that this server can have. Raises with the reason where the companion cannot run."""
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
    view = EngineView(ranks, mine.objective)
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
