"""What a knob would do at a value that somebody types; nothing is changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.widgets import Input

from tui.actions import Place
from tui.screens.base import PictureScreen, bindings_for
from tui.view.cells import Line, Span, clip, plain, printable, spread
from tui.view.heading import badges
from tui.view.what_if import typed_lines, typed_values
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
            self.part("#title").show_lines(self.build_lines("title", lambda: [self._title(width)]))
            self.part("#prompt").show_lines([clip(self._prompt(typed), width)])
            if not isinstance(typed, str):
                self.part("#body").show_lines(self.build_lines("what if", lambda: self._body(typed, width)))
            self.paint_footer(self.part("#body"))

    def _title(self, width: int) -> Line:
        urls = self._urls
        who = self.picture.name_of(urls[0]) if len(urls) == 1 else f"{len(urls)} replicas"
        left = (Span(" what if", "title"), Span(f" · {who} · {self._knob}"))
        return spread(left, badges(self.picture), width)

    def _prompt(self, typed: tuple[int, ...] | str) -> Line:
        if isinstance(typed, str):
            return plain(f" {printable(typed)}", "warn")
        return (Span(" type "), Span("a value", "key"), Span(", or some: it is told, not set; esc leaves it"))

    def _body(self, values: tuple[int, ...], width: int) -> list[Line]:
        found = [replica for replica in map(self.picture.replica, self._urls) if replica is not None]
        return typed_lines(found, self._knob, values, width)

    def on_input_changed(self) -> None:
        """Another value."""
        self.paint_safely()
