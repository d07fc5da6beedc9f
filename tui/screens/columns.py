"""The picker of columns: which of them the fleet has, and in which order. Kept at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual.binding import BindingType

from tui.actions import Place
from tui.screens.base import bindings_for
from tui.screens.listing import TitledListScreen
from tui.view.cells import Line
from tui.view.column_choice import Choice, choice_rows, choice_title, moved, toggled
from tui.view.rows import Rows
from tui.widgets.ink import Inks
from tui.widgets.line_view import Complain


class ColumnsScreen(TitledListScreen):
    """`choose` is told of every change; `on_screen` are the columns that the grid has now."""

    PLACE = Place.COLUMNS
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_for(Place.COLUMNS)]
    CSS_PATH = "columns.tcss"

    def __init__(
        self,
        inks: Inks,
        complain: Complain,
        choice: Choice,
        on_screen: Callable[[], Sequence[str]],
        choose: Callable[[Choice], None],
    ) -> None:
        super().__init__(inks, complain)
        self.choice = choice
        self._on_screen = on_screen
        self._choose = choose

    def title_line(self, width: int) -> Line:
        """What this list is."""
        return choice_title(self.picture, self.choice, width)

    def list_rows(self, width: int) -> Rows[str]:
        """Every column."""
        return choice_rows(self.choice, self._on_screen(), width)

    def open_row(self, key: str) -> None:
        """Show the column, or hide it."""
        self._take(toggled(self.choice, key))

    def action_shift_column(self, step: int) -> None:
        """Move the column under the cursor to the right or to the left."""
        if self.rows.cursor is not None:
            self._take(moved(self.choice, self.rows.cursor, step))

    def action_own_columns(self) -> None:
        """Back to the table's own columns."""
        self._take(())

    def _take(self, choice: Choice) -> None:
        if choice != self.choice:
            self.choice = choice
            self._choose(choice)
            self.paint()
