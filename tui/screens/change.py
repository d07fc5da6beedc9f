"""A change under way, and the changes of the past."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import BindingType

from enginetop.fleet.change import FINAL_STATES, ChangeView
from tui.actions import Action, Place
from tui.control_desk import ControlDesk
from tui.screens.audit_reader import AuditReader
from tui.screens.base import bindings_for
from tui.screens.confirm import confirm_roll_back
from tui.screens.listing import TitledListScreen
from tui.screens.reading import ReadingScreen
from tui.view.cells import Line, clip, plain
from tui.view.change import change_lines, change_title
from tui.view.past import PastChange, carried_on, past_lines, past_rows, past_title
from tui.view.rows import Rows
from tui.view.undo import Undo, can_roll_back, undo_of
from tui.widgets.ink import Inks
from tui.widgets.line_view import Complain


class ChangeScreen(ReadingScreen):
    """One change: live if the controller tells of it, else from its rows in the audit (`past`), read anew.

    The audit also has the last word on one that is over here: another process may have undone it since.
    """

    PLACE = Place.CHANGE
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_for(Place.CHANGE)]

    def __init__(
        self,
        inks: Inks,
        complain: Complain,
        desk: ControlDesk | None,
        change_id: str,
        past: PastChange | None = None,
    ) -> None:
        super().__init__(inks, complain)
        self.change_id = change_id
        self._desk = desk
        self._past = past
        self._trouble = ""
        self._audit: AuditReader | None = None
        if desk is not None:
            self._audit = AuditReader(desk, self, self._take, self._tell, self._is_not_under_way)

    def on_mount(self) -> None:
        """Follow what another process does."""
        if self._audit is not None:
            self._audit.follow()

    def _is_not_under_way(self) -> bool:
        change = self.picture.change(self.change_id)
        return self._past is not None if change is None else change.state in FINAL_STATES

    def _live(self) -> ChangeView | None:
        change = self.picture.change(self.change_id)
        return None if change is None or carried_on(change, self._past) else change

    def _take(self, changes: tuple[PastChange, ...]) -> None:
        self._past = next((one for one in changes if one.id == self.change_id), self._past)
        self._trouble = ""
        self.paint()

    def title_line(self, width: int) -> Line:
        """Which change, where, how far."""
        return change_title(self.picture, self.change_id, self._live(), width)

    def body_lines(self, width: int) -> list[Line]:
        """All that is known of it."""
        change = self._live()
        trouble = [clip(plain(f" ✖ {self._trouble}", "crit"), width)] if self._trouble else []
        if change is not None:
            return [*trouble, *change_lines(self.picture, change, width)]
        if self._past is not None:
            return [*trouble, *past_lines(self.picture, self._past, width)]
        return [*trouble, clip(plain(" the controller has not told of it yet", "dim"), width)]

    def offers(self, action: Action) -> bool:
        """A rollback only while something of the change may be in force."""
        return (action.name != "roll_back" or self._undo() is not None) and super().offers(action)

    def action_roll_back(self) -> None:
        """Undo it."""
        undo = self._undo()
        if undo is not None and self._desk is not None:
            confirm_roll_back(self, self._desk, undo, self._tell)

    def _undo(self) -> Undo | None:
        change = self._live()
        if change is not None:
            return undo_of(change) if can_roll_back(change.state) else None
        return self._past.undo if self._past is not None and can_roll_back(self._past.state) else None

    def _tell(self, trouble: str) -> None:
        self._trouble = trouble
        self.paint()


class PastScreen(TitledListScreen):
    """The changes of the audit, newest first."""

    PLACE = Place.PAST
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_for(Place.PAST)]

    def __init__(self, inks: Inks, complain: Complain, desk: ControlDesk | None) -> None:
        super().__init__(inks, complain)
        self._desk = desk
        self._audit = None if desk is None else AuditReader(desk, self, self._take, self._tell)
        self._changes: tuple[PastChange, ...] = ()
        self._message = "" if desk is not None else "no controller: the config has no [control]"

    def on_mount(self) -> None:
        """Follow the audit."""
        if self._audit is not None:
            self._audit.follow()

    def on_screen_resume(self) -> None:
        """What was written in the meantime is shown at once."""
        if self._audit is not None:
            self._audit.read()

    def title_line(self, width: int) -> Line:
        """What this list is."""
        return past_title(self.picture, len(self._changes), width)

    def list_rows(self, width: int) -> Rows[PastChange] | Line:
        """The changes, or what keeps them from being read."""
        if self._message:
            return plain(f" {self._message}", "warn")
        return past_rows(self.picture, self._changes, width)

    def open_row(self, key: str) -> None:
        """Show one change."""
        past = next((change for change in self._changes if change.id == key), None)
        self.open_screen(ChangeScreen(self.inks, self.complain, self._desk, key, past))

    def _take(self, changes: tuple[PastChange, ...]) -> None:
        self._changes, self._message = changes, ""
        self.paint()

    def _tell(self, message: str) -> None:
        self._message = message
        self.paint()
