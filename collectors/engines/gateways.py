"""Routers and gateways: vLLM Production Stack router, sglang-router and SMG, vllm-router, llm-d's endpoint
picker, and pages on which a router joins the pages of its workers.

What they count is a view of the engines behind them, never an engine: it adds nothing to a fleet whose
engines are read themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from collectors.engines.base import EngineTable, SidePage
from collectors.engines.gateway_reader import GatewayReader, GatewayView, facts_memo
from collectors.engines.gateway_tables import ENDPOINT_PICKER, PRODUCTION_STACK, SMG, VLLM_ROUTER
from collectors.engines.mapping import Table
from collectors.engines.sglang_table import TABLE as SGLANG_ROWS
from collectors.engines.vllm import TABLE as VLLM_ROWS
from collectors.page import Layout
from enginetop.fleet.derive import OWN_MEANS
from enginetop.fleet.model import EngineKind, Role

_ONLY_CONFIG = "nothing: its policy and limits are set at its start"
_READS = "its view of requests and backends"
_ROUTED = ("vllm:", "vllm_")
_STACK_NAMES = frozenset(
    f"{prefix}{name}" for prefix in _ROUTED for name in ("current_qps", "healthy_pods_total", "avg_itl")
)
_FAN_OUT = "asks every worker"
_SPENDS = "generates tokens"


def _is_production_stack(layout: Layout) -> bool:
    if not _STACK_NAMES.isdisjoint(layout.names) or not _STACK_NAMES.isdisjoint(layout.types):
        return True
    return any(
        "server" in labels and name.startswith(_ROUTED)
        for name, labels in zip(layout.names, layout.labels, strict=True)
    )


def _gateway(
    view: GatewayView,
    recognise: Callable[[Layout], bool],
    never: tuple[tuple[str, str], ...],
    changes: str = _ONLY_CONFIG,
    side_pages: tuple[SidePage, ...] = (),
    hint: str = "",
    reads: str = _READS,
) -> EngineTable:
    facts_of = facts_memo(view)
    return EngineTable(
        kind=EngineKind.ROUTER,
        title=view.table.title,
        recognise=recognise,
        new_reader=lambda: GatewayReader(view, facts_of),
        side_pages=side_pages,
        tables=(view.table,),
        live_progress="none: a router counts requests, not tokens",
        sources={**view.table.sources(), **_backend_sources(view)},
        never=never,
        reads=reads,
        changes=changes,
        enable_hint=hint,
    )


def _backend_sources(view: GatewayView) -> dict[str, tuple[str, ...]]:
    if not view.health:
        return {}
    return {"backends_healthy": view.health, "backends_total": (f"number of {view.health[0]}",)}


def _joined(table: Table, title: str) -> EngineTable:
    """A page on which a router joins the pages of its workers, each series with the worker's address.

    An engine's own means are left out: only its reader knows when they mean nothing.
    """
    view = GatewayView(
        replace(
            table,
            title=title,
            rows=tuple(row for row in table.rows if row.measure not in OWN_MEANS.values()),
            rank_labels=(("worker_addr", "server"), *table.rank_labels),
            router_view=True,
        ),
        Role.ROUTER,
        model_labels=("model_name",),
    )
    return _gateway(
        view,
        lambda layout: any(
            "worker_addr" in labels and table.owns(name)
            for name, labels in zip(layout.names, layout.labels, strict=True)
        ),
        never=(),
    )


GATEWAYS: tuple[EngineTable, ...] = (
    _gateway(
        SMG,
        SMG.table.is_on,
        hint="SMG and sglang-router serve it on --prometheus-port (29000), not on the port of the API",
        changes="its list of workers, over its own API; policy and limits at its start",
        never=(
            ("/engine_metrics", f"{_FAN_OUT} for its whole page and joins them"),
            ("/get_loads", _FAN_OUT),
            ("/loads", _FAN_OUT),
            ("/flush_cache", "empties the caches of all workers"),
            ("/health_generate", _SPENDS),
        ),
    ),
    _gateway(
        VLLM_ROUTER,
        VLLM_ROUTER.table.is_on,
        hint="vllm-router serves it on --prometheus-port (29000), not on the port of the API",
        changes="its list of workers, over its own API; policy and limits at its start",
        never=(
            ("/get_loads", _FAN_OUT),
            ("/get_server_info", "asks a worker"),
            ("/health_generate", _SPENDS),
            ("/flush_cache", "empties the caches of all workers"),
            ("/add_worker", "changes the pool"),
            ("/remove_worker", "changes the pool"),
        ),
    ),
    _gateway(
        ENDPOINT_PICKER,
        ENDPOINT_PICKER.table.is_on,
        hint="it is served on --metrics-port (9090); with --metrics-endpoint-auth it needs a token",
        changes="nothing here: its configuration is a Kubernetes object",
        never=(("/debug/pprof/profile", "profiles the process for half a minute"),),
    ),
    _gateway(
        PRODUCTION_STACK,
        _is_production_stack,
        hint="the router serves it on the port of its API",
        reads=f"{_READS}; each look holds the router up for 0.1 s",
        changes="nothing here: its file of dynamic configuration",
        never=(
            ("/is_sleeping", "is passed on to a backend"),
            ("/sleep", "puts a backend to sleep"),
            ("/wake_up", "wakes a backend"),
        ),
        side_pages=(
            SidePage("/version", keep=("version",)),
            SidePage("/v1/models", keep=("data[].id",)),
        ),
    ),
    _joined(VLLM_ROWS, "vLLM workers behind a router"),
    _joined(SGLANG_ROWS, "SGLang workers behind a router"),
)
"""Every gateway, in the order in which a page is tried."""
