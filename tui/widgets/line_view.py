"""A scrolling view of lines that sends only the lines that changed.

Textual compares no frames: what a widget declares dirty goes to the terminal. So each new set of lines is
compared with the lines last shown, and only those that differ become regions to repaint. With none there is
no refresh at all: `refresh()` without regions would repaint the whole widget.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from textual import events
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from tui.view.cells import EMPTY_LINE, Line, clip, plain
from tui.widgets.ink import Inks
from tui.widgets.loose_strip import LooseStrip


class LineSource(Protocol):
    """Lines that are drawn one at a time, when they come into sight."""

    def __len__(self) -> int: ...

    def line(self, index: int, *, selected: bool = False) -> Line:
        """The line at `index`."""


class FixedLines:
    """Lines that are all there already."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self._lines = lines

    def __len__(self) -> int:
        return len(self._lines)

    def line(self, index: int, *, selected: bool = False) -> Line:  # noqa: ARG002 - of the protocol
        """The line at `index`; a fixed line looks the same when selected."""
        return self._lines[index]


Complain = Callable[[str, Exception], None]
"""Told of an exception while a line was drawn: where, and what."""


class LineView(ScrollView, can_focus=False):
    """Shows a `LineSource`. Keys belong to the screen; this widget only scrolls and paints."""

    class Moved(Message):
        """The mouse may have brought other lines of this view in sight."""

        def __init__(self, view: LineView) -> None:
            super().__init__()
            self.view = view

    def __init__(self, inks: Inks, complain: Complain, *, id: str | None = None) -> None:  # noqa: A002 - Textual's
        super().__init__(id=id)
        self._inks = inks
        self._complain = complain
        self._source: LineSource = FixedLines(())
        self._selected: int | None = None
        self._shown: dict[int, tuple[Line, bool]] = {}
        self._drawn: dict[int, tuple[Line, bool]] = {}

    def show(self, source: LineSource, selected: int | None = None) -> None:
        """Show these lines; the one at `selected` is highlighted. Repaints what differs from before."""
        self._source = source
        self._selected = selected
        self._drawn = {}
        size, height = self.size, len(source)
        if height != self.virtual_size.height:
            self.virtual_size = Size(size.width, height)
        self._repaint_changes(size)

    def show_lines(self, lines: Sequence[Line]) -> None:
        """Show lines that are all there."""
        self.show(FixedLines(lines))

    def reveal(self, index: int) -> None:
        """Scroll just so far that the line is in sight."""
        top, height = self.scroll_offset.y, self.size.height
        if height <= 0:
            return
        if index < top:
            self.scroll_lines_to(index)
        elif index >= top + height:
            self.scroll_lines_to(index - height + 1)

    def scroll_lines_to(self, top: int) -> None:
        """Make `top` the first line in sight, as far as there are lines."""
        top = max(0, min(top, len(self._source) - self.size.height))
        if top != self.scroll_offset.y:
            self.scroll_to(y=top, animate=False, force=True)

    def on_mouse_scroll_down(self, _event: events.MouseScrollDown) -> None:
        """The wheel: Textual scrolls before the message is read."""
        self._tell_of_wheel()

    def on_mouse_scroll_up(self, _event: events.MouseScrollUp) -> None:
        """The same, upwards."""
        self._tell_of_wheel()

    def _tell_of_wheel(self) -> None:
        if self.max_scroll_y > 0:
            self.post_message(self.Moved(self))

    @property
    def line_count(self) -> int:
        """How many lines there are, in sight or not."""
        return len(self._source)

    def all_lines(self) -> Iterator[Line]:
        """Every line as it is drawn here, in sight or not."""
        width = self.size.width
        return (self._draw_anew(index, width)[0] for index in range(len(self._source)))

    def in_sight(self) -> range:
        """The lines in sight."""
        top = self.scroll_offset.y
        return range(top, min(top + self.size.height, len(self._source)))

    def render_line(self, y: int) -> Strip:
        """Textual asks for the line at row `y` of the widget."""
        index, width = y + self.scroll_offset.y, self.size.width
        line, selected = self._shown[index] = self._draw(index, width)
        return self._inks.strip(line, width, selected=selected)

    def render_lines(self, crop: Region) -> list[Strip]:
        """Textual asks for the lines in this region, as strips of its own."""
        return [LooseStrip(strip, strip.cell_length) for strip in super().render_lines(crop)]

    def _repaint_changes(self, size: Size) -> None:
        """`size` is the widget's own: Textual works it out anew whenever it is asked."""
        top, (width, height) = self.scroll_offset.y, size
        if not self.is_attached or height <= 0:
            return
        regions = []
        for y in range(height):
            drawn = self._draw(top + y, width)
            if self._shown.get(top + y) != drawn:
                self._shown[top + y] = drawn
                regions.append(Region(0, y, width, 1))
        self._shown = {index: self._shown[index] for index in range(top, top + height)}
        if regions:
            self.refresh(*regions)

    def _draw(self, index: int, width: int) -> tuple[Line, bool]:
        """The line and whether it is selected; drawn once for each set of lines."""
        drawn = self._drawn.get(index)
        if drawn is None:
            drawn = self._drawn[index] = self._draw_anew(index, width)
        return drawn

    def _draw_anew(self, index: int, width: int) -> tuple[Line, bool]:
        if not 0 <= index < len(self._source):
            return EMPTY_LINE, False
        selected = index == self._selected
        try:
            line = self._source.line(index, selected=selected)
        except Exception as error:  # noqa: BLE001 - one broken row must not take the screen with it
            self._complain("row", error)
            line = plain(f" this row failed: {type(error).__name__}: {error}", "crit")
        return clip(line, width), selected
