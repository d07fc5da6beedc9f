"""How tuners find settings in `bench.tuning`: ours in a closed loop, and a rule of thumb beside it.

A round of ours: watch the pages of a pool until there is advice, try it on replicas beside as many with the
old settings, restart the pool with it if the judge of changes does not find it worse, else leave the pool as
it is. The pool and what is remembered of it go on from round to round. What was found worse is tried once
more when nothing else is wanted: of changes that do nothing one trial in twenty ends as `worse`, and two in a
row once in four hundred.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from bench.tuning_space import EPOCH, WARM_UP_SECONDS, Settings, Subject
from enginetop.fleet.change import Verdict
from enginetop.fleet.knobs import KnobSheet
from enginetop.fleet.snapshot import Advice, FleetSnapshot
from enginetop.simulator.fleet_model import FleetModel
from enginetop.simulator.scenario import Scenario
from enginetop.simulator.stepped import SteppedWorld
from tuners.advice import Advisor
from tuners.control.judge import Block, judge
from tuners.control.knob_api import HttpKnobClient
from tuners.control.settings import ControlSettings
from tuners.knob_values import THINKING
from tuners.thought_log import KEPT_SECONDS

MOST_CHANGES = 4
_MOST_TRIALS = 2
"""Of a change that was found worse; each counts as a change."""
_THINKING_REPLICAS = 4
"""Of a pool that is watched, and of each side of a trial, at least, where requests think: their lengths are
counted together, so that four tell in a third of a day what two tell in most of one.
"""
_TICK_SECONDS, _SHEET_SECONDS = 4.0, 60.0
"""How often pages and knob sheets are read."""
_THUMB_SECONDS = 240.0
_WATCHED_SECONDS, _MOST_WATCHED_SECONDS, _LONGEST_WATCHED_SECONDS = 900.0, 3900.0, KEPT_SECONDS
"""How long advice is waited for: the longer one while more evidence may bring some, the longest while the
rule for thoughts says that more requests will tell.
"""
_ORDER = ("max_num_seqs", "num_speculative_tokens", "thinking_token_budget", "max_num_batched_tokens")
"""Which knob goes first where several have advice: what destroys work before what makes it slow."""
_CONTROL = ControlSettings()
_LOOKS = {30: 0.15, 60: 0.15, 120: 0.3, 240: 0.4}
"""Blocks after which a trial is judged, and ended unless it is inconclusive, with their shares of alpha
(Bonferroni), so that looking often does not err more often than once. Replicas of a saturated pool differ by
luck for hours: what is plain is told by the first looks, what is small by the last.
"""


@dataclass(frozen=True, slots=True)
class Change:
    """One change that was tried."""

    knob: str
    value_from: int
    value_to: int
    verdict: str
    kept: bool
    because: str

    def text(self) -> str:
        """In words."""
        undone = "" if self.kept else ", undone"
        return f"{self.knob} {self.value_from} -> {self.value_to} {self.verdict}{undone} ({self.because})"


@dataclass(frozen=True, slots=True)
class Found:
    """Where a tuner ended, and what it tried on the way."""

    settings: Settings
    changes: tuple[Change, ...]


def closed_loop(subject: Subject, seed: int) -> Found:
    """Our advice and our judge, at most four changes."""
    settings, changes, undone = subject.start, list[Change](), Counter[tuple[str, str]]()
    pool = _WatchedPool(subject, 100 * seed + 1)
    while len(changes) < MOST_CHANGES:
        row = _advice(pool, settings, undone)
        if row is None or row.proposed is None:
            break
        candidate = replace(settings, **{row.knob: int(row.proposed)})
        verdict = _tried(subject, settings, candidate, 100 * seed + 10 * len(changes) + 2)
        kept = verdict in (Verdict.IMPROVED, Verdict.NOT_WORSE)
        value = settings.as_dict()[row.knob]
        changes.append(Change(row.knob, value, int(row.proposed), verdict.value, kept, row.because[0]))
        if kept:
            settings = candidate
            pool.restart(settings)
        else:
            undone[row.knob, row.action] += 1 if verdict is Verdict.WORSE else _MOST_TRIALS
    return Found(settings, tuple(changes))


def rule_of_thumb(subject: Subject, seed: int) -> Found:
    """Fewer sequences on preemption, speculation off under an acceptance of one half; nothing is proven."""
    settings, changes = subject.start, list[Change]()
    while len(changes) < MOST_CHANGES:
        world = SteppedWorld(
            subject.with_settings(settings),
            subject.replicas,
            100 * seed + 10 * len(changes) + 1,
            tick_seconds=_TICK_SECONDS,
            epoch=EPOCH,
        )
        world.advance(_THUMB_SECONDS)
        replica = world.snapshot().replicas[0]
        accepted = replica.scalar("spec_acceptance_ratio").number
        if replica.scalar("preemptions").number:
            knob, value = "max_num_seqs", max(1, int(0.75 * settings.max_num_seqs))
        elif settings.num_speculative_tokens and accepted is not None and accepted < 0.5:
            knob, value = "num_speculative_tokens", 0
        else:
            break
        changes.append(Change(knob, settings.as_dict()[knob], value, "", True, "rule of thumb"))
        settings = replace(settings, **{knob: value})
    return Found(settings, tuple(changes))


def _replicas(subject: Subject) -> int:
    members = subject.scenario.pools[0].members
    thinks = any(member.traffic.reasoning_tokens.median > 0 for member in members)
    return max(_THINKING_REPLICAS, subject.replicas) if thinks else subject.replicas


class _WatchedPool:
    """A pool that lives, with advice on it, from a warm start on."""

    def __init__(self, subject: Subject, seed: int) -> None:
        self.subject = subject
        self._world = SteppedWorld(
            subject.scenario, _replicas(subject), seed, tick_seconds=_TICK_SECONDS, epoch=EPOCH
        )
        self._sheets: dict[str, KnobSheet] = {}
        self._advisor = Advisor(lambda: self._sheets)

    def watched(self) -> Iterator[tuple[float, FleetSnapshot]]:
        """Pictures with advice, and the seconds since one began to watch."""
        began, read_at = self._world.now(), -math.inf
        while True:
            self._world.advance()
            now = self._world.now()
            if now - read_at >= _SHEET_SECONDS or len(self._sheets) < len(self._world.targets):
                self._read_sheets()
                read_at = now
            yield now - began, self._advisor(self._world.snapshot())

    def restart(self, settings: Settings) -> None:
        """Every replica anew with these settings, its queue empty."""
        self._sheets.clear()
        for target in self._world.targets:
            self._world.restart(target.name, **settings.as_dict())

    def _read_sheets(self) -> None:
        for target in self._world.targets:
            transport = self._world.transport(target.url)
            reply = HttpKnobClient(transport).read() if transport is not None else None
            if reply is not None and reply.sheet is not None:
                self._sheets[target.url] = reply.sheet


def _advice(pool: _WatchedPool, settings: Settings, undone: Counter[tuple[str, str]]) -> Advice | None:
    """The first advice that most replicas give, or the last of those that were found worse once; None:
    nobody wants a change.
    """
    counted_at, again = 0.0, None
    for seconds, snapshot in pool.watched():
        if seconds > _WATCHED_SECONDS and not _awaits_evidence(snapshot):
            break
        if _counts_thoughts(snapshot) and seconds <= _LONGEST_WATCHED_SECONDS:
            counted_at = seconds
        if seconds > max(_MOST_WATCHED_SECONDS, counted_at + _WATCHED_SECONDS):
            break
        for row in _wanted(pool.subject, settings, snapshot):
            if not undone[row.knob, row.action]:
                return row
            if undone[row.knob, row.action] < _MOST_TRIALS:
                again = row
    return again


def _wanted(subject: Subject, settings: Settings, snapshot: FleetSnapshot) -> Iterator[Advice]:
    """What most replicas want, and an engine can have."""
    for knob in _ORDER:
        value = settings.as_dict()[knob]
        rows = [row for one in snapshot.replicas for row in one.advice if row.knob == knob]
        wanted = [row for row in rows if row.proposed is not None and row.current == value]
        if 2 * len(wanted) > len(rows):
            candidate = replace(settings, **{knob: int(wanted[0].proposed or 0)})
            if subject.allows(candidate):
                yield wanted[0]


def _awaits_evidence(snapshot: FleetSnapshot) -> bool:
    """Whether watching for longer may bring advice: some is withheld, or not shared by most yet."""
    rows = [row for one in snapshot.replicas for row in one.advice]
    return any(row.action == "withheld" or row.proposed is not None for row in rows)


def _counts_thoughts(snapshot: FleetSnapshot) -> bool:
    """Whether a thinking budget under KV pressure waits for more requests."""
    rows = [row for one in snapshot.replicas for row in one.advice if row.knob == THINKING]
    return any(row.action == "withheld" and row.bound_by == "kv" for row in rows)


def _tried(subject: Subject, old: Settings, new: Settings, seed: int) -> Verdict:
    """The judge's verdict on a canary with the new settings beside a baseline with the old ones."""
    fleet = FleetModel(
        _side_by_side(subject, old, new),
        2 * _replicas(subject),
        seed,
        EPOCH,
        WARM_UP_SECONDS,
        keeps_steps=False,
    )
    blocks = list[Block]()
    before = _counts_at(fleet, _CONTROL.warmup_seconds)
    verdict = Verdict.INCONCLUSIVE
    for look, share in _LOOKS.items():
        while len(blocks) < look:
            began = _CONTROL.warmup_seconds + len(blocks) * _CONTROL.block_seconds
            ended = began + _CONTROL.block_seconds
            counts = _counts_at(fleet, ended)
            gained = [after - earlier for after, earlier in zip(counts, before, strict=True)]
            blocks.append(Block(began, ended, *gained))
            before = counts
        verdict = judge(blocks, alpha=share * _CONTROL.alpha, margin=_CONTROL.margin).verdict
        if verdict is not Verdict.INCONCLUSIVE:
            break
    return verdict


def _side_by_side(subject: Subject, old: Settings, new: Settings) -> Scenario:
    """One pool, served one stream of requests: as many replicas with the new settings, which come first, as
    with the old ones.
    """
    arms, each = [subject.with_settings(one) for one in (new, old)], _replicas(subject)
    members = tuple(
        arm.pools[0].members[place % len(arm.pools[0].members)] for arm in arms for place in range(each)
    )
    faults = tuple(
        (number + shift, fault) for shift in (0, each) for number, fault in subject.scenario.faults
    )
    return replace(arms[0], pools=(replace(arms[0].pools[0], members=members),), faults=faults)


def _counts_at(fleet: FleetModel, second: float) -> tuple[float, ...]:
    """Judged and good requests until `second` of the first half of the replicas, then of the second."""
    fleet.advance(second)
    truths = [replica.truth for replica in fleet.replicas]
    half = len(truths) // 2
    return tuple(
        float(count)
        for arm in (truths[:half], truths[half:])
        for count in (sum(t.judged for t in arm), sum(t.within_slo for t in arm))
    )
