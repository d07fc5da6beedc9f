"""Holding a change in place: renewing what was written, seeing that it is still ours, minding the guards."""

from __future__ import annotations

from enginetop.fleet.change import ChangeState, value_text
from enginetop.fleet.knobs import FAILED, STUCK
from enginetop.fleet.signals import KNOBS
from tuners.control import guards
from tuners.control.knob_api import KnobReply, ReplyKind
from tuners.control.observe import mark, with_mark
from tuners.control.progress import Answered, Purpose, Turn, Written
from tuners.control.trace import trace_of

_RENEW_SHARE = 1 / 3
_LOST_SHARE = 2 / 3
"""A value that could not be renewed for this share of its ttl is given up, while there is time to undo it."""
_RETRY_SHARE = 1 / 30
_WATCH_SHARE = 1 / 18
_PAGE_SECONDS = 30.0
"""A restarted engine that is said to be ready shows a page by then."""


def hold(turn: Turn, *, renewing: bool = True) -> bool:
    """Keep the change alive for one more turn; False when it has to be undone, which is then begun.

    `renewing` False: somebody else writes the values this turn.
    """
    trouble = _take_answers(turn) or _lost_renewal(turn) or _tripped(turn)
    if trouble:
        turn.undo(trouble)
        return False
    _settle(turn)
    if renewing:
        _ask_again(turn)
    return True


def _settle(turn: Turn) -> None:
    """Keep the first trace of each target that was read after the new value stood."""
    for target, written in turn.progress.written.items():
        if written.confirmed_at is None or written.settled is not None:
            continue
        trace = trace_of(turn.snapshot.replica(target))
        if trace.at > written.confirmed_at:
            turn.touch(target, settled=trace)


def _take_answers(turn: Turn) -> str:
    for answered in turn.answers:
        target = answered.ask.target
        trouble = _set_beside(turn, target, answered.reply)
        if trouble:
            return trouble
        if target not in turn.progress.written:
            continue
        if answered.ask.purpose is Purpose.RENEW:
            _take_renewal(turn, answered)
        elif answered.ask.purpose in (Purpose.WATCH, Purpose.READ_BACK, Purpose.KEPT):
            trouble = not_ours(turn, target, answered.reply)
            if trouble:
                return trouble
    return ""


def _take_renewal(turn: Turn, answered: Answered) -> None:
    target, reply = answered.ask.target, answered.reply
    if reply.kind is ReplyKind.OK and reply.row is not None:
        turn.touch(target, version=reply.row.version, renewed_at=turn.now)
    elif reply.kind is ReplyKind.CONFLICT:
        turn.ask(target, Purpose.WATCH)  # which tells whether it is still ours, and at which version


def _set_beside(turn: Turn, target: str, reply: KnobReply) -> str:
    """Why a read shows that other settings of a target are no longer what the change began with, so that what
    is counted tells of them too; empty: they are, or the read says nothing.

    Of a target that was written it is not the knob on trial; one that is restarted says nothing at all.
    """
    read, written = turn.progress.sheets.get(target), turn.progress.written.get(target)
    if reply.sheet is None or read is None or read.sheet is None:
        return ""
    if written is not None and written.takes_seconds:
        return ""
    for before in read.sheet.knobs:
        row = reply.sheet.knob(before.name)
        ours = written is not None and before.name == written.change.knob
        if ours or before.name not in KNOBS or row is None or None in (before.value, row.value):
            continue
        if row.value != before.value:
            return (
                f"{target}: {row.name} was set from {value_text(before.value)} to {value_text(row.value)} by "
                f"somebody else: nothing can be compared any more"
            )
    return ""


def not_ours(turn: Turn, target: str, reply: KnobReply) -> str:
    """Why a read shows that our value is no longer in force; empty: it is, or the read says nothing."""
    if reply.kind is not ReplyKind.OK or reply.sheet is None:
        return ""
    change = turn.progress.change_of(target)
    if reply.sheet.instance_of(change.knob) != change.instance:
        return f"{target} was restarted"
    if reply.sheet.applied != reply.sheet.total:
        return f"{target}: only {reply.sheet.applied} of {reply.sheet.total} ranks confirm their knobs"
    row = reply.sheet.knob(change.knob)
    if row is not None and row.phase == FAILED:
        turn.touch(target, by_hand=row.note)
        return f"{target} could not be brought back: {row.note}"
    if row is not None and row.phase == STUCK:
        return f"{target} does not come up with {row.value}: {row.note}"
    if row is None or row.value != change.after:
        found = "gone" if row is None else f"{row.value}, not {change.after}"
        if row is not None and row.apply == "restart" and row.note:
            return f"{target}: {change.knob} is {found}: {row.note}"
        return f"{target}: {change.knob} is {found}: changed by somebody else, or expired"
    turn.touch(target, version=row.version)
    return ""


def moves(turn: Turn, target: str, reply: KnobReply) -> bool:
    """Whether a read says that a restart is under way."""
    row = reply.sheet.knob(turn.progress.change_of(target).knob) if reply.sheet else None
    return row is not None and row.moves


def _lost_renewal(turn: Turn) -> str:
    limit = turn.progress.settings.ttl_seconds * _LOST_SHARE
    for target, written in turn.progress.written.items():
        if not written.kept and not _restarting(written) and turn.now - written.renewed_at > limit:
            return f"{target}: the value could not be renewed for {turn.now - written.renewed_at:.0f} s"
    return ""


def _restarting(written: Written) -> bool:
    return written.takes_seconds > 0 and written.confirmed_at is None


def _is_watched(written: Written, now: float) -> bool:
    """Whether the guards look at a changed target: after a restart only once there is a page from after it,
    or should have been.
    """
    if not written.takes_seconds or written.settled is not None:
        return True
    return written.confirmed_at is not None and now - written.confirmed_at > _PAGE_SECONDS


def _tripped(turn: Turn) -> str:
    progress = turn.progress
    window = progress.settings.block_seconds
    # also those whose wave is still to come: a replica that was just written is compared over time before it
    everyone = (*progress.plan.targets, *progress.baselines)
    recent = progress.recent
    if not (progress.restarts and progress.state is ChangeState.WARMUP):  # cold caches are no comparison
        recent = with_mark(recent, mark(turn.now, turn.snapshot, everyone), window)
    checked = guards.check(
        guards.Watched(
            now=turn.now,
            snapshot=turn.snapshot,
            knob=progress.plan.canary.knob,
            began=progress.began,
            settled={
                target: written.settled.at
                for target, written in progress.written.items()
                if written.takes_seconds and written.settled is not None
            },
            changed=tuple(
                target for target in progress.changed if _is_watched(progress.written[target], turn.now)
            ),
            reference=progress.reference,
            observed=progress.baselines,
            recent=recent,
            marks=progress.marks,
            window_seconds=window,
        )
    )
    turn.update(recent=recent, guards=checked)
    bad = [guard for guard in checked if not guard.ok]
    return f"guard {bad[0].name}: {bad[0].detail}" if bad else ""


def _ask_again(turn: Turn) -> None:
    ttl = turn.progress.settings.ttl_seconds
    for target, written in turn.progress.written.items():
        if written.kept or _restarting(written) or any(ask.target == target for ask in turn.asks):
            continue
        idle = turn.now - written.asked_at
        if turn.now - written.renewed_at >= ttl * _RENEW_SHARE and idle >= ttl * _RETRY_SHARE:
            renew(turn, target, written)
        elif idle >= ttl * _WATCH_SHARE:
            turn.touch(target, asked_at=turn.now)
            turn.ask(target, Purpose.WATCH)
    if turn.now - turn.progress.looked_at >= turn.progress.settings.block_seconds:
        turn.update(looked_at=turn.now)
        for target in turn.progress.reference:
            if target in turn.progress.sheets:
                turn.ask(target, Purpose.BESIDE)


def renew(turn: Turn, target: str, written: Written) -> None:
    """Ask for a new ttl."""
    turn.touch(target, asked_at=turn.now)
    turn.ask(
        target,
        Purpose.RENEW,
        value=written.change.after,
        if_version=written.version,
        ttl_seconds=turn.progress.settings.ttl_seconds,
        reason="renewal",
    )
