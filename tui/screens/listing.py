"""Screens with one list to choose from: the keys that move its cursor, and what stands around it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar

from textual.app import ComposeResult

from tui.screens.base import PictureScreen
from tui.view.cells import Line, clip, line_text, printable
from tui.widgets.line_view import LineView
from tui.widgets.row_list import RowList, RowSource


class ListScreen(PictureScreen):
    """A subclass composes one `RowList` and a footer, and says what opening a row means."""

    @property
    def rows(self) -> RowList:
        """The list."""
        return self.query_one(RowList)

    @abstractmethod
    def open_row(self, key: str) -> None:
        """Show all about the row with this key."""

    def show_rows(self, where: str, build: Callable[[], RowSource | Line]) -> None:
        """The rows of the list, or a line that says why there are none; if building fails, that it does."""
        try:
            found = build()
        except Exception as error:  # noqa: BLE001 - the rest of the screen must go on
            self.rows.show_lines([self.failed_line(where, error)])
        else:
            if isinstance(found, tuple):
                self.rows.show_lines([clip(found, self.size.width)])
            else:
                self.rows.show_rows(found)

    def copied_text(self) -> str:
        """The row under the cursor with its reason."""
        return "\n".join(printable(line_text(line)).strip() for line in self.rows.cursor_lines())

    def action_cursor(self, steps: int) -> None:
        """Move the cursor by rows."""
        self.rows.move(steps)
        self.paint_footer(self.rows)

    def action_cursor_page(self, pages: int) -> None:
        """Move the cursor by pages."""
        self.rows.move_page(pages)
        self.paint_footer(self.rows)

    def action_cursor_end(self, direction: int) -> None:
        """Move the cursor to an end."""
        self.rows.move_to_end(direction)
        self.paint_footer(self.rows)

    def action_open(self) -> None:
        """Open the row under the cursor, if it is on the screen."""
        key = self.rows.cursor
        if key is not None and self.rows.has_row(key):
            self.open_row(key)

    def on_row_list_opened(self, message: RowList.Opened) -> None:
        """A row was clicked twice."""
        self.open_row(message.key)


class TitledListScreen(ListScreen):
    """A title, a verdict where `HAS_VERDICT`, the list, a footer. A subclass says what stands there."""

    HAS_VERDICT: ClassVar[bool] = False

    def compose(self) -> ComposeResult:
        """Title, verdict, list, footer."""
        yield LineView(self.inks, self.complain, id="title")
        if self.HAS_VERDICT:
            yield LineView(self.inks, self.complain, id="verdict")
        yield RowList(self.inks, self.complain, id="list")
        yield LineView(self.inks, self.complain, id="footer")

    @abstractmethod
    def title_line(self, width: int) -> Line:
        """What this list is."""

    def verdict_line(self, width: int) -> Line:  # noqa: ARG002 - for those that have one
        """What the list comes to; asked where `HAS_VERDICT`."""
        return ()

    @abstractmethod
    def list_rows(self, width: int) -> RowSource | Line:
        """The rows, or a line that says why there are none."""

    def paint(self) -> None:
        """Bring every part up to date; each fails alone."""
        if not self.can_paint:
            return
        width = self.size.width
        with self.app.batch_update():
            self.show_line("title", lambda: self.title_line(width))
            if self.HAS_VERDICT:
                self.show_line("verdict", lambda: self.verdict_line(width))
            self.show_rows(str(self.PLACE), lambda: self.list_rows(width))
            self.paint_footer(self.rows)
