"""What a knob would do at a value that somebody types; nothing is changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.widgets import Input

from tui.actions import Place
from tui.screens.base import PictureScreen, bindings_for
from tui.view.what_if import typed_lines, typed_values, what_if_prompt, what_if_title
from tui.widgets.ink import Inks
from tui.widgets.line_view import Complain, LineView


class WhatIfScreen(PictureScreen):
    """Answers while one types, by the newest picture; of the replicas with these URLs."""

    PLACE = Place.WHAT_IF
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_for(Place.WHAT_IF)]
    AUTO_FOCUS = "Input"

    def __init__(self, inks: Inks, complain: Complain, urls: Sequence[str], knob: str) -> None:
        super().__init__(inks, complain)
        self._urls = urls
        self._knob = knob

    def compose(self) -> ComposeResult:
        """Title, prompt, entry, answers, footer."""
        for part in ("title", "prompt"):
            yield LineView(self.inks, self.complain, id=part)
        yield Input(id="word", compact=True, max_length=64)
        for part in ("body", "footer"):
            yield LineView(self.inks, self.complain, id=part)

    def paint(self) -> None:
        """Bring every part up to date; each fails alone."""
        width = self.size.width
        if not self.can_paint:
            return
        typed = typed_values(self.query_one(Input).value)
        with self.app.batch_update():
            self.show_line("title", lambda: what_if_title(self.picture, self._urls, self._knob, width))
            self.show_line("prompt", lambda: what_if_prompt(typed, width))
            if not isinstance(typed, str):
                asked = [one for one in map(self.picture.replica, self._urls) if one is not None]
                lines = self.build_lines("what if", lambda: typed_lines(asked, self._knob, typed, width))
                self.part("#body").show_lines(lines)
            self.paint_footer(self.part("#body"))

    def on_input_changed(self) -> None:
        """Another value."""
        self.paint_safely()
