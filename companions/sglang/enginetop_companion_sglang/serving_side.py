"""The part in the server process: the knob API's listener, the counters, and the leases' keeper.

It runs within the lifespan of SGLang's own web application, on its event loop, and adds no route to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from enginetop_companion import settings
from enginetop_companion.api import Api
from enginetop_companion.listener import Listener, listen
from enginetop_companion.settings import Settings
from enginetop_companion.truth import Metrics, RequestTruth, process_metrics
from enginetop_companion_sglang.checked_parts import HTTP_SERVER, REQUESTS
from enginetop_companion_sglang.engine import Engine
from enginetop_companion_sglang.scheduler_side import PLACE, key_of
from enginetop_companion_sglang.truth import OUTCOMES, count_with

log = logging.getLogger("sglang.enginetop")


class AskedSchedulers:
    """The schedulers behind a TokenizerManager, by its own two questions."""

    def __init__(self, manager: Any, secret: str) -> None:
        self._manager = manager
        self._secret = secret
        self._request: type[Any] = importlib.import_module(REQUESTS).SetInternalStateReq

    async def read(self) -> Sequence[Mapping[str, Any] | None]:
        """See `engine.Schedulers`."""
        return [state.get(PLACE) for state in await self._manager.get_internal_state()]

    async def write(self, values: Mapping[str, int]) -> Sequence[bool]:
        """See `engine.Schedulers`."""
        keyed = {key_of(name, self._secret): value for name, value in values.items()}
        taken: Sequence[bool] = await self._manager.set_internal_state(self._request(server_args=keyed))
        return taken


def before_serving(secret: str) -> Callable[..., None]:
    """BEFORE hook of the function that runs the web server. The hook never raises."""

    def before(server_args: Any, tokenizer_manager: Any, *_: Any, **__: Any) -> None:
        try:
            if server_args.tokenizer_worker_num != 1:
                log.warning("enginetop companion steps aside: there are several tokenizer processes")
                return
            app = importlib.import_module(HTTP_SERVER).app
            app.router.lifespan_context = within(
                app.router.lifespan_context, tokenizer_manager, server_args.port, secret
            )
        except Exception as error:  # noqa: BLE001 - serving goes on without us
            log.warning("enginetop companion steps aside: %r", error)

    return before


def within(theirs: Callable[[Any], Any], manager: Any, port: int, secret: str) -> Callable[[Any], Any]:
    """The lifespan `theirs` of a web application with ours inside of it."""

    @contextlib.asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[Any]:
        async with theirs(app) as state:
            ours = asyncio.get_running_loop().create_task(run(manager, port, secret))
            try:
                yield state
            finally:
                ours.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await ours

    return lifespan


async def run(manager: Any, port: int, secret: str) -> None:
    """Everything that this server can have, until it is cancelled. Never raises anything else."""
    listener: Listener | None = None
    try:
        mine = settings.read_settings(os.environ, "sglang", port)
        truth = count_requests(manager, mine, process_metrics)
        engine = await find_engine(AskedSchedulers(manager, secret), mine)
        if engine is None:
            return
        if truth is not None:
            engine.on_objective = truth.set_objective
        version = importlib.import_module("sglang").__version__
        listener = await listen(mine, Api(engine, "sglang", version, log).answer, log)
        await engine.keep()
    except Exception as error:  # noqa: BLE001 - serving goes on without us
        log.warning("enginetop companion steps aside: %r", error)
    finally:
        if listener is not None:
            listener.stop()


def count_requests(manager: Any, mine: Settings, metrics: Callable[[], Metrics]) -> RequestTruth | None:
    """The counters at work; None and a line in the log: the server keeps no metrics."""
    if not manager.enable_metrics:
        log.warning("enginetop companion: no request is counted, the server runs without --enable-metrics")
        return None
    truth = RequestTruth(metrics(), mine.objective, OUTCOMES, log)
    count_with(manager, truth)
    return truth


async def find_engine(schedulers: AskedSchedulers, mine: Settings) -> Engine | None:
    """The knobs that all schedulers have; None and a line in the log: not all of them have the companion."""
    answers = await schedulers.read()
    ranks = [rank for rank in answers if rank is not None]
    if not ranks or len(ranks) < len(answers) or any(rank["knobs"] != ranks[0]["knobs"] for rank in ranks):
        log.warning("enginetop companion: no knob API, not every scheduler has it, or they differ")
        return None
    for name, why in ranks[0]["absent"].items():
        log.warning("enginetop companion: %s: %s", name, why)
    return Engine(schedulers, ranks, mine.objective, time.monotonic, log)
