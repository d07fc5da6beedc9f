"""The first half of a change: from the plan to the end of the canary's observation."""

from __future__ import annotations

from types import MappingProxyType

from enginetop.fleet.change import ChangeState, Verdict
from tuners.control import alone
from tuners.control.comparison import compare
from tuners.control.effect import Effect, find_effect
from tuners.control.holding import hold
from tuners.control.observe import Mark, mark
from tuners.control.preflight import check_plan
from tuners.control.progress import Purpose, Turn
from tuners.control.writing import confirm, write


def planned(turn: Turn) -> None:
    """Read the knobs of every target of the plan."""
    turn.to(ChangeState.PREFLIGHT, "reading knobs")
    for target in turn.progress.plan.targets:
        turn.ask(target, Purpose.PREFLIGHT)


def preflight(turn: Turn) -> None:
    """Hold the plan against what was read."""
    progress = turn.progress
    sheets = {answered.ask.target: answered.reply for answered in turn.answers}
    outcome = check_plan(
        progress.plan,
        turn.snapshot,
        sheets,
        now=turn.now,
        tool_version=progress.tool_version,
        settings=progress.settings,
    )
    if outcome.problems:
        turn.to(ChangeState.REFUSED, "; ".join(outcome.problems))
        return
    words = [f"approved by {progress.approved_by}", *outcome.notes]
    if outcome.sizing:
        words.append(outcome.sizing.words)
    turn.to(
        ChangeState.APPROVED,
        "; ".join(words),
        sheets=MappingProxyType(sheets),
        baselines=outcome.baselines,
        sizing=outcome.sizing,
    )


def approved(turn: Turn) -> None:
    """Write the canary."""
    if not turn.progress.baselines and not alone.seen_before(turn):
        return
    turn.to(ChangeState.CANARY, "writing the canary")
    write(turn, turn.progress.plan.canaries)


def canary(turn: Turn) -> None:
    """Wait until the canary's value is read back."""
    done, trouble, unchanged = confirm(turn, turn.progress.plan.canaries)
    if trouble and unchanged:
        turn.to(ChangeState.REFUSED, trouble, written=MappingProxyType({}))
    elif trouble:
        turn.undo(trouble)
    elif done:
        detail = f"{turn.progress.plan.canary.after} read back; warming up"
        turn.to(ChangeState.WARMUP, detail, began=turn.now, recent=())


def warm_up(turn: Turn) -> None:
    """Let the canary settle, then see whether the change has an effect at all."""
    if not hold(turn):
        return
    progress = turn.progress
    waited = turn.now - progress.since
    if waited < progress.warmup_seconds:
        return
    change = progress.plan.canary
    replica = turn.snapshot.replica(change.target)
    words = "observing"
    # a window that began before the write tells of both values
    if replica is not None and waited >= turn.snapshot.window_seconds + 2 * turn.snapshot.interval_seconds:
        written = progress.written[change.target]
        finding = find_effect(replica, change, written.before, written.settled)
        if finding.effect is Effect.CONTRADICTED:
            turn.undo(f"the value does not work on {change.target}: {finding.words}")
            return
        words = f"observing; effect {finding.effect}: {finding.words}"
        if written.takes_seconds and not replica.restarted_after(written.wrote_at):
            words += "; its pages show no restart"
    turn.to(ChangeState.OBSERVE, words, marks=(_mark(turn),))


def observe(turn: Turn) -> None:
    """Gather blocks; judge once, when all are there."""
    if not hold(turn):
        return
    progress = turn.progress
    if turn.now - progress.marks[-1].at < progress.settings.block_seconds:
        return
    marks = (*progress.marks, _mark(turn))
    turn.update(marks=marks)
    if len(marks) <= progress.settings.blocks:
        return
    if not progress.baselines:
        turn.undo(alone.outcome(turn.progress), ChangeState.HELD)
        return
    settings = progress.settings
    canaries, baselines = progress.plan.canaries, progress.baselines
    judgement = compare(marks, canaries, baselines, alpha=settings.alpha, margin=settings.margin)
    turn.update(judgement=judgement)
    if judgement.verdict is Verdict.INCONCLUSIVE:
        turn.undo(f"inconclusive: {judgement.why}", ChangeState.HELD)
    elif judgement.verdict is Verdict.WORSE:
        turn.undo(f"worse: {judgement.why}")
    else:
        turn.to(ChangeState.PROMOTE, f"{judgement.verdict}: {judgement.why}", soaking_since=turn.now)


def _mark(turn: Turn) -> Mark:
    progress = turn.progress
    return mark(turn.now, turn.snapshot, (*progress.plan.canaries, *progress.baselines))
