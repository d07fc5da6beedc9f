"""The way back: read, write the former value, read again, until every target is known to be undone.

Where that takes restarts, one target at a time: a pool is not taken out of service to be undone. What waits
for its turn stays on loan. What its path cannot bring back is tried once more, and is then a person's to do.
"""

from __future__ import annotations

from dataclasses import replace

from enginetop.fleet.change import ChangeState
from enginetop.fleet.knobs import BY_HAND, FAILED, KNOBS_PATH, VALUE, KnobRow, KnobSheet, split_command
from enginetop.fleet.plan import VIA_GATEWAY, VIA_KUBERNETES, PlannedChange
from tuners.control.knob_api import KnobReply, ReplyKind
from tuners.control.progress import Ending, Purpose, Turn

RETRY_SECONDS = 2.0
_GRACE_SECONDS = 60.0
_RENEW_SHARE = 2 / 3


def advance(turn: Turn, ending: Ending) -> None:
    """One turn of undoing. Gives up when the ttl of the last write is long over and targets still differ."""
    for answered in turn.answers:
        target = answered.ask.target
        if target not in turn.progress.written or target in ending.undone:
            continue
        if answered.ask.purpose is Purpose.UNDO:
            turn.touch(target, asked_at=turn.now)
            if answered.reply.kind is ReplyKind.OK:
                turn.ask(target, Purpose.UNDO_READ)
            else:
                turn.touch(target, undo_asked_at=float("-inf"))
                _remember(turn, target, answered.reply)
        elif answered.ask.purpose is Purpose.UNDO_READ:
            turn.touch(target, asked_at=turn.now)
            ending = _look(turn, ending, target, answered.reply)
    turn.update(ending=ending)
    left = [target for target in turn.progress.changed if target not in ending.undone]
    if not left:
        words = "; ".join((ending.why, *ending.notes))
        turn.to(ending.to, words)
        return
    # a restart may be under way: it ends first, then ours begins
    restarts = 2 * sum(written.takes_seconds for written in turn.progress.written.values())
    over = turn.now - ending.began > turn.progress.settings.ttl_seconds + _GRACE_SECONDS + restarts
    if over or all(turn.progress.written[target].given_up for target in left):
        turn.to(ChangeState.ROLLBACK_FAILED, _manual(turn, ending, left))
        return
    asked = {ask.target for ask in turn.asks}
    for target in left:
        due = turn.now - turn.progress.written[target].asked_at >= RETRY_SECONDS
        if target not in asked and due:
            turn.touch(target, asked_at=turn.now)
            turn.ask(target, Purpose.UNDO_READ)


def _look(turn: Turn, ending: Ending, target: str, reply: KnobReply) -> Ending:
    """What a read says of a target: undone, ours to undo, or somebody else's by now."""
    sheet = reply.sheet
    if reply.kind is not ReplyKind.OK or sheet is None:
        _remember(turn, target, reply)
        return ending
    change = turn.progress.change_of(target)
    row = sheet.knob(change.knob)
    if row is None:
        return _undone(ending, target, f"{target} has no knob {change.knob} any more")
    if sheet.instance_of(change.knob) != change.instance and not _wrote_after_restart(row, change):
        return _undone(ending, target, f"{target} was restarted and runs with {row.value}")
    turn.touch(target, takes_seconds=row.takes_seconds, moves=row.moves)
    if row.phase == FAILED:  # what a person has to do is remembered while it is tried once more
        tried = turn.progress.written[target].undo_asked_at > float("-inf")
        turn.touch(target, by_hand=row.note, given_up=tried)
        if tried:
            return ending
    if row.moves:
        return ending
    if row.value == change.rollback and row.expires_in_seconds is None and row.phase != FAILED:
        return _undone(ending, target, "")
    if row.value not in (change.after, change.rollback) and not _led_astray(turn, target):
        return _undone(
            ending, target, f"{target} was set to {row.value} by somebody else, which was left as it is"
        )
    if row.takes_seconds and _another_restarts(turn, ending, target):
        _keep_on_loan(turn, target, row)
    elif turn.now - turn.progress.written[target].undo_asked_at >= RETRY_SECONDS:
        _write_back(turn, target, sheet)
    return ending


def _wrote_after_restart(row: KnobRow, change: PlannedChange) -> bool:
    """Whether a restarted engine has our value all the same: it restarted before it was written, between the
    preflight and its wave. Where it starts with that value by itself, somebody wants it so.
    """
    return row.value == change.after and (row.expires_in_seconds is not None or row.start != change.after)


def _led_astray(turn: Turn, target: str) -> bool:
    """Whether a hook made something else of our write, which was never read back: then that is ours to undo.

    After a crash nobody knows any more whether it was read back.
    """
    written = turn.progress.written[target]
    return written.change.via == VIA_GATEWAY and written.version is not None and not written.confirmed


def _remember(turn: Turn, target: str, reply: KnobReply) -> None:
    """Keep why the way back fails, where there is a command for a person: of our own making alone, since an
    engine could say anything.
    """
    change = turn.progress.change_of(target)
    if change.via not in (VIA_GATEWAY, VIA_KUBERNETES) or change.rollback is None:
        return
    why, command = split_command(reply.detail)
    command = command or split_command(turn.progress.written[target].by_hand)[1]
    if command:
        turn.touch(target, by_hand=f"{why}{BY_HAND}{command.replace(VALUE, str(change.rollback), 1)}")


def _another_restarts(turn: Turn, ending: Ending, target: str) -> bool:
    """Whether another engine is being restarted; those that cannot be are not waited for."""
    return any(
        other != target
        and other not in ending.undone
        and not written.by_hand
        and (written.moves or (written.takes_seconds > 0 and written.undo_asked_at > float("-inf")))
        for other, written in turn.progress.written.items()
    )


def _keep_on_loan(turn: Turn, target: str, row: KnobRow) -> None:
    """Renew what waits for its turn, or it would go back by itself beside the others."""
    ttl = turn.progress.settings.ttl_seconds
    left = row.expires_in_seconds
    if left is not None and left < ttl * _RENEW_SHARE:
        turn.ask(
            target,
            Purpose.RENEW,
            value=row.value,
            if_version=row.version,
            ttl_seconds=ttl,
            reason="waits for its rollback",
        )


def _write_back(turn: Turn, target: str, sheet: KnobSheet) -> None:
    change = turn.progress.change_of(target)
    row = sheet.knob(change.knob)
    if row is not None and row.by_hand and change.rollback is not None:
        turn.touch(target, by_hand=f"it did not go back{BY_HAND}{row.command(change.rollback)}")
    turn.touch(target, undo_asked_at=turn.now)
    turn.ask(
        target,
        Purpose.UNDO,
        value=change.rollback,
        if_version=row.version if row else None,
        reason="rollback",
    )


def _undone(ending: Ending, target: str, note: str) -> Ending:
    notes = (*ending.notes, note) if note else ending.notes
    return replace(ending, undone=(*ending.undone, target), notes=notes)


def _manual(turn: Turn, ending: Ending, targets: list[str]) -> str:
    """What a person has to do where we could not; exact commands come last, where a path has one."""
    words, commands = [ending.why.partition(BY_HAND)[0]], []
    for target in targets:
        change = turn.progress.change_of(target)
        value = "null" if change.rollback is None else change.rollback
        why, command = split_command(turn.progress.written[target].by_hand)
        told = f" ({why})" if why and why not in words[0] else ""
        words.append(f"rollback NOT confirmed on {target}: set {change.knob} back to {value}{told}")
        commands += [f"{BY_HAND}{command}"] if command else []
    again = f"enginetop rollback {turn.progress.plan.id}"
    if turn.progress.plan.canary.via not in (VIA_GATEWAY, VIA_KUBERNETES):
        again += f", or PATCH {KNOBS_PATH}, or a restart of the engine"
    return "; ".join((*words, again)) + "".join(dict.fromkeys(commands))
