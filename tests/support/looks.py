"""Looks at a made-up engine, for the tests of trackers: pages with few series, and failures."""

from __future__ import annotations

from collections.abc import Mapping

from enginetop.fleet.model import EngineKind, Role
from enginetop.fleet.observation import Failure, FailureKind, Observation
from enginetop.fleet.reading import ConfigValue, EngineFlags, Identity, Reading
from tests.support.history_pages import INF, columns, histogram, value

SHAPE = columns(
    value("requests_running"),
    value("requests_waiting"),
    value("kv_usage_ratio"),
    value("generation_tokens"),
    value("preemptions"),
    value("requests_finished"),
    *histogram("e2e_seconds", (10.0, 20.0, INF)),
)

VLLM = Identity(EngineKind.VLLM, engine_version="0.32.0", model="llama")
ROUTER = Identity(EngineKind.ROUTER, role=Role.ROUTER)


def page(
    at: float,
    *,
    running: float = 1.0,
    waiting: float = 0.0,
    kv: float = 0.5,
    tokens: float = 0.0,
    preemptions: float = 0.0,
    finished: float = 0.0,
    e2e: tuple[float, float, float] = (0.0, 0.0, 0.0),
    start: float | None = None,
    live: bool = True,
    identity: Identity = VLLM,
    flags: EngineFlags = EngineFlags(),  # noqa: B008  # frozen
    config: Mapping[str, ConfigValue] | None = None,
    metrics_page: bool = True,
) -> Observation:
    """A good page. `e2e` holds the cumulative counts up to 10 s, 20 s and beyond; each lasts 5 s."""
    count = e2e[-1]
    values = (running, waiting, kv, tokens, preemptions, finished, *e2e, 5.0 * count, count)
    moved = int(tokens + 1000 * preemptions + 10_000 * finished + 1_000_000 * count)
    reading = Reading(
        at,
        SHAPE,
        values,
        start_token=start,
        progress_token=moved,
        live_progress=live,
        identity=identity,
        flags=flags,
        config=config or {},
        bad_lines=0,
    )
    return Observation(at, 0.25, reading=reading, metrics_page=metrics_page)


def failure(at: float, kind: FailureKind, detail: str = "", *, answered: bool = False) -> Observation:
    """A look that brought no good page."""
    return Observation(at, 0.25, failure=Failure(kind, at, detail, answered))


def nothing_new(at: float) -> Observation:
    """An answer that changes nothing."""
    return Observation(at, 0.25)
