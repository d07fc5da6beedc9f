"""Past changes, read from the audit's rows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from enginetop.fleet.change import FINAL_STATES, AuditRow, ChangeState, ChangeView, Verdict
from enginetop.fleet.frozen import frozen
from tui.view import numbers
from tui.view.cells import Line, Span, clip, fit, merge, plain, wrap_text
from tui.view.change import history_lines
from tui.view.change_words import STATE_INK, VERDICT_INK, diff_text, state_words, verdict_text
from tui.view.figures import WIDE
from tui.view.picture import Picture
from tui.view.rows import Row, Rows
from tui.view.title import screen_title
from tui.view.undo import Undo

_LEFT = (
    "nobody carries it out any more: the process that did is gone; no other change begins before this one is "
    "undone: K does it, and so does the next start of enginetop"
)
_MAY_BE_REFUSED = frozenset(
    {ChangeState.PLANNED, ChangeState.PREFLIGHT, ChangeState.APPROVED, ChangeState.CANARY}
)
"""States from which a change ends in REFUSED: nothing was written."""


@frozen
class PastChange:
    """All rows of one change, oldest first."""

    id: str
    rows: tuple[AuditRow, ...]
    nobody_at_work: bool = False

    @property
    def left(self) -> bool:
        """Whether it is not over and nobody carries it out: the process that did is gone."""
        return self.nobody_at_work and self.state not in FINAL_STATES

    @property
    def began(self) -> AuditRow:
        """The row that the change began with, the last time that it did: its canary, its knob, its values."""
        planned = (row for row in reversed(self.rows) if row.state is ChangeState.PLANNED)
        return next(planned, self.rows[0])

    @property
    def undo(self) -> Undo:
        """What undoing it means."""
        began = self.began
        return Undo(self.id, began.target, began.knob, began.before, began.after)

    @property
    def state(self) -> ChangeState:
        """The state that it is in, or ended in.

        A plan that was carried out, or is, may be refused at another time: that changes nothing of it.
        """
        carried_out = [row.state for row in self.rows if row.state is not ChangeState.REFUSED]
        if not carried_out or carried_out[-1] in _MAY_BE_REFUSED:
            return self.rows[-1].state
        return carried_out[-1]

    @property
    def verdict(self) -> Verdict | None:
        """The verdict, if one was reached."""
        return next((row.verdict for row in reversed(self.rows) if row.verdict is not None), None)


def past_changes(rows: Sequence[AuditRow], *, nobody_at_work: bool = False) -> tuple[PastChange, ...]:
    """The changes of an audit, the one that began last first. `nobody_at_work`: none is carried out."""
    found: dict[str, list[AuditRow]] = {}
    for row in rows:
        found.setdefault(row.change, []).append(row)
    changes = [PastChange(change, tuple(own), nobody_at_work) for change, own in found.items()]
    return tuple(sorted(changes, key=lambda change: change.began.at, reverse=True))


def carried_on(change: ChangeView, past: PastChange | None) -> bool:
    """Whether another process has done more to a change that is over here: undone it, or tried to."""
    if past is None or change.state not in FINAL_STATES or past.state is change.state:
        return False
    return not change.history or past.rows[-1].at > change.history[-1].at


def not_over(picture: Picture, changes: Sequence[PastChange]) -> tuple[PastChange, ...]:
    """Those that have not ended and that another process carries out, or did until it died."""
    return tuple(
        change for change in changes if change.state not in FINAL_STATES and picture.change(change.id) is None
    )


def past_rows(picture: Picture, changes: Sequence[PastChange], width: int) -> Rows[PastChange]:
    """A row for each change, by its id."""
    return Rows((Row(partial(_line, picture, change, width), change.id, change) for change in changes), width)


def _line(picture: Picture, change: PastChange, width: int) -> Line:
    """When, where, what, and how it ended."""
    began, verdict = change.began, change.verdict
    narrow = width < WIDE
    when = numbers.date_and_time(began.at)
    name = picture.name_cell(began.target, 10 if narrow else 28)
    line = [
        Span(f" {when.partition('-')[2] if narrow else when} ", "dim"),
        Span(f"{name} ", "title"),
        Span(f"{fit(began.knob, 22)} {fit(diff_text(began.before, began.after), 13)} "),
        _state(change),
    ]
    if verdict is not None:
        line.append(Span(f" {verdict_text(verdict)}", VERDICT_INK[verdict]))
    return tuple(line)


def _state(change: PastChange) -> Span:
    words = state_words(change.state)
    return Span(f"left in {words}", "warn") if change.left else Span(words, STATE_INK[change.state])


def past_title(picture: Picture, count: int, width: int) -> Line:
    """What this list is."""
    what = f"{numbers.many(count, 'change')}, newest first" if count else "no past changes"
    return screen_title(picture, "past changes", f" · {what}", width)


def past_lines(picture: Picture, change: PastChange, width: int) -> list[Line]:
    """One past change: what it was, how it ended, and its rows."""
    began, verdict = change.began, change.verdict
    head = [
        Span(f" {began.knob}  ", "title"),
        Span(f"{diff_text(began.before, began.after)}  "),
        Span(f"on {picture.name_of(began.target)}  ", "dim"),
        _state(change),
    ]
    if verdict is not None:
        head.append(Span(f"  {verdict_text(verdict)}", VERDICT_INK[verdict]))
    lines = [merge(head), plain(f" {numbers.date_and_time(began.at)}", "dim")]
    if change.left:
        lines += [plain(f" {text}", "warn") for text in wrap_text(_LEFT, width - 2)]
    lines.append(())
    return [clip(line, width) for line in (*lines, *history_lines(picture, change.rows, width))]
