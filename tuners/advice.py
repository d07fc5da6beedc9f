"""Advice rows for every replica of a snapshot: the one door to the tuning rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any
from zlib import crc32

from enginetop.fleet.changing import changed
from enginetop.fleet.knobs import KnobSheet
from enginetop.fleet.model import EngineKind, Quality, ReplicaState
from enginetop.fleet.reading import ConfigValue
from enginetop.fleet.signals import KNOBS
from enginetop.fleet.snapshot import Advice, FleetSnapshot, Outlook, PoolAdvice, ReplicaSnapshot
from tuners import sequences, speculation, thinking, token_budget
from tuners.case import Case, Rule
from tuners.evidence import EvidenceLog
from tuners.knob_values import BUDGET, KNOB_SHEET, Knobs, knobs_of
from tuners.limits import SUSTAINED_SECONDS
from tuners.load import NEEDED
from tuners.pool_advice import pool_advice
from tuners.pool_memory import PoolMemory
from tuners.pool_thoughts import NOTHING_COUNTED, Counted, PoolThoughts
from tuners.thoughts import Thoughts
from tuners.what_if import what_if

Sheets = Callable[[], Mapping[str, KnobSheet]]
"""The newest knob sheets by target URL. Called at every snapshot; must return at once."""

_RULES = (token_budget.RULE, speculation.RULE, thinking.RULE, sequences.RULE)
RULES: Mapping[str, Rule] = MappingProxyType({rule.knob: rule for rule in _RULES})
"""The rule of each knob."""

QUIET_SECONDS = 10.0
"""Where no rule has called for anything for `SUSTAINED_SECONDS`, rules are asked once in so long."""
_ONE_PAGE_SECONDS = 1.9
"""To rules, pages that come closer together are one."""
_PAST_SECONDS = 60.0
_WITHOUT_KNOBS = frozenset({EngineKind.ROUTER, EngineKind.UNKNOWN})


def _no_sheets() -> Mapping[str, KnobSheet]:
    return MappingProxyType({})


@dataclass(slots=True)
class _Watch:
    """What is remembered of one replica: what it was last seen as, and what was made of it.

    `calling`: by knob what every page since then has called for. `config` is the configuration of `pages`
    with what the sheet tells in its place. `rows` are what the rules said when they were `asked`, of a page
    in that state and of that time, None where they have to be asked anew; `quiet_since` is the page since
    which none of them has called for anything. `thoughts` are those that they were told of then.
    """

    evidence: EvidenceLog = field(default_factory=EvidenceLog)
    knobs: Knobs = field(default_factory=Knobs)
    counted: Counted = NOTHING_COUNTED
    calling: dict[str, tuple[str, float]] = field(default_factory=dict)
    replica: ReplicaSnapshot | None = None
    thoughts: Thoughts | None = None
    sheet: KnobSheet | None = None
    pages: Mapping[str, ConfigValue] | None = None
    config: Mapping[str, ConfigValue] = field(default_factory=dict)
    shown: ReplicaSnapshot | None = None
    rows: tuple[Advice, ...] | None = None
    asked: tuple[ReplicaState, float | None] | None = None
    quiet_since: float | None = None

    def is_of_another(self, replica: ReplicaSnapshot) -> bool:
        """Whether what is remembered is not of this replica, but of one that had its address before."""
        began = None if self.replica is None else self.replica.first_page_at
        return began is not None and began != replica.first_page_at

    def rests(self, replica: ReplicaSnapshot) -> bool:
        """Whether the rows stand without asking the rules about this picture."""
        if self.rows is None or self.asked is None:
            return False
        (state, then), now = self.asked, replica.scraped_at
        if state is not replica.state or then is None or now is None or now < then:
            return False
        if self.quiet_since is None or now - self.quiet_since < SUSTAINED_SECONDS:
            return now - then < _ONE_PAGE_SECONDS
        turn = crc32(replica.target.url.encode()) % 1000 / 1000 * QUIET_SECONDS  # not all of a fleet at once
        return (now + turn) // QUIET_SECONDS == (then + turn) // QUIET_SECONDS


class Advisor:
    """Adds advice to snapshots; call it with every one, in time order, from one thread.

    Knob values are those of the knob sheet, where there is one: pages tell what an engine was started with.
    Each engine replica gets a row for every knob; routers and pages of no engine have none. What was learnt
    of a replica stays while it is away, and goes when snapshots lack it, or have another in its place.
    """

    def __init__(self, sheets: Sheets = _no_sheets) -> None:
        self._sheets = sheets
        self._watches: dict[str, _Watch] = {}
        self._pool_memory = PoolMemory()
        self._pools: tuple[object, tuple[PoolAdvice, ...]] | None = None

    def __call__(self, snapshot: FleetSnapshot) -> FleetSnapshot:
        """The snapshot with advice."""
        sheets = self._sheets()
        watches = [
            None if replica.engine in _WITHOUT_KNOBS else self._taken(replica, sheets.get(replica.target.url))
            for replica in snapshot.replicas
        ]
        known = [watch for watch in watches if watch is not None]
        if len(self._watches) > len(known):
            there = {replica.target.url for replica in snapshot.replicas}
            self._watches = {url: watch for url, watch in self._watches.items() if url in there}
        pooled = PoolThoughts([watch.counted for watch in known])
        replicas = tuple(
            replica if watch is None else _shown(watch, replica, pooled)
            for replica, watch in zip(snapshot.replicas, watches, strict=True)
        )
        return replace(snapshot, replicas=replicas, pools=self._pooled(replicas, snapshot.at))

    def _pooled(self, replicas: tuple[ReplicaSnapshot, ...], at: float) -> tuple[PoolAdvice, ...]:
        """Advice on the pools; worked out anew when a replica has other rows than before, or came or went."""
        made_of = [(one.advice, one.state, one.model, one.role, one.target.url) for one in replicas]
        if self._pools is None or self._pools[0] != made_of:
            self._pools = (made_of, pool_advice(replicas))
        return self._pool_memory.settled(self._pools[1], at)

    def _taken(self, replica: ReplicaSnapshot, sheet: KnobSheet | None) -> _Watch:
        """The watch of a replica, which has taken what is new of it."""
        watch = self._watches.get(replica.target.url)
        if watch is None or watch.is_of_another(replica):
            watch = self._watches[replica.target.url] = _Watch()
        if watch.replica is not replica or watch.sheet is not sheet:
            knobs = watch.knobs
            if (
                watch.pages is not replica.config
                or watch.sheet is not sheet
                or knobs.engine is not replica.engine
            ):
                if watch.pages != replica.config:
                    watch.rows = None
                watch.pages, watch.config = replica.config, _as_told(replica.config, sheet)
                knobs = knobs_of(replica, sheet)
            if watch.evidence.take(replica, knobs):
                watch.calling.clear()
                watch.rows = watch.quiet_since = None
            if knobs != watch.knobs:
                watch.rows = None
            watch.replica, watch.sheet, watch.shown, watch.knobs = replica, sheet, None, knobs
            if not watch.rests(replica):
                watch.rows = None
                group = (replica.model, replica.role, watch.knobs.thinking)
                watch.counted = Counted(group, watch.evidence.thoughts)
        return watch


def _shown(watch: _Watch, replica: ReplicaSnapshot, pooled: PoolThoughts) -> ReplicaSnapshot:
    """The replica with its rows; the same object as before while it and its sheet are."""
    if watch.shown is None:
        if watch.rows is None:
            watch.rows, watch.asked = _rows(watch, replica, pooled), (replica.state, replica.scraped_at)
        rows = watch.rows
        ask = _WhatIf(watch, replica.scraped_at)
        watch.shown = changed(replica, config=watch.config, advice=rows, what_if=ask)
    return watch.shown


def _as_told(pages: Mapping[str, ConfigValue], sheet: KnobSheet | None) -> Mapping[str, ConfigValue]:
    """A configuration with the knobs as all ranks confirm them."""
    if sheet is None or sheet.applied != sheet.total:
        return pages
    told = {
        row.name: ConfigValue(row.value, KNOB_SHEET)
        for row in sheet.knobs
        if row.name in KNOBS and row.value is not None
    }
    return MappingProxyType({**pages, **told})


class _WhatIf:
    """What a picture is told of a knob: watches keep what they knew at the newest page alone."""

    __slots__ = ("_at", "_watch")

    def __init__(self, watch: _Watch, at: float | None) -> None:
        self._watch, self._at = watch, at

    def divided(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """See `enginetop.fleet.kept.Divisible`."""
        return (self._watch,), (self._at,)

    def __call__(self, knob: str, value: int) -> Outlook:
        at, replica = self._at, self._watch.replica
        newest = None if replica is None else replica.scraped_at
        if replica is None or (at is not None and newest is not None and newest - at > _PAST_SECONDS):
            return Outlook(knob, value, "withheld", ("the evidence of a picture of the past is not kept",))
        return what_if(_case(self._watch, replica), knob, value)


def _case(watch: _Watch, replica: ReplicaSnapshot) -> Case:
    """What is known of the replica now. It takes more memory than the evidence that it is made from."""
    knobs, evidence = watch.knobs, watch.evidence
    return Case(
        replica,
        knobs,
        evidence.windows,
        evidence.recent,
        drafted_steps=evidence.drafted_steps(replica, knobs.drafts),
        drafted=evidence.drafted,
        minutes=evidence.minutes,
        thoughts=watch.thoughts,
    )


def _rows(watch: _Watch, replica: ReplicaSnapshot, pooled: PoolThoughts) -> tuple[Advice, ...]:
    watch.thoughts = pooled.of(watch.counted)
    knobs, case = watch.knobs, _case(watch, replica)
    rows = tuple([_with_path(_row(watch, RULES[knob], case), knobs) for knob in KNOBS])
    if watch.calling:
        watch.quiet_since = None
    elif watch.quiet_since is None:
        watch.quiet_since = replica.scraped_at
    return rows


def _with_path(row: Advice, knobs: Knobs) -> Advice:
    """The row with the path by which the knob could be changed here, where it proposes nothing itself."""
    path = knobs.path(row.knob) if row.proposed is None else None
    return row if path is None else changed(row, apply=path[0], via=path[1])


def _row(watch: _Watch, rule: Rule, case: Case) -> Advice:
    """The row of one rule, told how long its call has held."""
    called, at = rule.calls(case), case.replica.scraped_at
    if called is None or at is None:
        watch.calling.pop(rule.knob, None)
        return rule.advise(case)
    before = watch.calling.get(rule.knob)
    if before is None or before[0] != called or before[1] > at:  # a clock that was set back
        before = watch.calling[rule.knob] = (called, at)
    return rule.advise(case.held_for(at - before[1]))


def is_undecided(replica: ReplicaSnapshot) -> bool:
    """Whether watching this replica for longer may bring advice that is now withheld."""
    row = next((row for row in replica.advice if row.knob == BUDGET), None)
    if row is None or row.action != "withheld":
        return False
    return not any(replica.distribution(name).quality is Quality.UNSUPPORTED for name in NEEDED)
