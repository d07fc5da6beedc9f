"""All commands to choose from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.widgets import Input

from tui.actions import Place
from tui.commands import Command, matching
from tui.screens.base import bindings_for
from tui.screens.listing import ListScreen
from tui.view.cells import plain
from tui.view.palette import palette_rows
from tui.view.title import screen_title
from tui.widgets.ink import Inks
from tui.widgets.line_view import Complain, LineView
from tui.widgets.row_list import RowList


class PaletteScreen(ListScreen):
    """Filters while one types; enter hands the command under the cursor to `chosen`."""

    PLACE = Place.PALETTE
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_for(Place.PALETTE)]
    AUTO_FOCUS = "Input"

    def __init__(
        self, inks: Inks, complain: Complain, commands: Sequence[Command], chosen: Callable[[Command], None]
    ) -> None:
        super().__init__(inks, complain)
        self._commands = commands
        self._chosen = chosen

    def compose(self) -> ComposeResult:
        """Title, entry, list, footer."""
        yield LineView(self.inks, self.complain, id="title")
        yield Input(id="word", compact=True, placeholder="letters of a command, or of what it does")
        yield RowList(self.inks, self.complain, id="list")
        yield LineView(self.inks, self.complain, id="footer")

    def paint(self) -> None:
        """Bring every part up to date."""
        width = self.size.width
        if not self.can_paint:
            return
        found = matching(self.query_one(Input).value, self._commands)
        count = f" · {len(found)} of {len(self._commands)}"
        nothing = plain(" no such command", "warn")
        with self.app.batch_update():
            self.show_line("title", lambda: screen_title(self.picture, "commands", count, width))
            self.show_rows(str(self.PLACE), lambda: palette_rows(found, width) if found else nothing)
            self.paint_footer(self.rows)

    def on_input_changed(self) -> None:
        """Other letters: the first of what is found is chosen."""
        self.rows.cursor = None
        self.paint()
        self.rows.move_to_end(-1)

    def on_input_submitted(self) -> None:
        """Enter."""
        self.action_open()

    def open_row(self, key: str) -> None:
        """Hand the command over, once this screen is gone."""
        command = next(command for command in self._commands if command.word == key)
        self.dismiss()
        self.app.call_later(self._chosen, command)
