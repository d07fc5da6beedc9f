"""An engine behind a Dynamo worker, whose series stand on the worker's page.

It is read by its own table; what it does not tell is added from the worker's series, and never both.
"""

from __future__ import annotations

from array import array
from dataclasses import replace
from types import MappingProxyType
from weakref import WeakKeyDictionary

from collectors.engines.base import EngineTable, Look, Reader, always
from collectors.engines.dynamo_card import METADATA, METADATA_PAGE, NO_CARD, card_of
from collectors.engines.dynamo_worker import (
    CAPACITY,
    ESTIMATED,
    TABLE,
    WORKER_NEVER,
    of_process,
    worker_facts,
    worker_identity,
)
from collectors.engines.identities import DYNAMO, NAMES_OF_PAGE
from collectors.engines.matching import Plan, compile_layout
from collectors.page import Layout, Page
from enginetop.fleet.frozen import frozen
from enginetop.fleet.model import Role
from enginetop.fleet.observation import Failure
from enginetop.fleet.reading import Columns, Reading, Series


@frozen(eq=False)
class _Addition:
    """The engine's columns with those of Dynamo's series that the engine lacks; `places` in the own plan."""

    columns: Columns
    plan: Plan
    places: tuple[int, ...]


_additions: WeakKeyDictionary[Columns, dict[bool, _Addition]] = WeakKeyDictionary()


def _addition(columns: Columns, layout: Layout, *, with_capacity: bool) -> _Addition:
    known = _additions.setdefault(columns, {})
    if with_capacity not in known:
        known[with_capacity] = _combined(columns, layout, (CAPACITY,) if with_capacity else ())
    return known[with_capacity]


def _combined(columns: Columns, layout: Layout, extra: tuple[Series, ...]) -> _Addition:
    told = {series.measure for series in columns.series}
    compiled = compile_layout(TABLE, layout, extra=extra, estimated=ESTIMATED)
    plan = of_process(compiled, worker_facts(layout).worker)
    own = plan.columns
    places = tuple(i for i, series in enumerate(own.series) if series.measure not in told)
    added = {own.series[i].measure for i in places}
    ranks = {rank: own.ranks[rank] for i in places if (rank := own.series[i].rank) in own.ranks}
    combined = replace(
        columns,
        series=(*columns.series, *(own.series[i] for i in places)),
        ranks=MappingProxyType({**ranks, **columns.ranks}),
        absent=MappingProxyType({m: why for m, why in columns.absent.items() if m not in added}),
        estimated=MappingProxyType(
            {**columns.estimated, **{m: why for m, why in own.estimated.items() if m in added}}
        ),
    )
    return _Addition(combined, plan, places)


class PassThroughReader:
    """Readings of an engine behind a Dynamo worker: the engine's own, and what Dynamo adds."""

    def __init__(self, engine: Reader) -> None:
        self._engine = engine

    def wants_side(self, path: str, page: Page) -> bool:
        """Cards alone: the engine's own pages are not at a worker's system port."""
        del page
        return path == METADATA

    def read(self, look: Look) -> Reading | Failure:
        """The engine's reading with the measures that it lacks."""
        outcome = self._engine.read(look)
        page = look.page
        if page is None or isinstance(outcome, Failure):
            return outcome
        facts = worker_facts(page.layout)
        card = card_of(look.sides.get(METADATA), facts.worker) or NO_CARD
        addition = _addition(outcome.columns, page.layout, with_capacity=card.capacity_tokens is not None)
        own = addition.plan.values(page, card.computed)
        values = array("d", outcome.values)
        values.extend([own[place] for place in addition.places])
        told = outcome.identity
        own_identity = worker_identity(facts, card)
        return replace(
            outcome,
            columns=addition.columns,
            values=values,
            start_token=addition.plan.start_token(page)
            if outcome.start_token is None
            else outcome.start_token,
            identity=replace(
                told,
                model=told.model or own_identity.model,
                role=own_identity.role if card.role or told.role is Role.AGGREGATED else told.role,
                stack=DYNAMO,
                worker=facts.worker,
                sources={**own_identity.sources, **told.sources, "stack": NAMES_OF_PAGE},
            ),
            config={**card.config, **facts.config(page), **outcome.config},
        )


def behind_dynamo(table: EngineTable) -> EngineTable:
    """An engine's table for pages of Dynamo workers: none of the engine's own paths exist there."""
    return replace(
        table,
        new_reader=lambda: PassThroughReader(table.new_reader()),
        side_pages=(METADATA_PAGE,),
        may_read_metrics=always,
        server_header="",
        liveness_path="/live",
        enable_hint="DYN_SYSTEM_PORT of the worker serves it",
        never=WORKER_NEVER,
        changes="at the start of its worker",
    )
