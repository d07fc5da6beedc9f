"""NVIDIA Dynamo, 0.7 to 1.6: frontends, routers, workers, planner and block manager.

Which of them a page belongs to is told by its names. A worker that passes the series of an engine through is
read by that engine's table instead (`dynamo_worker.behind_dynamo`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import Enum, auto
from types import MappingProxyType

from collectors.engines.base import EngineTable, Look, PageReader, SidePage
from collectors.engines.dynamo_card import METADATA, METADATA_PAGE
from collectors.engines.dynamo_frontend import (
    BUSY_THRESHOLD,
    OPENAPI,
    THRESHOLDS,
    FrontendReader,
    frontend_prefix,
    has_router_series,
)
from collectors.engines.dynamo_frontend_table import FRONTEND, FRONTEND_PREFIX
from collectors.engines.dynamo_worker import TABLE, WORKER_NEVER, has_worker_series, read_worker
from collectors.engines.mapping import LayoutMemo, Row, Table
from collectors.engines.matching import Plan, compile_layout
from collectors.page import Layout, Page
from enginetop.fleet.frozen import frozen
from enginetop.fleet.model import EngineKind, Role
from enginetop.fleet.reading import ConfigValue, Identity, Reading

_OWN = ("dynamo_", "kvbm_")
_PLANNER = "dynamo_planner_"
_KVBM = ("kvbm_",)

CONTROL = Table(
    title="Dynamo planner or block manager",
    prefixes=(_PLANNER,),
    rows=(
        Row("prefill_replicas", ("num_prefill_replicas",)),
        Row("prefill_replicas_wanted", ("predicted_num_prefill_replicas",)),
        Row("decode_replicas", ("num_decode_replicas",)),
        Row("decode_replicas_wanted", ("predicted_num_decode_replicas",)),
        Row("kv_offload_blocks", ("offload_blocks_d2h",), prefixes=_KVBM),
        Row("kv_offload_blocks", ("offload_blocks_d2d",), prefixes=_KVBM),
        Row("kv_offload_blocks", ("offload_blocks_d2o",), prefixes=_KVBM),
        Row("kv_onload_blocks", ("onboard_blocks_h2d",), prefixes=_KVBM),
        Row("kv_onload_blocks", ("onboard_blocks_d2d",), prefixes=_KVBM),
        Row("kv_onload_blocks", ("onboard_blocks_o2d",), prefixes=_KVBM),
        Row("kv_host_hit_ratio", ("host_cache_hit_rate",), prefixes=_KVBM),
        Row("kv_disk_hit_ratio", ("disk_cache_hit_rate",), prefixes=_KVBM),
    ),
)

_TARGETS = {
    "sla_target_ttft_ms": _PLANNER + "sla_target_ttft_ms",
    "sla_target_itl_ms": _PLANNER + "sla_target_itl_ms",
}
_PRODUCTS = (
    (_PLANNER, "Dynamo planner"),
    (*_KVBM, "Dynamo block manager"),
    ("dynamo_kvindexer_", "Dynamo indexer"),
)
_DECISIONS = ("load_scaling_decision", "throughput_scaling_decision")


class _Part(Enum):
    FRONTEND = auto()
    WORKER = auto()
    CONTROL = auto()


def _part(layout: Layout) -> _Part:
    if frontend_prefix(layout) is not None:
        return _Part.FRONTEND
    if has_worker_series(layout):
        return _Part.WORKER
    return _Part.FRONTEND if has_router_series(layout) else _Part.CONTROL


_part_of = LayoutMemo(_part)


@frozen
class _Control:
    """The lines of a page that is no engine's: targets are gauges, of a decision's states one is 1."""

    plan: Plan
    product: str
    targets: Mapping[str, int]
    decisions: tuple[tuple[str, str, int], ...]


def _describe(layout: Layout) -> _Control:
    targets: dict[str, int] = {}
    decisions: list[tuple[str, str, int]] = []
    for index, (name, labels) in enumerate(zip(layout.names, layout.labels, strict=True)):
        for setting, wanted in _TARGETS.items():
            if name == wanted:
                targets[setting] = index
        decision = name.removeprefix(_PLANNER)
        if decision in _DECISIONS and (state := labels.get(name)):
            decisions.append((decision, state, index))
    product = next((title for prefix, title in _PRODUCTS if _has(layout, prefix)), "Dynamo")
    return _Control(compile_layout(CONTROL, layout), product, MappingProxyType(targets), tuple(decisions))


def _has(layout: Layout, prefix: str) -> bool:
    return any(name.startswith(prefix) for name in layout.names)


_control_of = LayoutMemo(_describe)


def recognise(layout: Layout) -> bool:
    """Whether the page holds series of Dynamo's own."""
    return any(name.startswith(_OWN) for name in layout.names)


class DynamoReader(PageReader):
    """Readings of one Dynamo process."""

    def __init__(self) -> None:
        self._frontend = FrontendReader()

    def wants_side(self, path: str, page: Page) -> bool:
        """A frontend's pages of a frontend, the cards of a worker; other parts have none."""
        part = _part_of(page.layout)
        if path == METADATA:
            return part is _Part.WORKER
        return part is _Part.FRONTEND and self._frontend.wants_side(path, page)

    def read_page(self, look: Look, page: Page) -> Reading:
        """See `PageReader`."""
        part = _part_of(page.layout)
        if part is _Part.WORKER:
            return read_worker(look, page)
        return self._frontend.read(look, page) if part is _Part.FRONTEND else _read_control(look, page)


def _read_control(look: Look, page: Page) -> Reading:
    facts = _control_of(page.layout)
    config = {
        setting: ConfigValue(page.values[index], page.layout.names[index])
        for setting, index in facts.targets.items()
        if 0 < page.values[index] < math.inf
    }
    config |= {
        decision: ConfigValue(state, _PLANNER + decision)
        for decision, state, index in facts.decisions
        if page.values[index] == 1
    }
    # Neither an engine nor in the way of requests: like a gateway it adds nothing to sums over engines.
    identity = Identity(EngineKind.DYNAMO, role=Role.GATEWAY, product=facts.product)
    return facts.plan.reading(look.at, page, facts.plan.values(page), identity, config=config)


def _sources() -> Mapping[str, tuple[str, ...]]:
    """Names on a frontend's page first, then on a worker's, then on the others."""
    found: dict[str, tuple[str, ...]] = {
        "requests_running": (
            f"{FRONTEND_PREFIX}active_requests - {FRONTEND_PREFIX}queued_requests",
            "dynamo_component_inflight_requests",
        ),
        "models_ready": (f"{FRONTEND_PREFIX}model_ready",),
        "kv_capacity_tokens": (f"{METADATA} total_kv_blocks x kv_cache_block_size",),
    }
    for table in (FRONTEND, TABLE, CONTROL):
        for measure, names in table.sources().items():
            found[measure] = (*found.get(measure, ()), *names)
    return MappingProxyType(found)


DYNAMO = EngineTable(
    kind=EngineKind.DYNAMO,
    title="Dynamo",
    recognise=recognise,
    new_reader=DynamoReader,
    side_pages=(
        METADATA_PAGE,
        SidePage(OPENAPI, keep=("info.version",)),
        SidePage(
            BUSY_THRESHOLD,
            keep=("thresholds[].model", *(f"thresholds[].{name}" for name in THRESHOLDS)),
            every_scrape=True,
        ),
    ),
    liveness_path="/live",
    enable_hint="a worker serves it with DYN_SYSTEM_PORT, the planner with PLANNER_PROMETHEUS_PORT",
    tables=(FRONTEND, TABLE, CONTROL),
    live_progress="output_tokens of the frontend, or the passed-through series of the engine, else none",
    sources=_sources(),
    never=(
        ("/health", "calls itself healthy without any worker and lists dead ones: an answer that misleads"),
        ("/v1/realtime", "opens a session that generates"),
        *WORKER_NEVER,
        ("/v1/rl/workers", "asks every worker"),
    ),
    reads="frontend, router, workers, planner, block manager; worker ids joined",
    changes="/busy_threshold of each frontend (live, lost on restart); the rest at start",
)
