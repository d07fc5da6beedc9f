"""A list to choose from: a `LineView` with a cursor that belongs to a row's key, not to a line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from textual import events
from textual.message import Message

from tui.view.cells import Line
from tui.widgets.ink import Inks
from tui.widgets.line_view import Complain, LineSource, LineView


class RowSource(LineSource, Protocol):
    """Lines of which some are rows that the cursor may stand on. A row's key outlasts the picture."""

    def key(self, index: int) -> str | None:
        """The key of the row that the line belongs to; None for a heading."""

    def position(self, key: str) -> int | None:
        """The line of the row with this key; None when there is none."""

    def is_row(self, index: int) -> bool:
        """Whether the cursor may stand on the line."""


class RowList(LineView):
    """The cursor stays on its key when rows move, and moves only among rows."""

    class Opened(Message):
        """The row with this key was clicked a second time."""

        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

    def __init__(self, inks: Inks, complain: Complain, *, id: str | None = None) -> None:  # noqa: A002 - Textual's
        super().__init__(inks, complain, id=id)
        self.cursor: str | None = None
        """Key under the cursor."""
        self._rows: RowSource | None = None
        self._last_position = 0

    def show_rows(self, rows: RowSource) -> None:
        """Show new rows. A key that is gone leaves the cursor on the row that took its place."""
        self._rows = rows
        position = rows.position(self.cursor) if self.cursor is not None else None
        if position is None:
            position = self._nearest_row(self._last_position)
            self.cursor = rows.key(position) if position is not None else None
        moved = position is not None and position != self._last_position
        followed = moved and self._last_position in self.in_sight()
        if position is not None:
            self._last_position = position
        self.show(rows, position)
        if followed and position is not None:
            self._reveal_row(position)

    def show_lines(self, lines: Sequence[Line]) -> None:
        """Show lines without any row; the cursor waits where it was."""
        self._rows = None
        super().show_lines(lines)

    def has_row(self, key: str) -> bool:
        """Whether the rows last shown have this key."""
        return self._rows is not None and self._rows.position(key) is not None

    def go_to(self, key: str) -> None:
        """Move the cursor to the row with this key, if there is one."""
        position = self._rows.position(key) if self._rows is not None else None
        if position is not None:
            self._select(position)

    def cursor_lines(self) -> list[Line]:
        """The lines of the row under the cursor: itself and what belongs to it."""
        rows, key = self._rows, self.cursor
        if rows is None or key is None:
            return []
        return [rows.line(index) for index in range(len(rows)) if rows.key(index) == key]

    def move(self, steps: int) -> None:
        """Move the cursor by so many rows, stopping at the ends."""
        rows = self._rows
        if rows is None or self.cursor is None:
            return
        position = rows.position(self.cursor)
        if position is None:
            return
        step = 1 if steps > 0 else -1
        for _ in range(abs(steps)):
            following = self._row_from(position + step, step)
            if following is None:
                break
            position = following
        self._select(position)

    def move_page(self, pages: int) -> None:
        """Move the cursor by a screen of lines."""
        if self._rows is None or self.cursor is None:
            return
        lines = max(self.size.height - 1, 1) * pages
        target = max(0, min(self._last_position + lines, len(self._rows) - 1))
        position = self._row_from(target, 1 if pages > 0 else -1)
        if position is None:
            position = self._row_from(target, -1 if pages > 0 else 1)
        if position is not None:
            self._select(position)

    def move_to_end(self, direction: int) -> None:
        """Move the cursor to the first (-1) or the last (1) row."""
        if self._rows is not None and len(self._rows):
            position = self._row_from(0, 1) if direction < 0 else self._row_from(len(self._rows) - 1, -1)
            if position is not None:
                self._select(position)

    def neighbour(self, step: int) -> str | None:
        """Move to the next (1) or previous (-1) row; the key under the cursor."""
        self.move(step)
        return self.cursor

    def on_click(self, event: events.Click) -> None:
        """A click selects a row; a click on the selected row opens it."""
        index = event.y + self.scroll_offset.y
        if self._rows is None or not 0 <= index < len(self._rows):
            return
        key = self._rows.key(index)
        if key is None:
            return
        if key == self.cursor:
            self.post_message(self.Opened(key))
        else:
            self._select(self._rows.position(key) or 0)
            self.post_message(self.Moved(self))

    def _select(self, position: int) -> None:
        if self._rows is None:
            return
        self.cursor = self._rows.key(position)
        self._last_position = position
        self._reveal_row(position)
        self.show(self._rows, position)

    def _reveal_row(self, position: int) -> None:
        """Bring the row in sight, with its reason line, and with the header of its group above it."""
        rows = self._rows
        if rows is None:
            return
        after = position + 1
        if after < len(rows) and not rows.is_row(after) and rows.key(after) is not None:
            self.reveal(after)
        above = position - 1
        if above >= 0 and rows.key(above) is None:
            self.reveal(above)
        self.reveal(position)

    def _row_from(self, start: int, step: int) -> int | None:
        rows = self._rows
        if rows is None:
            return None
        position = start
        while 0 <= position < len(rows):
            if rows.is_row(position):
                return position
            position += step
        return None

    def _nearest_row(self, position: int) -> int | None:
        rows = self._rows
        if rows is None or not len(rows):
            return None
        position = min(position, len(rows) - 1)
        below = self._row_from(position, 1)
        return below if below is not None else self._row_from(position, -1)
