"""Writing the new value to targets and reading it back, for the canary and for each wave alike."""

from __future__ import annotations

from types import MappingProxyType

from enginetop.fleet.knobs import KnobRow
from tuners.control.holding import moves, not_ours
from tuners.control.knob_api import REFUSALS, ReplyKind
from tuners.control.progress import Purpose, Turn, Written
from tuners.control.trace import trace_of

_RETRY_SECONDS = 2.0
_MOST_SECONDS = 60.0
"""A write that is not confirmed after this long is undone."""


def write(turn: Turn, targets: tuple[str, ...]) -> None:
    """Ask for the new value on `targets`, none of which was written before."""
    written = dict(turn.progress.written)
    for target in targets:
        change = turn.progress.change_of(target)
        row = _row(turn, target)
        written[target] = Written(
            change,
            row.version if row else None,
            turn.now,
            turn.now,
            turn.now,
            before=trace_of(turn.snapshot.replica(target)),
            takes_seconds=row.takes_seconds if row else 0.0,
        )
    turn.update(written=MappingProxyType(written))
    for target in targets:
        _ask(turn, target)


def confirm(turn: Turn, targets: tuple[str, ...]) -> tuple[bool, str, bool]:
    """Follow up on writes.

    Returns whether all of `targets` hold the new value, as read back; what went wrong, if anything did; and
    whether it is certain that nothing was changed by any of the writes.
    """
    for answered in turn.answers:
        target, reply = answered.ask.target, answered.reply
        if target not in targets:
            continue
        where = f"{target}: "
        if answered.ask.purpose is Purpose.APPLY:
            if reply.kind is ReplyKind.OK and reply.row is not None:
                if reply.applied != reply.total:
                    return False, f"{where}{reply.applied} of {reply.total} ranks confirm the value", False
                turn.touch(target, version=reply.row.version, renewed_at=turn.now, sent=True)
                turn.ask(target, Purpose.READ_BACK)
            elif reply.kind in REFUSALS:
                words = f"{where}the write was refused ({reply.kind}): {reply.detail}"
                return False, words, _none_written(turn, targets)
            elif reply.kind is ReplyKind.NOT_ALL_RANKS:
                return False, f"{where}not every rank could apply the value: {reply.detail}", False
            elif reply.kind is not ReplyKind.TOO_SOON:
                # it may have been done all the same: what is there now decides
                turn.touch(target, sent=True)
                turn.ask(target, Purpose.READ_BACK)
        elif answered.ask.purpose is Purpose.READ_BACK:
            trouble = not_ours(turn, target, reply)
            if trouble:
                return False, trouble, False
            if reply.kind is ReplyKind.OK and not moves(turn, target, reply):
                turn.touch(target, confirmed_at=turn.now)
                if turn.progress.written[target].takes_seconds:
                    turn.touch(target, renewed_at=turn.now)  # its ttl runs from when it is in force
    return _wait(turn, targets)


def _none_written(turn: Turn, targets: tuple[str, ...]) -> bool:
    """Whether all of `targets` refused."""
    answers = [one for one in turn.answers if one.ask.target in targets]
    refused = {one.ask.target for one in answers if one.reply.kind in REFUSALS}
    return refused == set(targets) and not any(turn.progress.written[one].sent for one in targets)


def _wait(turn: Turn, targets: tuple[str, ...]) -> tuple[bool, str, bool]:
    asked = {ask.target for ask in turn.asks}
    done = True
    for target in targets:
        written = turn.progress.written[target]
        if written.confirmed:
            continue
        done = False
        most = _MOST_SECONDS + written.takes_seconds
        if turn.now - written.wrote_at > most:
            return False, f"{target}: the write was not confirmed within {most:.0f} s", False
        if target not in asked and turn.now - written.asked_at >= _RETRY_SECONDS:
            turn.touch(target, asked_at=turn.now)
            if written.sent:
                turn.ask(target, Purpose.READ_BACK)
            else:
                _ask(turn, target)
    return done, "", False


def _ask(turn: Turn, target: str) -> None:
    progress = turn.progress
    turn.ask(
        target,
        Purpose.APPLY,
        value=progress.change_of(target).after,
        if_version=progress.written[target].version,
        ttl_seconds=progress.settings.ttl_seconds,
        reason=f"plan {progress.plan.id}",
    )


def _row(turn: Turn, target: str) -> KnobRow | None:
    reply = turn.progress.sheets.get(target)
    return reply.sheet.knob(turn.progress.change_of(target).knob) if reply and reply.sheet else None
