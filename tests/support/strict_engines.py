"""Engines that fail a test when a page is asked that they did not declare, or that would do something.

Each is a set of fixtures behind the paths of the real server; `state` says how it is now.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase

from collectors.answer import Answer
from collectors.engines.base import EngineTable
from collectors.engines.detect import recognise
from collectors.feed import TargetFeed
from collectors.origin import METRICS_PATHS
from enginetop.fleet.observation import FailureKind, Observation
from tests.support.engine_pages import fixture, page_of

PROMETHEUS = "/prometheus/metrics"
METRICS = "/metrics"


class State(StrEnum):
    """How a server is at one scrape."""

    OK = "ok"
    IDLE = "idle"
    ASLEEP = "asleep"
    REFUSED = "refused"
    LOADING = "loading"
    NO_PAGE = "no_page"
    LOCKED = "locked"
    SLOW = "slow"
    BROKEN = "broken"
    WEB_PAGE = "web_page"
    EMPTY = "empty"


@dataclass(frozen=True, slots=True)
class Engine:
    """What a server serves: its metrics page when busy and when idle, and other pages by path.

    `asleep` replaces pages while it sleeps, and `asleep_never` may not be asked then; `never` may not be
    asked of this server whatever it does, beyond what its table says.
    """

    name: str
    page: bytes
    idle: bytes
    at: str = METRICS
    pages: Mapping[str, bytes] = field(default_factory=dict)
    asleep: Mapping[str, bytes] = field(default_factory=dict)
    asleep_never: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    server: str = "uvicorn"

    @property
    def table(self) -> EngineTable:
        """The table that reads it under load."""
        return _table_of(self.page)

    @property
    def tables(self) -> tuple[EngineTable, ...]:
        """Every table that reads it: a Dynamo worker has no series of its engine before the first request."""
        return (self.table, _table_of(self.idle))


def _table_of(page: bytes) -> EngineTable:
    found = recognise(page_of(page).layout)
    assert found is not None
    return found


def _page(path: str) -> bytes:
    """A fixture without the buckets of its histograms: which page is asked does not depend on them."""
    lines = fixture(path).splitlines(keepends=True)
    return b"".join(line for line in lines if b"_bucket" not in line)


def _json(**fields: object) -> bytes:
    return json.dumps(fields).encode()


def _gateway(path: str) -> Engine:
    page = _page(f"router/{path}")
    return Engine(path.rpartition("/")[2].removesuffix(".prom"), page, page)


_VLLM = "vllm/0.32.0/vllm-0.32.0"
_SGLANG = "sglang/0.5.23/sglang-0.5.23"
_LLAMA = "llamacpp/b11549/llama_cpp-b11549"
_MODELS = _json(data=[{"id": "m", "max_model_len": 4096}])
_PROPS = json.loads(fixture(f"{_LLAMA}-after.props.json"))

ENGINES: tuple[Engine, ...] = (
    Engine(
        "vllm",
        _page(f"{_VLLM}-loaded.prom"),
        _page(f"{_VLLM}-idle.prom"),
        pages={
            "/version": fixture(f"{_VLLM}-version.json"),
            "/v1/models": _MODELS,
            "/server_info": fixture(f"{_VLLM}-server_info.json"),
            "/health": b"",
        },
    ),
    Engine(
        "sglang",
        _page(f"{_SGLANG}-load-queued.prom"),
        _page(f"{_SGLANG}-idle-after-load.prom"),
        pages={
            "/v1/loads": fixture(f"{_SGLANG}-load-v1_loads.json"),
            "/server_info": fixture(f"{_SGLANG}-server_info.json"),
            "/model_info": fixture(f"{_SGLANG}-model_info.json"),
            "/v1/models": _MODELS,
        },
    ),
    Engine(
        "llamacpp",
        _page(f"{_LLAMA}-busy.prom"),
        _page(f"{_LLAMA}-after.prom"),
        pages={"/props": json.dumps(_PROPS).encode(), "/slots": fixture(f"{_LLAMA}-busy.slots.json")},
        asleep={"/props": json.dumps({**_PROPS, "is_sleeping": True}).encode()},
        asleep_never=(METRICS, "/slots"),
        server="llama.cpp",
    ),
    Engine(
        "llamacpp router",
        _page(f"{_LLAMA}-busy.prom"),
        _page(f"{_LLAMA}-after.prom"),
        pages={
            "/props": _json(role="router"),
            "/models": fixture("llamacpp/b10434/llama_cpp-b10434-router.models.json"),
        },
        never=(METRICS, "/slots"),
        server="llama.cpp",
    ),
    Engine(
        "trtllm",
        _page("trtllm/1.3/trtllm-1.3-reconstructed-kvpressure.prom"),
        _page("trtllm/1.3/trtllm-1.3-reconstructed-kvpressure.prom"),
        at=PROMETHEUS,
        pages={
            METRICS: fixture("trtllm/1.3/trtllm-reconstructed-iteration_stats.json"),
            "/version": _json(version="1.3.0"),
            "/v1/models": _MODELS,
        },
    ),
    Engine(
        "triton",
        _page("triton/reconstructed/triton-trtllm-reconstructed-pause.prom"),
        _page("triton/reconstructed/triton-trtllm-reconstructed-pause.prom"),
    ),
    Engine(
        "tgi",
        _page("tgi/3.3/tgi-3.3-reconstructed-busy.prom"),
        _page("tgi/3.3/tgi-3.3-reconstructed-busy.prom"),
        pages={"/info": _json(version="3.3.0", model_id="m")},
    ),
    Engine(
        "lmdeploy",
        _page("lmdeploy/0.18.0/lmdeploy-0.18.0-collector-generated-idle.prom"),
        _page("lmdeploy/0.18.0/lmdeploy-0.18.0-collector-generated-idle.prom"),
        pages={"/is_sleeping": _json(is_sleeping=False), "/v1/models": _MODELS},
        asleep={"/is_sleeping": _json(is_sleeping=True)},
    ),
    *(
        Engine(name, _page(f"dynamo/1.6.1/dynamo-1.6.1-{name}.prom"), _page(f"dynamo/1.6.1/{idle}.prom"))
        for name, idle in (
            ("frontend-kvpressure", "dynamo-1.6.1-frontend-idle"),
            ("worker1-kvpressure", "dynamo-1.6.1-worker1-idle"),
            ("worker-trtllm-kvpressure", "dynamo-1.6.1-worker1-idle"),
        )
    ),
    _gateway("sglang-router-0.3.2/sglang-router-0.3.2-load.prom"),
    _gateway("smg-1.13.0/smg-1.13.0-real-worker-load.prom"),
    _gateway("smg-1.13.0/smg-1.13.0-engine_metrics.prom"),
    _gateway("vllm-router-0.1.17/vllm-router-0.1.17-load.prom"),
    _gateway("production-stack-0.1.12/production-stack-0.1.12-collector-load.prom"),
    _gateway("llm-d-epp-2026-08/llm-d-epp-2026-08-reconstructed-from-source.prom"),
)


class ForbiddenPageError(AssertionError):
    """A page was asked that may not be."""


class StrictServer:
    """One engine under the eyes of a test. `get` answers a path and query, or raises ForbiddenPageError."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.state = State.OK
        self.asked: list[str] = []
        tables = engine.tables
        self._never = tuple(entry for table in tables for entry in table.never)
        self._declared = {request for table in tables for request in declared(table)}
        self._told = False
        """Whether it has shown since its start whose page it is."""

    def get(self, request: str) -> Answer:
        """The answer in the present state."""
        self.asked.append(request)
        path = request.partition("?")[0]
        self._judge(request, path)
        state = self.state
        if state is State.REFUSED:
            self._told = False
            return Answer(path, 0.0, error=FailureKind.REFUSED)
        if state is State.LOADING:
            return self._answer(path, b'{"error":{"message":"Loading model"}}', 503)
        if state is State.LOCKED:
            return self._answer(path, b"who are you", 401)
        if state is State.SLOW:
            return Answer(path, 0.0, error=FailureKind.TIMEOUT)
        if state is State.ASLEEP and path in self.engine.asleep:
            return self._answer(path, self.engine.asleep[path])
        if path == self.engine.at:
            return self._metrics(path, state)
        body = self.engine.pages.get(path)
        return self._answer(path, b"Not Found", 404) if body is None else self._answer(path, body)

    def _metrics(self, path: str, state: State) -> Answer:
        if state is State.NO_PAGE:
            return self._answer(path, b"Not Found", 404)
        if state is State.BROKEN:
            return self._answer(path, b"Internal Server Error", 500)
        if state is State.WEB_PAGE:
            return self._answer(path, b"<html><title>Sign in</title></html>")
        if state is State.EMPTY:
            return self._answer(path, b"")
        self._told = True
        return self._answer(path, self.engine.idle if state is State.IDLE else self.engine.page)

    def _answer(self, path: str, body: bytes, status: int = 200) -> Answer:
        return Answer(path, 0.0, 0.01, status, {"server": self.engine.server}, body)

    def _judge(self, request: str, path: str) -> None:
        name = self.engine.name
        if request not in self._declared:
            raise ForbiddenPageError(f"{name}: {request} is not declared")
        if self.state is State.LOCKED:
            return  # it refuses before it does anything
        if path in self.engine.never or (self.state is State.ASLEEP and path in self.engine.asleep_never):
            raise ForbiddenPageError(f"{name}: {path} loads or wakes a model")
        # Whose server it is can only be found out by asking for the two pages that engines have.
        if not self._told and path in METRICS_PATHS:
            return
        for pattern, why in self._never:
            if fnmatchcase(path, pattern):
                raise ForbiddenPageError(f"{name}: {request} {why}")


def declared(table: EngineTable) -> set[str]:
    """Every path, with its query, that may be asked of a server of this engine."""
    sides = (side.request for side in table.side_pages)
    return {*METRICS_PATHS, *sides, *filter(None, (table.liveness_path,))}


def scrape(feed: TargetFeed, server: StrictServer, at: float) -> Observation:
    """One scrape as the live loop does it; at most 32 pages."""
    answers: list[Answer] = []
    while len(answers) < 32 and (request := feed.next_path(answers)) is not None:
        answers.append(server.get(request))
    assert len(answers) < 32, f"{server.engine.name}: no end: {server.asked[-5:]}"
    return feed.take(answers, at, 0.01)
