"""The second half of a change: the other replicas in waves, then read-back and effect, then for good."""

from __future__ import annotations

import math

from enginetop.fleet.change import ChangeState
from tuners.control.effect import Effect, find_effect
from tuners.control.holding import hold
from tuners.control.progress import Progress, Purpose, Turn
from tuners.control.writing import confirm, write

_RETRY_SECONDS = 2.0


def promote(turn: Turn) -> None:
    """Write wave after wave, with a soak after each; the guards hold meanwhile."""
    if not hold(turn):
        return
    open_writes = tuple(target for target, written in turn.progress.written.items() if not written.confirmed)
    if open_writes:
        done, trouble, _ = confirm(turn, open_writes)
        if trouble:
            turn.undo(trouble)
            return
        if not done:
            return
        turn.update(soaking_since=turn.now)
        progress = turn.progress
        then = "the next are written" if next_wave(progress) else "the effect is looked for"
        turn.note(
            f"{len(progress.written)} of {len(progress.plan.changes)} written and read back; "
            f"watched for {progress.settings.soak_seconds:g} s before {then}"
        )
    progress = turn.progress
    if (soak_left(progress, turn.now) or 0.0) > 0.0:
        return
    wave = next_wave(progress)
    if not wave:
        turn.to(ChangeState.VERIFY, "looking for the effect")
        return
    write(turn, wave)


def soak_left(progress: Progress, now: float) -> float | None:
    """For how many seconds those who were written last are still only watched; None: nobody is.

    After the canary alone the observation was soak enough.
    """
    since = progress.soaking_since
    if since is None or len(progress.written) <= 1 or progress.state is not ChangeState.PROMOTE:
        return None
    if not all(written.confirmed for written in progress.written.values()):
        return None
    return max(0.0, since + progress.settings.soak_seconds - now)


def next_wave(progress: Progress) -> tuple[str, ...]:
    """Who is written next; empty: all have been."""
    left = _in_order(progress)
    size = max(1, math.floor(progress.settings.wave_ratio * len(progress.plan.changes)))
    if progress.settings.most_at_once is not None:
        size = min(size, progress.settings.most_at_once)
    if progress.restarts:
        size = 1  # never more than one replica out of service for our sake
    return _whole(progress, left[:size])


def _whole(progress: Progress, targets: tuple[str, ...]) -> tuple[str, ...]:
    """`targets`, and those that change with them."""
    return tuple(dict.fromkeys(other for target in targets for other in progress.plan.together(target)))


def _in_order(progress: Progress) -> tuple[str, ...]:
    """Who is left, baselines last: while one is untouched the guards have something to compare with."""
    left = (target for target in progress.plan.targets if target not in progress.written)
    return tuple(sorted(left, key=lambda target: target in progress.baselines))


def verify(turn: Turn) -> None:
    """Effect first, then the values for good, each read back."""
    if not hold(turn, renewing=not turn.progress.proven):
        return
    if not turn.progress.proven:
        last = max(written.confirmed_at or written.wrote_at for written in turn.progress.written.values())
        if turn.now - last < turn.snapshot.window_seconds + 2 * turn.snapshot.interval_seconds:
            return
        words = _effects(turn)
        if words is None:
            return
        turn.update(proven=True, detail=words)
        turn.note(words)
    _take_keeps(turn)
    if all(written.kept for written in turn.progress.written.values()):
        turn.to(ChangeState.DONE, f"in force on {len(turn.progress.written)}; {turn.progress.detail}")
        return
    _keep(turn)


def _effects(turn: Turn) -> str | None:
    """What the counters of all targets say; None when they contradict, which begins the way back."""
    seen = 0
    unknown = ""
    for change in turn.progress.plan.changes:
        replica = turn.snapshot.replica(change.target)
        if replica is None:
            continue
        written = turn.progress.written[change.target]
        finding = find_effect(replica, change, written.before, written.settled)
        if finding.effect is Effect.CONTRADICTED:
            turn.undo(f"the value does not work on {change.target}: {finding.words}")
            return None
        if finding.effect is Effect.SEEN:
            seen += 1
        else:
            unknown = f"; not seen on {change.target}: {finding.words}"
    return f"effect seen on {seen} of {len(turn.progress.plan.changes)}{unknown}"


def _take_keeps(turn: Turn) -> None:
    for answered in turn.answers:
        target, reply = answered.ask.target, answered.reply
        if answered.ask.purpose is Purpose.KEEP:
            if reply.row is not None:
                turn.touch(target, version=reply.row.version)
            turn.ask(target, Purpose.KEPT)
        elif answered.ask.purpose is Purpose.KEPT and reply.sheet is not None:
            row = reply.sheet.knob(answered.ask.knob)
            if (
                row is not None
                and row.value == turn.progress.change_of(target).after
                and row.expires_in_seconds is None
            ):
                turn.touch(target, kept=True)


def _keep(turn: Turn) -> None:
    """Write the values without a ttl, each until it is confirmed; a lost renewal ends the patience."""
    asked = {ask.target for ask in turn.asks}
    for target, written in turn.progress.written.items():
        if written.kept or target in asked:
            continue
        if written.keep_asked_at is not None and turn.now - written.keep_asked_at < _RETRY_SECONDS:
            continue
        turn.touch(target, asked_at=turn.now, keep_asked_at=turn.now)
        turn.ask(
            target,
            Purpose.KEEP,
            value=written.change.after,
            if_version=written.version,
            reason=f"plan {turn.progress.plan.id} proven",
        )
