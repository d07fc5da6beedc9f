"""The state machine of a change. Pure: the time, the fleet and the answers go in, requests come out.

    PLANNED -> PREFLIGHT -> APPROVED -> CANARY -> WARMUP -> OBSERVE -> PROMOTE -> VERIFY -> DONE
    refused before the first write: REFUSED
    `inconclusive`: the value goes back, then HELD, for a person to decide
    `worse`, a guard, a lost renewal, a stop: the value goes back, then ROLLED_BACK
    the value cannot be brought back: ROLLBACK_FAILED, with what a person must do

`improved` and `not_worse` are promoted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from enginetop.fleet.change import AuditRow, ChangeState
from enginetop.fleet.frozen import frozen
from enginetop.fleet.plan import Plan
from enginetop.fleet.snapshot import FleetSnapshot
from tuners.control import promote, trial, undo
from tuners.control.progress import Answered, Ask, Progress, Turn
from tuners.control.settings import ControlSettings


@frozen(eq=False)
class Step:
    """The outcome of one turn: audit rows are to be written before the requests are made."""

    progress: Progress
    asks: tuple[Ask, ...]
    rows: tuple[AuditRow, ...]


_STAGES: Mapping[ChangeState, Callable[[Turn], None]] = {
    ChangeState.PLANNED: trial.planned,
    ChangeState.PREFLIGHT: trial.preflight,
    ChangeState.APPROVED: trial.approved,
    ChangeState.CANARY: trial.canary,
    ChangeState.WARMUP: trial.warm_up,
    ChangeState.OBSERVE: trial.observe,
    ChangeState.PROMOTE: promote.promote,
    ChangeState.VERIFY: promote.verify,
}


def begin(plan: Plan, *, now: float, approved_by: str, settings: ControlSettings, tool_version: str) -> Step:
    """The first progress of a plan, and its audit row."""
    progress = Progress(
        plan=plan,
        settings=settings,
        tool_version=tool_version,
        approved_by=approved_by,
        state=ChangeState.PLANNED,
        since=now,
        began=now,
    )
    canary = plan.canary
    row = AuditRow(
        change=plan.id,
        at=now,
        state=ChangeState.PLANNED,
        target=canary.target,
        knob=canary.knob,
        before=canary.before,
        after=canary.after,
        detail=f"evidence {plan.evidence_hash[:12]}",
    )
    return Step(progress, (), (row,))


def step(
    progress: Progress,
    now: float,
    snapshot: FleetSnapshot,
    answers: Sequence[Answered] = (),
    stop: str = "",
) -> Step:
    """One turn. `answers` are those to the requests of the turn before; `stop` says why all is to be undone.

    Finished changes stay as they are.
    """
    turn = Turn(progress, now, snapshot, answers, stop)
    if progress.finished:
        return Step(progress, (), ())
    if progress.ending is None and stop:
        if progress.written:
            turn.undo(stop, asked=True)
        else:
            turn.to(ChangeState.REFUSED, f"{stop}; nothing had been written")
            return Step(turn.progress, (), tuple(turn.rows))
    if turn.progress.ending is None:
        _STAGES[progress.state](turn)
    if turn.progress.ending is not None and not turn.progress.finished:
        if progress.ending is None:
            turn.asks.clear()  # what was to be asked a moment ago is no longer wanted
        undo.advance(turn, turn.progress.ending)
    return Step(turn.progress, tuple(turn.asks), tuple(turn.rows))
