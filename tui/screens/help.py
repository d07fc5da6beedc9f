"""The help page."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import BindingType

from tui.actions import Place
from tui.screens.base import bindings_for
from tui.screens.reading import ReadingScreen
from tui.view.cells import Line, clip, plain
from tui.view.help import help_lines


class HelpScreen(ReadingScreen):
    """Keys, filter, states, marks and columns, all from the tables that the screens use."""

    PLACE = Place.HELP
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_for(Place.HELP)]

    def title_line(self, width: int) -> Line:
        """The title."""
        return clip(plain(" enginetop help", "title"), width)

    def body_lines(self, width: int) -> list[Line]:
        """The help text."""
        return help_lines(width, read_only=self.picture.read_only, actions=self.picture.actions)
