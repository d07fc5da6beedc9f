"""A change that reaches all at once: nothing serves beside it, so that no verdict comes of it.

What can be done is done: the same replicas are counted before it and during it, for as long and by the same
blocks, the guards hold, and the value goes back. Time alone moves such figures as well, so that a person
decides; the machine does not.
"""

from __future__ import annotations

from tuners.control.observe import JUDGED, WITHIN, Mark, increase, mark
from tuners.control.preflight import found_row
from tuners.control.progress import Progress, Turn


def seen_before(turn: Turn) -> bool:
    """Count the replicas before anything is written; True when there are as many blocks as there will be
    during the change.
    """
    progress = turn.progress
    marks = progress.marks_before
    if not marks:
        turn.note("counting before the change: there is nothing to compare with during it")
    if not marks or turn.now - marks[-1].at >= progress.settings.block_seconds:
        marks = (*marks, mark(turn.now, turn.snapshot, progress.plan.canaries))
        turn.update(marks_before=marks)
    return len(marks) > progress.settings.blocks


def outcome(progress: Progress) -> str:
    """What was counted before and during the change, and how a person puts the value in force."""
    canary, targets = progress.plan.canary, progress.plan.canaries
    before, during = (_attainment(marks, targets) for marks in (progress.marks_before, progress.marks))
    row = found_row(progress.sheets, canary)
    command = row.command(canary.after) if row is not None else ""
    words = (
        f"no verdict: {before} before, {during} with {canary.after}; time alone moves that too, and a person "
        f"decides"
    )
    return f"{words}; to keep {canary.after}: {command}" if command else words


def _attainment(marks: tuple[Mark, ...], targets: tuple[str, ...]) -> str:
    if len(marks) < 2:
        return "nothing counted"
    judged, within = (increase(marks[0], marks[-1], targets, name) for name in (JUDGED, WITHIN))
    if judged <= 0:
        return "no requests"
    return f"{100 * within / judged:.1f} % of {judged:.0f} requests within the objective"
