"""The tuners' list: changes under way, pools, suggestions, what is left alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from textual.binding import BindingType

from enginetop.fleet.change import ChangeView
from enginetop.fleet.snapshot import PoolAdvice
from tui.actions import Action, Place
from tui.control_desk import ControlDesk
from tui.screens.audit_reader import AuditReader
from tui.screens.base import bindings_for
from tui.screens.change import ChangeScreen, PastScreen
from tui.screens.confirm import confirm_roll_back
from tui.screens.left_alone import LeftAloneScreen
from tui.screens.listing import TitledListScreen
from tui.screens.pool import PoolScreen
from tui.screens.suggestion import SuggestionScreen
from tui.screens.what_if import WhatIfScreen
from tui.view.advice import Suggestion
from tui.view.cells import Line
from tui.view.left_alone import LeftAlone
from tui.view.past import PastChange, carried_on, not_over
from tui.view.picture import Picture
from tui.view.pool import pool_key
from tui.view.rows import Rows
from tui.view.tuners import Listed, tuners_rows, tuners_title, tuners_verdict
from tui.view.undo import change_to_undo, undo_of
from tui.widgets.ink import Inks
from tui.widgets.line_view import Complain


class TunersScreen(TitledListScreen):
    """Changes under way, suggestions, and what is left alone; of one replica when `only` names its URL."""

    PLACE = Place.TUNERS
    HAS_VERDICT = True
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_for(Place.TUNERS)]

    def __init__(
        self, inks: Inks, complain: Complain, desk: ControlDesk | None, only: str | None = None
    ) -> None:
        super().__init__(inks, complain)
        self.only = only
        self._listed: Rows[Listed] = Rows((), 0)
        self._desk = desk
        self._trouble = ""
        self._audit = None if desk is None else AuditReader(desk, self, self._take, self._not_read)
        self._past: tuple[PastChange, ...] = ()
        self._unread = ""

    def on_mount(self) -> None:
        """Follow what other processes change."""
        if self._audit is not None:
            self._audit.follow()

    def title_line(self, width: int) -> Line:
        """Whose tuners."""
        return tuners_title(self.picture, width, self.only)

    def verdict_line(self, width: int) -> Line:
        """What there is to do."""
        elsewhere = [
            change
            for change in not_over(self._told_here(), self._past)
            if self.only in (None, change.began.target)
        ]
        left = sum(change.left for change in elsewhere)
        trouble = self._trouble or self._unread
        return tuners_verdict(self._told_here(), width, self.only, trouble, len(elsewhere) - left, left)

    def list_rows(self, width: int) -> Rows[Listed]:
        """The list."""
        self._listed = tuners_rows(self._told_here(), width, self.only)
        return self._listed

    def open_row(self, key: str) -> None:
        """Show the change, the pool, the suggestion or the replicas that the row stands for."""
        inks, complain = self.inks, self.complain
        match self._listed.about(key):
            case ChangeView(id=change):
                self.open_screen(ChangeScreen(inks, complain, self._desk, change))
            case PoolAdvice() as pool:
                self.open_screen(PoolScreen(inks, complain, pool_key(pool)))
            case Suggestion(replica, advice):
                self.open_screen(
                    SuggestionScreen(inks, complain, self._desk, replica.target.url, advice.knob)
                )
            case LeftAlone(action, knob):
                self.open_screen(LeftAloneScreen(inks, complain, action, knob, self.only))

    def action_what_if(self) -> None:
        """Ask what the replicas of the row under the cursor would do at a value."""
        asked = self._asked()
        if asked is not None:
            self.open_screen(WhatIfScreen(self.inks, self.complain, *asked))

    def _told_here(self) -> Picture:
        """The picture without the changes of which the audit knows better: what is past has them."""
        past = {change.id: change for change in self._past}
        changes = tuple(
            change for change in self.picture.changes if not carried_on(change, past.get(change.id))
        )
        return self.picture if changes == self.picture.changes else replace(self.picture, changes=changes)

    def _asked(self) -> tuple[Sequence[str], str] | None:
        """The target URLs and the knob of the row under the cursor; None: the row is of no knob."""
        match self._selected():
            case Suggestion(replica, advice):
                return [replica.target.url], advice.knob
            case LeftAlone(_, knob, members):
                return [member.replica.target.url for member in members], knob
        return None

    def _selected(self) -> Listed | None:
        key = self.rows.cursor if self.can_paint else None
        return None if key is None else self._listed.about(key)

    def _to_undo(self) -> ChangeView | None:
        chosen = self._selected()
        return change_to_undo(self._told_here().changes, chosen if isinstance(chosen, ChangeView) else None)

    def action_past(self) -> None:
        """Show the past changes."""
        self.open_screen(PastScreen(self.inks, self.complain, self._desk))

    def action_roll_back(self) -> None:
        """Undo the change under the cursor, or the only one under way."""
        change = self._to_undo()
        if change is not None and self._desk is not None:
            confirm_roll_back(self, self._desk, undo_of(change), self._tell)

    def offers(self, action: Action) -> bool:
        """A rollback only when there is something to undo; not the way to where one is."""
        if action.name == "tuners" and self.only is None:
            return False
        if action.name == "what_if" and self._asked() is None:
            return False
        return (action.name != "roll_back" or self._to_undo() is not None) and super().offers(action)

    def _take(self, changes: tuple[PastChange, ...]) -> None:
        self._past, self._unread = changes, ""
        self.paint()

    def _not_read(self, message: str) -> None:
        self._past, self._unread = (), message
        self.paint()

    def _tell(self, trouble: str) -> None:
        self._trouble = trouble
        self.paint()
