"""Advice rows for every replica of a snapshot: the one door to the tuning rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from enginetop.fleet.knobs import KnobSheet
from enginetop.fleet.model import EngineKind, Quality
from enginetop.fleet.signals import KNOBS
from enginetop.fleet.snapshot import Advice, FleetSnapshot, ReplicaSnapshot
from tuners import token_budget
from tuners.evidence import BUDGET, EvidenceLog, knobs_of
from tuners.load import NEEDED, load_of

Sheets = Callable[[], Mapping[str, KnobSheet]]
"""The newest knob sheets by target URL. Called at every snapshot; must return at once."""

_WITHOUT_KNOBS = frozenset({EngineKind.ROUTER, EngineKind.UNKNOWN})


def _no_sheets() -> Mapping[str, KnobSheet]:
    return MappingProxyType({})


def not_built_yet(knob: str) -> Advice:
    """The row of a knob that no rule exists for."""
    return Advice(knob, "withheld", ("not built yet",))


@dataclass(slots=True)
class _Watch:
    """What is remembered of one replica: what it was last seen as, and what was made of it.

    `since`: every page since then has called for a smaller budget.
    """

    evidence: EvidenceLog = field(default_factory=EvidenceLog)
    since: float | None = None
    replica: ReplicaSnapshot | None = None
    sheet: KnobSheet | None = None
    shown: ReplicaSnapshot | None = None


class Advisor:
    """Adds advice to snapshots; call it with every one, in time order, from one thread.

    Each engine replica gets a row for every knob; routers and pages of no engine have none. What was learnt
    of a replica stays while it is away.
    """

    def __init__(self, sheets: Sheets = _no_sheets) -> None:
        self._sheets = sheets
        self._watches: dict[str, _Watch] = {}

    def __call__(self, snapshot: FleetSnapshot) -> FleetSnapshot:
        """The snapshot with advice."""
        sheets = self._sheets()
        replicas = tuple(
            replica
            if replica.engine in _WITHOUT_KNOBS
            else self._advised(replica, sheets.get(replica.target.url))
            for replica in snapshot.replicas
        )
        return replace(snapshot, replicas=replicas)

    def _advised(self, replica: ReplicaSnapshot, sheet: KnobSheet | None) -> ReplicaSnapshot:
        """The replica with its rows; the same object as before while it and its sheet are."""
        watch = self._watches.get(replica.target.url)
        if watch is None:
            watch = self._watches[replica.target.url] = _Watch()
        if watch.shown is None or watch.replica is not replica or watch.sheet is not sheet:
            row = _token_budget_row(watch, replica, sheet)
            rows = tuple(row if knob == BUDGET else not_built_yet(knob) for knob in KNOBS)
            watch.replica, watch.sheet, watch.shown = replica, sheet, replace(replica, advice=rows)
        return watch.shown


def _token_budget_row(watch: _Watch, replica: ReplicaSnapshot, sheet: KnobSheet | None) -> Advice:
    knobs = knobs_of(replica, sheet)
    if watch.evidence.take(replica, knobs):
        watch.since = None
    load = load_of(replica, knobs.drafts)
    calling = (
        not isinstance(load, str)
        and knobs.budget is not None
        and token_budget.calls_for_less(load, knobs.budget)
    )
    if not calling:
        watch.since = None
    elif watch.since is None:
        watch.since = replica.scraped_at
    held = 0.0 if watch.since is None else (replica.scraped_at or watch.since) - watch.since
    return token_budget.advise(replica, knobs, watch.evidence.windows, held)


def is_undecided(replica: ReplicaSnapshot) -> bool:
    """Whether watching this replica for longer may bring advice that is now withheld."""
    row = next((row for row in replica.advice if row.knob == BUDGET), None)
    if row is None or row.action != "withheld":
        return False
    return not any(replica.distribution(name).quality is Quality.UNSUPPORTED for name in NEEDED)
