"""What a screen shows of a change, from what the machine knows."""

from __future__ import annotations

from collections.abc import Sequence

from enginetop.fleet.change import Arm, AuditRow, ChangeState, ChangeView
from tuners.control.observe import JUDGED, WITHIN, Mark, increase
from tuners.control.paths import PATHS
from tuners.control.progress import Progress
from tuners.control.promote import next_wave, soak_left


def view_of(progress: Progress, now: float, history: Sequence[AuditRow]) -> ChangeView:
    """The view of a change at `now` (Unix seconds).

    Between blocks the arms grow with every turn; the verdict waits for the end. `expires_in_seconds` is told
    only where a path takes its value back by itself.
    """
    plan, settings = progress.plan, progress.settings
    expiries = [
        written.renewed_at + settings.ttl_seconds - now
        for written in progress.written.values()
        if not written.kept and PATHS[written.change.via].counts_down
    ]
    ends = _ends(progress)
    soaks = soak_left(progress, now) if progress.ending is None else None
    return ChangeView(
        id=plan.id,
        state=progress.state,
        since=progress.since,
        knob=plan.canary.knob,
        before=plan.canary.before,
        after=plan.canary.after,
        canary_target=plan.canary.target,
        promote_targets=plan.followers,
        block=max(0, len(progress.marks) - 1),
        blocks=settings.blocks,
        eta_seconds=_eta(progress, now),
        expires_in_seconds=max(0.0, min(expiries)) if expiries and not progress.finished else None,
        canary=_arm(ends, plan.canaries),
        baseline=_arm(ends, progress.baselines),
        verdict=progress.verdict,
        guards=progress.guards,
        detail=progress.detail,
        history=tuple(history),
        together=plan.canaries[1:],
        written=progress.changed,
        next_wave=() if soaks is None else next_wave(progress),
        soak_seconds=soaks,
    )


def _ends(progress: Progress) -> tuple[Mark, Mark] | None:
    if not progress.marks:
        return None
    last = progress.marks[-1]
    if progress.state is ChangeState.OBSERVE and progress.recent and progress.recent[-1].at > last.at:
        last = progress.recent[-1]
    return progress.marks[0], last


def _arm(ends: tuple[Mark, Mark] | None, targets: tuple[str, ...]) -> Arm | None:
    if ends is None or not targets:
        return None
    return Arm(targets, increase(*ends, targets, JUDGED), increase(*ends, targets, WITHIN))


def _eta(progress: Progress, now: float) -> float | None:
    """Seconds until the canary's observation is over; None before and after it."""
    settings = progress.settings
    if progress.ending is not None:
        return None
    if progress.state is ChangeState.WARMUP:
        observed = progress.warmup_seconds + settings.blocks * settings.block_seconds
        return max(0.0, progress.since + observed - now)
    if progress.state is ChangeState.OBSERVE:
        return max(0.0, _left(progress, now))
    return None


def _left(progress: Progress, now: float) -> float:
    """Seconds for the blocks that are left, at the pace so far: blocks end with a picture and run over."""
    marks, settings = progress.marks, progress.settings
    done = len(marks) - 1
    pace = (marks[-1].at - marks[0].at) / done if done > 0 else settings.block_seconds
    return (settings.blocks - done) * pace - (now - marks[-1].at)
