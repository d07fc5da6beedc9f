"""A screen of lines to read: title, scrolling body, footer."""

from __future__ import annotations

from abc import abstractmethod

from textual.app import ComposeResult

from tui.actions import Place
from tui.screens.base import PictureScreen
from tui.view.cells import Line
from tui.widgets.line_view import LineView


class ReadingScreen(PictureScreen):
    """Title, body, footer. A subclass says what stands there."""

    PLACE = Place.HELP

    def compose(self) -> ComposeResult:
        """Title, body, footer."""
        for part in ("title", "body", "footer"):
            yield LineView(self.inks, self.complain, id=part)

    @abstractmethod
    def title_line(self, width: int) -> Line:
        """The title."""

    @abstractmethod
    def body_lines(self, width: int) -> list[Line]:
        """The body."""

    def paint(self) -> None:
        """Bring title, body and footer up to date; each fails alone."""
        width = self.size.width
        if not self.can_paint:
            return
        with self.app.batch_update():
            self.show_line("title", lambda: self.title_line(width))
            self.part("#body").show_lines(self.build_lines("body", lambda: self.body_lines(width)))
            self.paint_footer(self.part("#body"))

    def action_read(self, lines: int) -> None:
        """Scroll by lines."""
        body = self.part("#body")
        body.scroll_lines_to(body.scroll_offset.y + lines)
        self.paint_footer(self.part("#body"))

    def action_read_page(self, pages: int) -> None:
        """Scroll by pages."""
        self.action_read(pages * max(self.part("#body").size.height - 1, 1))

    def action_read_end(self, direction: int) -> None:
        """Scroll to the first (-1) or last (1) line."""
        body = self.part("#body")
        body.scroll_lines_to(0 if direction < 0 else body.line_count)
        self.paint_footer(self.part("#body"))
