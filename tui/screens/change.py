"""A change under way, and the changes of the past."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType

from enginetop.fleet.change import FINAL_STATES, AuditRow
from tui.actions import Place
from tui.control_desk import ControlDesk
from tui.screens.base import bindings_for
from tui.screens.confirm import confirm_roll_back
from tui.screens.listing import ListScreen
from tui.screens.reading import ReadingScreen
from tui.view.cells import Line, clip, plain
from tui.view.change import change_lines, change_title
from tui.view.past import PastChange, PastTable, past_changes, past_lines, past_title
from tui.widgets.ink import Inks
from tui.widgets.line_view import Complain, LineView
from tui.widgets.row_list import RowList


class ChangeScreen(ReadingScreen):
    """One change that the controller tells of, live."""

    PLACE = Place.CHANGE
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_for(Place.CHANGE)]

    def __init__(self, inks: Inks, complain: Complain, desk: ControlDesk | None, change_id: str) -> None:
        super().__init__(inks, complain)
        self.change_id = change_id
        self._desk = desk
        self._trouble = ""

    def title_line(self, width: int) -> Line:
        """Which change, where, how far."""
        change = self.picture.change(self.change_id)
        if change is None:
            return clip(plain(f" change {self.change_id}", "title"), width)
        return change_title(self.picture, change, width)

    def body_lines(self, width: int) -> list[Line]:
        """All that the controller tells of it."""
        change = self.picture.change(self.change_id)
        trouble = [clip(plain(f" ✖ {self._trouble}", "crit"), width)] if self._trouble else []
        if change is None:
            return [*trouble, clip(plain(" the controller has not told of it yet", "dim"), width)]
        return [*trouble, *change_lines(self.picture, change, width)]

    def action_roll_back(self) -> None:
        """Undo it."""
        change = self.picture.change(self.change_id)
        if change is not None and change.state not in FINAL_STATES and self._desk is not None:
            confirm_roll_back(self, self._desk, change, self._tell)

    def _tell(self, trouble: str) -> None:
        self._trouble = trouble
        self.paint()


class PastScreen(ListScreen):
    """The changes of the audit, newest first. Read when it is opened and when one comes back to it."""

    PLACE = Place.PAST
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_for(Place.PAST)]

    def __init__(self, inks: Inks, complain: Complain, desk: ControlDesk | None) -> None:
        super().__init__(inks, complain)
        self._desk = desk
        self._changes: tuple[PastChange, ...] = ()
        self._message = "" if desk is not None else "no controller: the config has no [control]"

    def compose(self) -> ComposeResult:
        """Title, list, footer."""
        yield LineView(self.inks, self.complain, id="title")
        yield RowList(self.inks, self.complain, id="list")
        yield LineView(self.inks, self.complain, id="footer")

    def on_screen_resume(self) -> None:
        """Read the audit."""
        super().on_screen_resume()
        if self._desk is not None:
            self._desk.ask(self._desk.control.audit, self._take, self._tell)

    def paint(self) -> None:
        """Bring every part up to date."""
        picture, width = self.picture, self.size.width
        if not self.can_paint:
            return
        with self.app.batch_update():
            self.part("#title").show_lines(
                self.build_lines("title", lambda: [past_title(picture, len(self._changes), width)])
            )
            if self._message:
                self.rows.show_lines([clip(plain(f" {self._message}", "warn"), width)])
            else:
                self.rows.show_rows(PastTable(picture, self._changes, width))
            self.paint_footer(self.rows)

    def open_row(self, key: str) -> None:
        """Show one change: live if the controller tells of it, else from its rows."""
        change = next((change for change in self._changes if change.id == key), None)
        if self.picture.change(key) is not None:
            self.open_screen(ChangeScreen(self.inks, self.complain, self._desk, key))
        elif change is not None:
            self.open_screen(PastChangeScreen(self.inks, self.complain, change))

    def _take(self, rows: Sequence[AuditRow]) -> None:
        self._changes, self._message = past_changes(rows), ""
        self.paint()

    def _tell(self, message: str) -> None:
        self._message = message
        self.paint()


class PastChangeScreen(ReadingScreen):
    """One change of the past."""

    PLACE = Place.QUIET
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_for(Place.QUIET)]

    def __init__(self, inks: Inks, complain: Complain, change: PastChange) -> None:
        super().__init__(inks, complain)
        self._change = change

    def title_line(self, width: int) -> Line:
        """Which change."""
        return clip(plain(f" change {self._change.id}", "title"), width)

    def body_lines(self, width: int) -> list[Line]:
        """What it was, how it ended, its rows."""
        return past_lines(self.picture, self._change, width)
