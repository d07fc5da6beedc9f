"""A screen with one list to choose from: the keys that move its cursor, and its footer."""

from __future__ import annotations

from abc import abstractmethod

from tui.screens.base import PictureScreen
from tui.view.cells import line_text, printable
from tui.widgets.row_list import RowList


class ListScreen(PictureScreen):
    """A subclass composes one `RowList` and a footer, and says what opening a row means."""

    @property
    def rows(self) -> RowList:
        """The list."""
        return self.query_one(RowList)

    @abstractmethod
    def open_row(self, key: str) -> None:
        """Show all about the row with this key."""

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
