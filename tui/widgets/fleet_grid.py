"""The fleet grid: a `LineView` with a cursor that belongs to a target, not to a line."""

from __future__ import annotations

from textual import events
from textual.message import Message

from tui.view.table import FleetTable
from tui.widgets.ink import Inks
from tui.widgets.line_view import Complain, LineView


class FleetGrid(LineView):
    """Rows of replicas. The cursor stays on its target when rows move, and moves only among replicas."""

    class Opened(Message):
        """The row of a target was clicked a second time."""

        def __init__(self, url: str) -> None:
            super().__init__()
            self.url = url

    def __init__(self, inks: Inks, complain: Complain, *, id: str | None = None) -> None:  # noqa: A002 - Textual's
        super().__init__(inks, complain, id=id)
        self.cursor: str | None = None
        """Target URL under the cursor."""
        self._table: FleetTable | None = None
        self._last_position = 0

    def show_table(self, table: FleetTable) -> None:
        """Show a new table. A target that is gone leaves the cursor on the row that took its place."""
        self._table = table
        position = table.position(self.cursor) if self.cursor is not None else None
        if position is None:
            position = self._nearest_row(self._last_position)
            self.cursor = table.key(position) if position is not None else None
        moved = position is not None and position != self._last_position
        followed = moved and self._last_position in self.in_sight()
        if position is not None:
            self._last_position = position
        self.show(table, position)
        if followed and position is not None:
            self._reveal_row(position)

    def move(self, rows: int) -> None:
        """Move the cursor by so many replicas, stopping at the ends."""
        table = self._table
        if table is None or self.cursor is None:
            return
        position = table.position(self.cursor)
        if position is None:
            return
        step = 1 if rows > 0 else -1
        for _ in range(abs(rows)):
            following = self._row_from(position + step, step)
            if following is None:
                break
            position = following
        self._select(position)

    def move_page(self, pages: int) -> None:
        """Move the cursor by a screen of lines."""
        if self._table is None or self.cursor is None:
            return
        lines = max(self.size.height - 1, 1) * pages
        target = max(0, min(self._last_position + lines, len(self._table) - 1))
        position = self._row_from(target, 1 if pages > 0 else -1)
        if position is None:
            position = self._row_from(target, -1 if pages > 0 else 1)
        if position is not None:
            self._select(position)

    def move_to_end(self, direction: int) -> None:
        """Move the cursor to the first (-1) or the last (1) replica."""
        if self._table is not None and len(self._table):
            position = self._row_from(0, 1) if direction < 0 else self._row_from(len(self._table) - 1, -1)
            if position is not None:
                self._select(position)

    def neighbour(self, step: int) -> str | None:
        """Move to the next (1) or previous (-1) replica; the URL under the cursor."""
        self.move(step)
        return self.cursor

    def on_click(self, event: events.Click) -> None:
        """A click selects a row; a click on the selected row opens it."""
        index = event.y + self.scroll_offset.y
        if self._table is None or not 0 <= index < len(self._table):
            return
        key = self._table.key(index)
        if key is None:
            return
        if key == self.cursor:
            self.post_message(self.Opened(key))
        else:
            self._select(self._table.position(key) or 0)

    def _select(self, position: int) -> None:
        if self._table is None:
            return
        self.cursor = self._table.key(position)
        self._last_position = position
        self._reveal_row(position)
        self.show(self._table, position)

    def _reveal_row(self, position: int) -> None:
        """Bring the row in sight, with its reason line, and with the header of its group above it."""
        table = self._table
        if table is None:
            return
        after = position + 1
        if after < len(table) and not table.is_row(after) and table.key(after) is not None:
            self.reveal(after)
        above = position - 1
        if above >= 0 and table.key(above) is None:
            self.reveal(above)
        self.reveal(position)

    def _row_from(self, start: int, step: int) -> int | None:
        table = self._table
        if table is None:
            return None
        position = start
        while 0 <= position < len(table):
            if table.is_row(position):
                return position
            position += step
        return None

    def _nearest_row(self, position: int) -> int | None:
        table = self._table
        if table is None or not len(table):
            return None
        position = min(position, len(table) - 1)
        below = self._row_from(position, 1)
        return below if below is not None else self._row_from(position, -1)
