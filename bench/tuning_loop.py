"""How tuners find settings in `bench.tuning`: ours in a closed loop, and a rule of thumb beside it.

A round of ours: watch pages until there is advice, try it on one world beside another with the old settings,
keep it if the judge of changes does not find it worse, else go back. What was undone is tried once more when
nothing else is wanted: of changes that do nothing one trial in twenty ends as `worse`, and two in a row once
in four hundred.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from bench.tuning_space import EPOCH, Settings, Subject
from enginetop.fleet.change import Verdict
from enginetop.fleet.knobs import KnobSheet
from enginetop.fleet.snapshot import Advice, FleetSnapshot
from enginetop.simulator.fleet_model import FleetModel
from enginetop.simulator.stepped import SteppedWorld
from tuners.advice import Advisor
from tuners.control.judge import Block, judge
from tuners.control.knob_api import HttpKnobClient
from tuners.control.settings import ControlSettings
from tuners.knob_values import THINKING
from tuners.thought_log import KEPT_SECONDS

MOST_CHANGES = 4
_MOST_TRIALS = 2
"""Of the same change; each counts as a change."""
_TICK_SECONDS = 4.0
_WATCHED_SECONDS, _MOST_WATCHED_SECONDS, _LONGEST_WATCHED_SECONDS = 900.0, 3900.0, KEPT_SECONDS
"""How long advice is waited for: the longer one while more evidence may bring some, the longest while the
rule for thoughts says that more requests will tell.
"""
_ORDER = ("max_num_seqs", "num_speculative_tokens", "thinking_token_budget", "max_num_batched_tokens")
"""Which knob goes first where several have advice: what destroys work before what makes it slow."""
_CONTROL = ControlSettings()
_LOOKS = (30, 60, 120)
"""Blocks after which a trial is judged, and ended unless it is inconclusive: replicas of a saturated pool
differ by luck for many minutes. Each look has its share of alpha (Bonferroni), so that looking thrice does
not err more often than once.
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
    while len(changes) < MOST_CHANGES:
        worlds = 100 * seed + 10 * len(changes)
        row = _advice(subject, settings, worlds + 1, undone)
        if row is None or row.proposed is None:
            break
        candidate = replace(settings, **{row.knob: int(row.proposed)})
        verdict = _tried(subject, settings, candidate, worlds + 2)
        kept = verdict in (Verdict.IMPROVED, Verdict.NOT_WORSE)
        value = settings.as_dict()[row.knob]
        changes.append(Change(row.knob, value, int(row.proposed), verdict.value, kept, row.because[0]))
        if kept:
            settings = candidate
        else:
            undone[row.knob, row.action] += 1
    return Found(settings, tuple(changes))


def rule_of_thumb(subject: Subject, seed: int) -> Found:
    """Fewer sequences on preemption, speculation off under an acceptance of one half; nothing is proven."""
    settings, changes = subject.start, list[Change]()
    while len(changes) < MOST_CHANGES:
        *_, last = _watched(subject, settings, 100 * seed + 10 * len(changes) + 1, 240.0)
        replica = last.replicas[0]
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


def _watched(subject: Subject, settings: Settings, seed: int, seconds: float) -> Iterator[FleetSnapshot]:
    """Pictures with advice of a world with these settings, from a warm start on."""
    world = SteppedWorld(
        subject.with_settings(settings),
        subject.replicas,
        seed,
        tick_seconds=_TICK_SECONDS,
        epoch=EPOCH,
    )
    sheets = _sheets(world)
    advisor = Advisor(lambda: sheets)
    while world.now() - EPOCH < seconds:
        world.advance()
        yield advisor(world.snapshot())


def _sheets(world: SteppedWorld) -> dict[str, KnobSheet]:
    sheets = {}
    for target in world.targets:
        transport = world.transport(target.url)
        reply = HttpKnobClient(transport).read() if transport is not None else None
        if reply is not None and reply.sheet is not None:
            sheets[target.url] = reply.sheet
    return sheets


def _advice(
    subject: Subject, settings: Settings, seed: int, undone: Counter[tuple[str, str]]
) -> Advice | None:
    """The first advice that most replicas give, or the last of those that were undone once; None: nobody
    wants a change.
    """
    counted_at, again = EPOCH, None
    for snapshot in _watched(subject, settings, seed, _LONGEST_WATCHED_SECONDS):
        if snapshot.at - EPOCH > _WATCHED_SECONDS and not _awaits_evidence(snapshot):
            break
        if _counts_thoughts(snapshot):
            counted_at = snapshot.at
        if snapshot.at - max(EPOCH + _MOST_WATCHED_SECONDS, counted_at + _WATCHED_SECONDS) > 0:
            break
        for row in _wanted(subject, settings, snapshot):
            if not undone[row.knob, row.action]:
                return row
            if undone[row.knob, row.action] < _MOST_TRIALS:
                again = row
    return again


def _wanted(subject: Subject, settings: Settings, snapshot: FleetSnapshot) -> Iterator[Advice]:
    """What most replicas want, and an engine can have."""
    for knob in _ORDER:
        rows = [row for one in snapshot.replicas for row in one.advice if row.knob == knob]
        wanted = [row for row in rows if row.proposed is not None]
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
    canary, baseline = (
        FleetModel(
            subject.with_settings(settings), subject.replicas, seed + place, EPOCH, 60.0, keeps_steps=False
        )
        for place, settings in enumerate((new, old))
    )
    blocks = list[Block]()
    before = _counts_at(canary, baseline, _CONTROL.warmup_seconds)
    alpha, verdict = _CONTROL.alpha / len(_LOOKS), Verdict.INCONCLUSIVE
    for look in _LOOKS:
        while len(blocks) < look:
            began = _CONTROL.warmup_seconds + len(blocks) * _CONTROL.block_seconds
            ended = began + _CONTROL.block_seconds
            counts = _counts_at(canary, baseline, ended)
            gained = [after - earlier for after, earlier in zip(counts, before, strict=True)]
            blocks.append(Block(began, ended, *gained))
            before = counts
        verdict = judge(blocks, alpha=alpha, margin=_CONTROL.margin).verdict
        if verdict is not Verdict.INCONCLUSIVE:
            break
    return verdict


def _counts_at(canary: FleetModel, baseline: FleetModel, second: float) -> tuple[float, ...]:
    """Judged and good requests of both until `second`."""
    canary.advance(second)
    baseline.advance(second)
    return (*_counts(canary), *_counts(baseline))


def _counts(model: FleetModel) -> tuple[float, float]:
    """Judged requests and those within the SLO."""
    truths = [replica.truth for replica in model.replicas]
    return float(sum(t.judged for t in truths)), float(sum(t.within_slo for t in truths))
