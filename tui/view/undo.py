"""Undoing a change: which can be undone, and what is asked before one is."""

from __future__ import annotations

from collections.abc import Sequence

from enginetop.fleet.change import FINAL_STATES, OUT_OF_FORCE, ChangeState, ChangeView
from enginetop.fleet.frozen import frozen
from tui.view.cells import EMPTY_LINE, Line, Span, clip, merge, plain
from tui.view.change_words import diff_text, state_text
from tui.view.picture import Picture


def can_roll_back(state: ChangeState) -> bool:
    """Whether something of the change may be in force: also of one that is done, or could not be undone."""
    return state not in OUT_OF_FORCE


@frozen
class Undo:
    """A change that is to be undone: `before` and `after` as it made them."""

    change: str
    target: str
    knob: str
    before: int | None
    after: int | None


def undo_of(change: ChangeView) -> Undo:
    """What undoing a change means."""
    return Undo(change.id, change.canary_target, change.knob, change.before, change.after)


def change_to_undo(changes: Sequence[ChangeView], chosen: ChangeView | None) -> ChangeView | None:
    """The chosen change, if it can be undone; else the only one that is under way."""
    if chosen is not None and can_roll_back(chosen.state):
        return chosen
    flying = [change for change in changes if change.state not in FINAL_STATES]
    return flying[0] if len(flying) == 1 else None


def undo_question(picture: Picture, undo: Undo, width: int) -> list[Line]:
    """What rolling back would do."""
    where = f"on {picture.name_of(undo.target)} and wherever else change {undo.change} has reached"
    lines: list[Line] = [
        (Span(f" {undo.knob}  ", "title"), Span(diff_text(undo.after, undo.before), "info")),
        plain(f" {where}"),
        EMPTY_LINE,
    ]
    return [clip(line, width) for line in lines]


def leave_question(picture: Picture, width: int) -> list[Line]:
    """What leaving would do to the changes under way."""
    lines: list[Line] = [
        merge(
            (
                Span(f" {change.knob}  ", "title"),
                Span(f"{diff_text(change.before, change.after)}  "),
                Span(f"on {picture.name_of(change.canary_target)} is under way ({state_text(change)})"),
            )
        )
        for change in picture.in_flight
    ]
    lines.append(plain(" leaving undoes it first: a change is never left without its watch"))
    lines.append(EMPTY_LINE)
    return [clip(line, width) for line in lines]
