"""The replicas whose knob is left as it is."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import BindingType

from tui.actions import Place
from tui.screens.base import bindings_for
from tui.screens.reading import ReadingScreen
from tui.screens.what_if import WhatIfScreen
from tui.view.cells import Line
from tui.view.left_alone import left_alone_lines, left_alone_members, left_alone_title
from tui.widgets.ink import Inks
from tui.widgets.line_view import Complain


class LeftAloneScreen(ReadingScreen):
    """The replicas behind one row of what is left alone, each with its reasons."""

    PLACE = Place.QUIET
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_for(Place.QUIET)]

    def __init__(self, inks: Inks, complain: Complain, action: str, knob: str, only: str | None) -> None:
        super().__init__(inks, complain)
        self._action, self._knob, self._only = action, knob, only

    def title_line(self, width: int) -> Line:
        """Which knob, and what is advised."""
        return left_alone_title(self.picture, self._action, self._knob, width)

    def body_lines(self, width: int) -> list[Line]:
        """One paragraph a replica."""
        return left_alone_lines(self.picture, self._action, self._knob, width, self._only)

    def action_what_if(self) -> None:
        """Ask what these replicas would do at a value."""
        members = left_alone_members(self.picture, self._action, self._knob, self._only)
        urls = [member.replica.target.url for member in members]
        self.open_screen(WhatIfScreen(self.inks, self.complain, urls, self._knob))
