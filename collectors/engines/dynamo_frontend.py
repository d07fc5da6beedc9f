"""NVIDIA Dynamo's frontend and routers, 0.7 to 1.6: what they see of the workers behind them.

`DYN_METRICS_PREFIX` renames everything of the frontend, so that its prefix is found by what is behind it. On
these pages `worker_id` is the frontend's own; the worker that a series is about is `router_worker_id`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from collectors.engines.base import Look, Sides
from collectors.engines.dynamo_frontend_table import ESTIMATED, FIRST_REQUEST, FRONTEND, ROUTER
from collectors.engines.dynamo_worker import COMPONENT, of_process
from collectors.engines.identities import identity
from collectors.engines.mapping import LayoutMemo
from collectors.engines.matching import Plan, compile_layout
from collectors.engines.picks import Pick, first, settings_on
from collectors.json_fields import items, number, text
from collectors.page import Layout, Page
from enginetop.fleet.foreign_json import field_at, model_name
from enginetop.fleet.frozen import frozen
from enginetop.fleet.model import EngineKind, Quality, Role
from enginetop.fleet.reading import Absence, ConfigValue, Identity, Reading, Series
from enginetop.fleet.workers import worker_from_decimal, worker_from_hex

OPENAPI = "/openapi.json"
BUSY_THRESHOLD = "/busy_threshold"
THRESHOLDS = (
    "active_decode_blocks_threshold",
    "active_prefill_tokens_threshold",
    "active_prefill_tokens_threshold_frac",
)

_MARKERS = ("disconnected_clients", "model_context_length", "model_kv_cache_block_size", "queued_requests")
"""Names that only a frontend has; some are there before the first request."""

_SETTINGS = {
    "max_model_len": "model_context_length",
    "block_size": "model_kv_cache_block_size",
    "num_gpu_blocks": "model_total_kv_blocks",
    "max_num_seqs": "model_max_num_seqs",
    "max_num_batched_tokens": "model_max_num_batched_tokens",
}
_STREAMING = Series("requests_running", "", "dynamo requests past their first token")
_READY = Series("models_ready", "", "dynamo models ready")
_MOVING = (
    "output_tokens_total",
    "requests_total",
    "inter_token_latency_seconds_count",
    "time_to_first_token_seconds_count",
)
_REGISTERED = COMPONENT + "router_worker_registered"
_PLANE_IN_FLIGHT = "dynamo_request_plane_inflight_requests"


def frontend_prefix(layout: Layout) -> str | None:
    """The prefix of the frontend's series on the page, None where it is no frontend's page."""
    for marker in _MARKERS:
        for name in layout.names:
            if name.endswith(marker) and not name.startswith(COMPONENT):
                return name.removesuffix(marker)
    return None


def has_router_series(layout: Layout) -> bool:
    """Whether the page holds a router's own view of requests."""
    return any(name.startswith(COMPONENT + "router_requests") for name in layout.names)


@frozen(eq=False)
class _Facts:
    """What the lines of a page tell apart from its numbers.

    `active`, `queued` and `ready` are the gauges of all models; `registered` pairs the sample that says that
    a worker is registered with its id and whether it is a prefill worker.
    """

    plan: Plan
    role: Role
    model: str | None
    active: tuple[int, ...]
    queued: tuple[int, ...]
    ready: tuple[int, ...]
    settings: Mapping[str, Pick]
    registered: tuple[tuple[int, int, bool], ...]
    live: bool


def _describe(layout: Layout) -> _Facts:
    prefix = frontend_prefix(layout)
    table = ROUTER if prefix is None else replace(FRONTEND, prefixes=(prefix,))
    own = table.prefixes[0]
    models = {
        model
        for name, labels in zip(layout.names, layout.labels, strict=True)
        if name.startswith((own, COMPONENT)) and (model := model_name(labels.get("model"))) is not None
    }

    def gauges(*names: str) -> tuple[int, ...]:
        for name in names:
            if found := tuple(i for i, one in enumerate(layout.names) if one == name):
                return found
        return ()

    active = gauges(own + "active_requests", own + "inflight_requests", _PLANE_IN_FLIGHT)
    ready = gauges(own + "model_ready")
    moving = [i for name in _MOVING for i in gauges(own + name)]
    plan = compile_layout(
        table,
        layout,
        extra=(*((_STREAMING,) if active else ()), *((_READY,) if prefix is not None else ())),
        estimated=ESTIMATED,
        absent={"requests_running": Absence(Quality.UNKNOWN, FIRST_REQUEST)},
    )
    plan = of_process(plan, _process(layout))
    if moving:  # the event loop's own counters prove nothing
        plan = replace(plan, progress_picks=tuple(sorted(moving, key=lambda i: layout.keys[i])))
    return _Facts(
        plan=plan,
        role=Role.ROUTER if prefix is None else Role.GATEWAY,
        model=next(iter(models)) if len(models) == 1 else None,
        active=active,
        queued=gauges(own + "queued_requests"),
        ready=ready,
        settings={name: first(layout, (own + raw,)) for name, raw in _SETTINGS.items()}
        if len(models) == 1
        else {},
        registered=_registered(layout),
        live=bool(gauges(own + "output_tokens_total", own + "output_tokens")),
    )


facts_of = LayoutMemo(_describe)


def _registered(layout: Layout) -> tuple[tuple[int, int, bool], ...]:
    found = []
    for index, (name, labels) in enumerate(zip(layout.names, layout.labels, strict=True)):
        worker = worker_from_decimal(labels.get("router_worker_id")) if name == _REGISTERED else None
        if worker is not None:
            found.append((index, worker, labels.get("worker_type") == "prefill"))
    return tuple(found)


def _process(layout: Layout) -> int | None:
    """The frontend's own id."""
    for name, labels in zip(layout.names, layout.labels, strict=True):
        if name.startswith(COMPONENT) and (worker := worker_from_hex(labels.get("worker_id"))) is not None:
            return worker
    return None


class FrontendReader:
    """Readings of a frontend or router; remembers if it ever had a model, and if it has no thresholds."""

    def __init__(self) -> None:
        self._had_model = False
        self._no_thresholds = False
        self._started: float | None = None

    def wants_side(self, path: str, page: Page) -> bool:
        """A frontend's pages; a router has none, and a path that is not there counts as a failed request."""
        if facts_of(page.layout).role is not Role.GATEWAY:
            return False
        return path != BUSY_THRESHOLD or not self._no_thresholds

    def read(self, look: Look, page: Page) -> Reading:
        """The reading of a page."""
        facts = facts_of(page.layout)
        plan = facts.plan
        started = plan.start_token(page)
        if started != self._started:
            self._started, self._no_thresholds = started, False
        elif BUSY_THRESHOLD not in look.sides:
            self._no_thresholds = True
        return plan.reading(
            look.at,
            page,
            plan.values(page, self._computed(facts, page)),
            _identity(facts, look.sides),
            live_progress=facts.live,
            config={**settings_on(page, facts.settings), **_thresholds(look.sides, facts.model)},
            workers=_workers(facts, page),
        )

    def _computed(self, facts: _Facts, page: Page) -> tuple[float, ...]:
        computed = []
        if facts.active:
            active, queued = _sum(page, facts.active), _sum(page, facts.queued)
            computed.append(max(active - queued, 0.0) if facts.queued else active)
        if facts.role is Role.GATEWAY:
            self._had_model = self._had_model or bool(facts.ready)
            # The gauge of a model without workers does not go to 0, it vanishes.
            none = 0.0 if self._had_model else math.nan
            computed.append(_sum(page, facts.ready) if facts.ready else none)
        return tuple(computed)


def _identity(facts: _Facts, sides: Sides) -> Identity:
    return identity(
        EngineKind.DYNAMO,
        (facts.model, "label model"),
        version=(text(sides.get(OPENAPI), "info", "version"), OPENAPI),
        role=(facts.role, ""),
        product=(FRONTEND if facts.role is Role.GATEWAY else ROUTER).title,
    )


def _sum(page: Page, places: tuple[int, ...]) -> float:
    return sum(page.values[i] for i in places)


def _workers(facts: _Facts, page: Page) -> Mapping[int, Role]:
    """The roles of the registered workers: aggregated ones are called `decode` too while none prefills."""
    registered = [(worker, prefill) for i, worker, prefill in facts.registered if page.values[i] > 0]
    other = Role.DECODE if any(prefill for _, prefill in registered) else Role.AGGREGATED
    return MappingProxyType({worker: Role.PREFILL if prefill else other for worker, prefill in registered})


def _thresholds(sides: Sides, model: str | None) -> Mapping[str, ConfigValue]:
    """The admission limits of the model, as they are now in this frontend."""
    for row in items(sides.get(BUSY_THRESHOLD), "thresholds"):
        if model is not None and field_at(row, "model") == model:
            limits = {name: number(row, name) for name in THRESHOLDS}
            return {
                name: ConfigValue(value, BUSY_THRESHOLD)
                for name, value in limits.items()
                if value is not None
            }
    return {}
