"""The HTTP side of one replica: its pages, its knobs and its completions, as long as it has a process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from itertools import count

from enginetop.fleet.model import EngineKind
from enginetop.simulator.completions import Asked, CompletionError, Wording, parse, request_for
from enginetop.simulator.http_messages import (
    Answer,
    Deferred,
    Handler,
    Reply,
    Request,
    Routes,
    Streamed,
    error_reply,
    json_reply,
)
from enginetop.simulator.knobbed_fleet import Companion, KnobbedFleet
from enginetop.simulator.pages import CONTENT_TYPE
from enginetop.simulator.replica import SimulatedReplica
from enginetop.simulator.request import Request as EngineRequest
from enginetop.simulator.server_info import (
    ENGINE_VERSIONS,
    models,
    sglang_loads,
    sglang_server_info,
    vllm_server_info,
)
from enginetop.simulator.traffic import RequestSource

MOST_COMPLETIONS = 256
"""Requests for completions that a replica takes at a time."""

_BEAT_SECONDS = 0.02
_LOOK_SECONDS = 0.25


class Pulse:
    """Wakes everybody who waits for tokens at once, after a step of the fleet; stands still otherwise."""

    def __init__(self, advance: Callable[[], None]) -> None:
        self._advance = advance
        self._next: asyncio.Event | None = None

    async def beat(self) -> None:
        """Return at the next beat, with the fleet advanced to it."""
        if self._next is None:
            self._next = asyncio.Event()
            asyncio.get_running_loop().call_later(_BEAT_SECONDS, self._strike)
        await self._next.wait()

    def _strike(self) -> None:
        event, self._next = self._next, None
        self._advance()
        if event is not None:
            event.set()


class Frontend:
    """Answers HTTP requests to `replica`. `clock` is the second of the fleet, `epoch` the Unix time of its
    second 0; `pulse` belongs to the fleet.
    """

    def __init__(
        self,
        fleet: KnobbedFleet,
        replica: SimulatedReplica,
        clock: Callable[[], float],
        epoch: float,
        pulse: Pulse,
    ) -> None:
        self._fleet = fleet
        self._replica = replica
        self._clock = clock
        self._epoch = epoch
        self._pulse = pulse
        self._numbers = count(1)
        self._lengths = RequestSource(replica.plan.traffic, replica.plan.engine, f"{replica.name}/lengths")
        self._live = 0
        self._routes: Routes | None = None
        self._companion: Companion | None = None

    def __call__(self, request: Request) -> Answer | None:
        """The answer now; None: there is no process."""
        self._fleet.advance(self._clock())
        companion = self._fleet.companion(self._replica)
        if companion is None:
            return None
        if not self._replica.answers:
            return Deferred(lambda: self._after_silence(request))
        if companion is not self._companion or self._routes is None:
            self._companion, self._routes = companion, self._routes_of(companion)
        return self._routes(request)

    async def _after_silence(self, request: Request) -> Reply:
        while not self._replica.answers:
            await asyncio.sleep(_LOOK_SECONDS)
            self._fleet.advance(self._clock())
        answer = self(request)
        if answer is None:
            raise ConnectionAbortedError
        return answer if isinstance(answer, Reply) else error_reply(503, "asked while nothing was answered")

    def _routes_of(self, companion: Companion) -> Routes:
        settings = self._replica.plan.engine
        sglang = settings.kind is EngineKind.SGLANG
        version = {"version": ENGINE_VERSIONS.get(settings.kind, "")}
        info = (
            sglang_server_info(settings, self._reasons)
            if sglang
            else vllm_server_info(settings, companion.instance, self._reasons)
        )
        fixed = {"/v1/models": models(settings), "/server_info": info, "/version": version}
        own: dict[str, dict[str, Handler]] = {}
        if sglang:
            del fixed["/version"]
            own = {"/v1/loads": {"GET": self._loads}, "/ready": {"GET": lambda _: Reply(b"")}}
        return Routes(
            {
                "/metrics": {"GET": self._metrics},
                "/health": {"GET": lambda _: Reply(b"")},
                **own,
                **{path: {"GET": _fixed(document)} for path, document in fixed.items()},
                "/v1/completions": {"POST": lambda request: self._complete(request, chat=False)},
                "/v1/chat/completions": {"POST": lambda request: self._complete(request, chat=True)},
                **companion.api.routes,
            }
        )

    @property
    def _reasons(self) -> bool:
        return self._replica.plan.traffic.reasoning_tokens.median > 0

    def _metrics(self, _: Request) -> Reply | None:
        page = self._replica.page()
        return None if page is None else Reply(page, CONTENT_TYPE)

    def _loads(self, _: Request) -> Reply:
        return json_reply(sglang_loads(self._replica.engines, self._epoch + self._clock()))

    # Completions

    def _complete(self, request: Request, *, chat: bool) -> Answer:
        settings = self._replica.plan.engine
        try:
            asked = parse(request.body, settings, chat=chat, reasons=self._reasons)
        except CompletionError as error:
            return _refusal(400, "BadRequestError", str(error))
        if self._live >= MOST_COMPLETIONS:
            return _refusal(503, "ServiceUnavailableError", f"{self._live} requests are being answered")
        number = next(self._numbers)
        wording = Wording(
            asked,
            id=f"{'chatcmpl' if chat else 'cmpl'}-{self._replica.name}-{number}",
            model=settings.model,
            created=int(self._epoch + self._fleet.second),
            reasons=self._reasons,
            reasoning_key="reasoning_content" if settings.kind is EngineKind.SGLANG else "reasoning",
        )
        if asked.stream:
            return Streamed(lambda: self._stream(asked, wording))
        return Deferred(lambda: self._whole(asked, wording))

    async def _whole(self, asked: Asked, wording: Wording) -> Reply:
        async with aclosing(self._progress(asked)) as progress:
            async for request in progress:
                if request.has_ended:
                    return json_reply(wording.whole(request))
        raise ConnectionAbortedError

    async def _stream(self, asked: Asked, wording: Wording) -> AsyncGenerator[bytes, None]:
        sent = 0
        for event in wording.begin():
            yield event
        async with aclosing(self._progress(asked)) as progress:
            async for request in progress:
                for event in wording.tokens(request, sent, request.generated_tokens):
                    yield event
                sent = request.generated_tokens
                if request.has_ended:
                    for event in wording.end(request):
                        yield event

    async def _progress(self, asked: Asked) -> AsyncGenerator[EngineRequest, None]:
        """The request in the engine, each time that it has new tokens; nothing after its end. Whoever stops
        listening earlier hangs up.

        Raises:
            ConnectionAbortedError: its process has gone.
        """
        life = self._replica.lives
        engine = min(self._replica.engines, key=lambda e: e.requests_running + len(e.waiting), default=None)
        if engine is None:
            raise ConnectionAbortedError
        arrival_at = self._fleet.second - self._replica.life_at
        request = engine.submit(request_for(asked, self._lengths.pop(), arrival_at))
        self._live += 1
        told = 0
        try:
            while not request.has_ended or told < request.generated_tokens:
                if request.generated_tokens > told:
                    told = request.generated_tokens
                    yield request
                    continue
                await self._pulse.beat()
                if self._replica.lives != life or not self._replica.engines:
                    raise ConnectionAbortedError
        finally:
            self._live -= 1
            request.hang_up()


def _fixed(document: object) -> Handler:
    reply = json_reply(document)
    return lambda _: reply


def _refusal(status: int, kind: str, message: str) -> Reply:
    """An error in the form of the OpenAI API."""
    return json_reply({"error": {"message": message, "type": kind, "param": None, "code": status}}, status)
