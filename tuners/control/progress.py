"""What is known of a change under way, and one turn of deciding about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from enginetop.fleet.change import FINAL_STATES, AuditRow, ChangeState, Guard, Verdict
from enginetop.fleet.frozen import frozen
from enginetop.fleet.plan import Plan, PlannedChange
from enginetop.fleet.snapshot import FleetSnapshot
from tuners.control.judge import Judgement
from tuners.control.knob_api import KnobReply
from tuners.control.observe import Mark
from tuners.control.settings import ControlSettings
from tuners.control.sizing import Sizing
from tuners.control.trace import NO_TRACE, Trace


class Purpose(StrEnum):
    """Why an engine is asked something."""

    PREFLIGHT = "preflight"  # read before anything is decided
    APPLY = "apply"  # write the new value, with a ttl
    READ_BACK = "read_back"  # read after that write
    RENEW = "renew"  # write the same value again, so that its ttl begins anew
    WATCH = "watch"  # read whether the value is still ours
    BESIDE = "beside"  # read whether a baseline still runs with what it ran with
    KEEP = "keep"  # write the same value without a ttl
    KEPT = "kept"  # read after that write
    UNDO_READ = "undo_read"  # read what is to be undone, or whether it is undone
    UNDO = "undo"  # write the former value


READS: frozenset[Purpose] = frozenset(
    {
        Purpose.PREFLIGHT,
        Purpose.READ_BACK,
        Purpose.WATCH,
        Purpose.BESIDE,
        Purpose.KEPT,
        Purpose.UNDO_READ,
    }
)


@frozen
class Ask:
    """One request to one engine. A write of None resets the knob to its start value."""

    target: str
    purpose: Purpose
    knob: str
    value: int | None = None
    if_version: int | None = None
    ttl_seconds: float | None = None
    reason: str = ""


@frozen(eq=False)
class Answered:
    """A request and what it brought."""

    ask: Ask
    reply: KnobReply


@frozen
class Written:
    """A target that was written, or may have been.

    `version` is the knob's version as we know it; None: not known. `renewed_at` is the last write that was
    confirmed, `asked_at` the last request of any kind, `undo_asked_at` the last write of the former value.
    `sent`: the write was or may have been done, so that only reads can tell more. `confirmed_at`: when the
    new value was read back. `kept`: it stands without a ttl. `before` is the trace of the engine before the
    write, `settled` the first one from after the reading back.
    """

    change: PlannedChange
    version: int | None
    wrote_at: float
    renewed_at: float
    asked_at: float
    undo_asked_at: float = float("-inf")
    keep_asked_at: float | None = None
    sent: bool = False
    confirmed_at: float | None = None
    kept: bool = False
    before: Trace = NO_TRACE
    settled: Trace | None = None
    takes_seconds: float = 0.0
    """Above 0: a change needs a restart, which may take so long."""
    moves: bool = False
    """A restart was under way when it was last read on the way back."""
    by_hand: str = ""
    """What a person has to do, as the path itself says: it could not bring the engine back."""
    given_up: bool = False
    """It was asked for the former value once more, and failed again."""

    @property
    def confirmed(self) -> bool:
        """Whether the new value was read back."""
        return self.confirmed_at is not None


@frozen
class Ending:
    """The decision to undo everything: which final state it leads to, why, and how far it is.

    `asked`: somebody wanted it; nothing that was observed speaks against the change.
    """

    to: ChangeState
    why: str
    began: float
    undone: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    asked: bool = False


@frozen(eq=False)
class Progress:
    """Everything that the machine knows of one change; replaced, never changed."""

    plan: Plan
    settings: ControlSettings
    tool_version: str
    approved_by: str
    state: ChangeState
    since: float
    detail: str = ""
    sheets: Mapping[str, KnobReply] = field(default_factory=lambda: MappingProxyType({}))
    baselines: tuple[str, ...] = ()
    sizing: Sizing | None = None
    written: Mapping[str, Written] = field(default_factory=lambda: MappingProxyType({}))
    began: float = 0.0
    marks: tuple[Mark, ...] = ()
    marks_before: tuple[Mark, ...] = ()
    """Block ends before the change, where nothing can be compared with during it."""
    recent: tuple[Mark, ...] = ()
    guards: tuple[Guard, ...] = ()
    judgement: Judgement | None = None
    soaking_since: float | None = None
    looked_at: float = float("-inf")
    """When the knobs of baselines were read last."""
    proven: bool = False
    """The effect was looked for on every target, and nothing contradicts it."""
    ending: Ending | None = None

    @property
    def finished(self) -> bool:
        """Whether the state is final."""
        return self.state in FINAL_STATES

    @property
    def verdict(self) -> Verdict | None:
        """The verdict, once the observation is over."""
        return self.judgement.verdict if self.judgement else None

    @property
    def restarts(self) -> bool:
        """Whether values are changed by restarts."""
        return any(written.takes_seconds > 0 for written in self.written.values())

    @property
    def warmup_seconds(self) -> float:
        """How long the canary settles before it is observed."""
        least = self.settings.restart_warmup_seconds if self.restarts else 0.0
        return max(self.settings.warmup_seconds, least)

    @property
    def changed(self) -> tuple[str, ...]:
        """Targets written so far, in the plan's order."""
        return tuple(target for target in self.plan.targets if target in self.written)

    @property
    def reference(self) -> tuple[str, ...]:
        """Baselines not written yet."""
        return tuple(target for target in self.baselines if target not in self.written)

    def change_of(self, target: str) -> PlannedChange:
        """The planned change of a target."""
        return next(change for change in self.plan.changes if change.target == target)


@dataclass(slots=True)
class Turn:
    """One turn: what is known goes in, decisions are gathered. Lives only while `step` runs."""

    progress: Progress
    now: float
    snapshot: FleetSnapshot
    answers: Sequence[Answered]
    stop: str
    """Why a person or the kill switch wants the change undone; empty: nobody does."""
    asks: list[Ask] = field(default_factory=list)
    rows: list[AuditRow] = field(default_factory=list)

    def update(self, **changes: Any) -> None:
        """Replace fields of the progress."""
        self.progress = replace(self.progress, **changes)

    def to(self, state: ChangeState, detail: str, **changes: Any) -> None:
        """Go to a state; the audit gets a row."""
        self.update(state=state, since=self.now, detail=detail, **changes)
        self.note(detail)

    def note(self, detail: str, ask: Ask | None = None, before: int | None = None) -> None:
        """An audit row of the present state: of the change as a whole, or of one write."""
        progress = self.progress
        canary = progress.plan.canary
        self.rows.append(
            AuditRow(
                change=progress.plan.id,
                at=self.now,
                state=progress.state,
                target=ask.target if ask else canary.target,
                knob=canary.knob,
                before=before if ask else canary.before,
                after=ask.value if ask else canary.after,
                verdict=progress.verdict,
                detail=detail,
                asked=progress.ending is not None and progress.ending.asked,
            )
        )

    def ask(self, target: str, purpose: Purpose, **what: Any) -> None:
        """Ask an engine something; what changes a value is noted in the audit, a renewal is not."""
        change = self.progress.change_of(target)
        ask = Ask(target, purpose, change.knob, **what)
        self.asks.append(ask)
        if purpose in (Purpose.APPLY, Purpose.KEEP):
            how = "write for good" if ask.ttl_seconds is None else f"write, ttl {ask.ttl_seconds:g} s"
            self.note(how, ask, change.before)
        elif purpose is Purpose.UNDO:
            self.note("write the former value", ask, change.after)

    def touch(self, target: str, **changes: Any) -> None:
        """Replace fields of what is known of a written target."""
        written = dict(self.progress.written)
        written[target] = replace(written[target], **changes)
        self.update(written=MappingProxyType(written))

    def undo(self, why: str, to: ChangeState = ChangeState.ROLLED_BACK, *, asked: bool = False) -> None:
        """Begin to undo everything, at once; the audit gets a row. `asked` as in `Ending`."""
        for target in self.progress.written:
            self.touch(target, asked_at=float("-inf"))
        self.update(ending=Ending(to, why, self.now, asked=asked), detail=f"going back: {why}")
        self.note(f"going back: {why}")
