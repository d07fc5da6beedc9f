"""The raw page of one replica, kept only while it is looked at."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.widgets import Input

from enginetop.fleet.ports import RawPages, RawScrape
from tui.actions import Place
from tui.errands import Begin, Errands
from tui.screens.base import bindings_for
from tui.screens.reading import ReadingScreen
from tui.view.cells import Line
from tui.view.grid_notes import search_line
from tui.view.picture import Picture
from tui.view.raw_page import found_text, raw_lines, raw_title
from tui.widgets.ink import Inks
from tui.widgets.line_view import Complain, LineView


class RawPageScreen(ReadingScreen):
    """Shows what `pages` keeps of the target `url`; a search leaves the lines that hold its words."""

    PLACE = Place.RAW
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_for(Place.RAW)]

    def __init__(self, inks: Inks, complain: Complain, url: str, pages: RawPages, begin: Begin) -> None:
        super().__init__(inks, complain)
        self.url = url
        self.words = ""
        self._pages = pages
        self._errands = Errands("raw page", begin, complain)
        self._asking = False
        self._scrape: RawScrape | None = None
        self._made: tuple[tuple[RawScrape | None, str, int], list[Line]] | None = None

    def compose(self) -> ComposeResult:
        """Title, page, search, footer."""
        yield LineView(self.inks, self.complain, id="title")
        yield LineView(self.inks, self.complain, id="body")
        yield LineView(self.inks, self.complain, id="found")
        yield Input(placeholder="words that a line must hold", id="search", compact=True)
        yield LineView(self.inks, self.complain, id="footer")

    def on_mount(self) -> None:
        """From now on its pages are kept."""
        self._pages.watch(self.url)

    def on_unmount(self) -> None:
        """Nobody looks any more."""
        self._pages.watch(None)

    def show(self, picture: Picture) -> None:
        """A new picture: there may be a new page."""
        super().show(picture)
        if not self._asking:
            self._asking = True
            self._errands.ask(self._pages.latest, self._have, lambda _: self._have(self._scrape))

    def _have(self, scrape: RawScrape | None) -> None:
        self._asking = False
        if scrape is not self._scrape and scrape is not None:
            self._scrape = scrape
            self.paint()

    @property
    def export_name(self) -> str:
        """Whose page."""
        return f"{self.picture.name_of(self.url)} page"

    def title_line(self, width: int) -> Line:
        """Whose page, how old."""
        return raw_title(self.picture, self.url, self._scrape, width)

    def body_lines(self, width: int) -> list[Line]:
        """The page; made anew only when it, the search or the width is another."""
        key = (self._scrape, self.words, width)
        if self._made is None or self._made[0] != key:
            self._made = (key, raw_lines(self._scrape, self.words, width))
        return self._made[1]

    def paint(self) -> None:
        """Bring every part up to date."""
        super().paint()
        if self.can_paint:
            width = self.size.width
            self.show_line("found", lambda: self._found_line(width))

    def _found_line(self, width: int) -> Line:
        return search_line(self.words, found_text(self._scrape, self.words), width)

    def action_search(self) -> None:
        """Open the search line."""
        entry = self.query_one("#search", Input)
        self.add_class("-typing")
        entry.value = self.words
        self.set_focus(entry)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """While something is typed, the key that opens the search is a character like any other."""
        if action == "search" and self.has_class("-typing"):
            return False
        return super().check_action(action, parameters)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Search while typing."""
        if event.input.id == "search":
            self.words = event.value
            self.set_class(bool(self.words.split()), "-searched")
            self.paint()
            self.action_read_end(-1)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Keep the search, give the keys back."""
        if event.input.id == "search":
            self._leave_entry()

    def action_back(self) -> None:
        """Clear the search; with none, back to the replica."""
        if self.has_class("-typing") or self.words:
            self.query_one("#search", Input).value = ""
            self._leave_entry()
        else:
            super().action_back()

    def _leave_entry(self) -> None:
        self.set_focus(None)
        self.remove_class("-typing")
        self.call_after_refresh(self.paint)
