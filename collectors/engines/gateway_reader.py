"""How the page of any router or gateway is read: its own view of requests, and of the backends behind it.

A backend is a row of the page, like a rank of an engine: what the gateway tells of it goes by its address. A
backend that the gateway calls unhealthy keeps its row, but what it said last is not a number any more; one
that is not in service discovery is left out, since its series are leftovers.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from types import MappingProxyType

from collectors.engines.base import Look, PageReader
from collectors.engines.identities import identity
from collectors.engines.mapping import LayoutMemo, Table
from collectors.engines.matching import Plan, compile_layout
from collectors.json_fields import items, text
from collectors.page import Layout, Page
from enginetop.fleet.foreign_json import model_name
from enginetop.fleet.frozen import frozen
from enginetop.fleet.model import EngineKind, Role
from enginetop.fleet.reading import UNHEALTHY_BACKENDS, ConfigValue, Reading, Series

IN_FLIGHT_NOTE = "in flight through the gateway: those that wait in an engine are among them"

_NOW = frozenset({"requests_running", "requests_waiting", "kv_usage_ratio"})
"""What an unhealthy backend does not tell any more."""

_NO_MODELS = frozenset({"default", "other", "unknown"})
"""Words that gateways put where a request named no model of theirs."""

_LEFT_OUT = ""
_MOST_LISTED = 8
_SEEN = "the gateway's health gauges"
_BACKENDS = (
    Series("backends_healthy", "", "backends that are healthy"),
    Series("backends_total", "", "backends with a health gauge"),
)


@frozen
class GatewayView:
    """What is declared about one gateway beside its rows.

    `health` names the gauges that are 1 for a healthy backend and 0 for another (families, newest first);
    `backend_labels` are the labels that hold its address. `discovered_only`: those gauges list every backend
    of service discovery. `in_flight` are names of gauges of running requests that count waiting ones too;
    `instead` gives by such a name the one that is read in its place where a backend has it. `notes` say why a
    measure is an estimate.
    """

    table: Table
    role: Role
    health: tuple[str, ...] = ()
    backend_labels: tuple[str, ...] = ()
    discovered_only: bool = False
    in_flight: frozenset[str] = frozenset()
    instead: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    model_labels: tuple[str, ...] = ("model",)
    notes: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def backend(self, labels: Mapping[str, str]) -> str:
        """The address of the backend that a series is about, empty for none."""
        return next((labels[label] for label in self.backend_labels if labels.get(label)), "")


@frozen(eq=False)
class _Facts:
    """What the lines of a page tell apart from its numbers.

    `health` is by backend the sample that says whether it is healthy, `doubted` pairs a place in the values
    with such a sample.
    """

    plan: Plan
    model: str | None
    health: Mapping[str, int]
    doubted: tuple[tuple[int, int], ...]


class GatewayReader(PageReader):
    """Readings of one gateway."""

    def __init__(self, view: GatewayView, facts_of: LayoutMemo[_Facts]) -> None:
        self._view = view
        self._facts_of = facts_of

    def read_page(self, look: Look, page: Page) -> Reading:
        """See `PageReader`."""
        facts = self._facts_of(page.layout)
        plan = facts.plan
        unhealthy = [name for name, index in facts.health.items() if page.values[index] != 1]
        total = len(facts.health)
        values = plan.values(page, (total - len(unhealthy), total) if total else ())
        for at, health in facts.doubted:
            if page.values[health] != 1:
                values[at] = math.nan
        models = items(look.sides.get("/v1/models"), "data")
        listed = model_name(text(models, 0, "id")) if len(models) == 1 else None
        return plan.reading(
            look.at,
            page,
            values,
            identity(
                EngineKind.ROUTER,
                (facts.model, "labels of the metrics page"),
                (listed, "/v1/models"),
                version=(text(look.sides.get("/version"), "version"), "/version"),
                role=(self._view.role, ""),
                product=self._view.table.title,
            ),
            live_progress=False,
            config={UNHEALTHY_BACKENDS: ConfigValue(_listed(unhealthy), _SEEN)} if total else {},
        )


def _listed(backends: Sequence[str]) -> str:
    """Some addresses in words, in a stable order."""
    if len(backends) > _MOST_LISTED:
        return f"{', '.join(sorted(backends)[:_MOST_LISTED])} and {len(backends) - _MOST_LISTED} more"
    return ", ".join(sorted(backends)) or "none"


def facts_memo(view: GatewayView) -> LayoutMemo[_Facts]:
    """What pages of this gateway tell apart from their numbers, worked out once a layout."""
    return LayoutMemo(lambda layout: _describe(view, layout))


def _describe(view: GatewayView, layout: Layout) -> _Facts:
    health = _health(view, layout)
    layout = _without_leftovers(view, layout, health)
    extra = _BACKENDS if health else ()
    plan = compile_layout(view.table, layout, extra=extra)
    notes = dict(view.notes)
    if any(layout.names[index] in view.in_flight for index in plan.picks):
        notes["requests_running"] = IN_FLIGHT_NOTE
    if notes:
        plan = compile_layout(view.table, layout, extra=extra, estimated=notes)
    doubted = tuple(
        (at, health[backend])
        for at, (index, one) in enumerate(zip(plan.picks, plan.columns.series, strict=False))
        if one.measure in _NOW and (backend := view.backend(layout.labels[index])) in health
    )
    return _Facts(plan, _only_model(view, layout), health, doubted)


def _health(view: GatewayView, layout: Layout) -> dict[str, int]:
    """By backend the sample that says whether it is healthy."""
    for name in view.health:
        found = {
            view.backend(labels): index
            for index, (one, labels) in enumerate(zip(layout.names, layout.labels, strict=True))
            if one == name and view.backend(labels)
        }
        if found:
            return found
    return {}


def _without_leftovers(view: GatewayView, layout: Layout, known: Collection[str]) -> Layout:
    """The layout without series of backends that are gone, and without those that another stands for."""
    present = {(name, view.backend(labels)) for name, labels in zip(layout.names, layout.labels, strict=True)}

    def kept(name: str, labels: Mapping[str, str]) -> bool:
        backend = view.backend(labels)
        if (view.instead.get(name, _LEFT_OUT), backend) in present:
            return False
        return not (view.discovered_only and known and backend and backend not in known)

    names = tuple(
        name if kept(name, labels) else _LEFT_OUT
        for name, labels in zip(layout.names, layout.labels, strict=True)
    )
    return layout if names == layout.names else Layout(names, layout.labels, layout.keys, layout.types)


def _only_model(view: GatewayView, layout: Layout) -> str | None:
    """The model that the gateway's own series name, None when they name several or none."""
    found = {
        name
        for one, labels in zip(layout.names, layout.labels, strict=True)
        if view.table.owns(one)
        for label in view.model_labels
        if (name := model_name(labels.get(label))) is not None and name not in _NO_MODELS
    }
    return found.pop() if len(found) == 1 else None
