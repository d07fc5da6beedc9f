"""The pages about the whole fleet that are lists or texts: one screen for each of the two kinds."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType

from tui.actions import Place
from tui.screens.base import PictureScreen, bindings_for
from tui.screens.detail import DetailScreen
from tui.screens.listing import ListScreen
from tui.screens.reading import ReadingScreen
from tui.view.cells import Line, clip, plain
from tui.view.event_list import event_rows, events_verdict, next_kind
from tui.view.gpus import gpu_rows
from tui.view.latency import CurveMemory, latency_page
from tui.view.page import page_title
from tui.view.picture import Picture
from tui.view.reasoning import reasoning_rows
from tui.view.rows import Rows
from tui.view.speculation import speculation_rows
from tui.widgets.ink import Inks
from tui.widgets.line_view import Complain, LineView
from tui.widgets.row_list import RowList


class LatencyScreen(ReadingScreen):
    """Percentiles, attainment, burn and load curves."""

    PLACE = Place.LATENCY
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_for(Place.LATENCY)]

    def __init__(self, inks: Inks, complain: Complain) -> None:
        super().__init__(inks, complain)
        self._memory = CurveMemory()

    def title_line(self, width: int) -> Line:
        """The title."""
        return page_title(self.picture, "latency and goodput", width)

    def body_lines(self, width: int) -> list[Line]:
        """The page."""
        return latency_page(self.picture, width, self._memory)


class PageScreen(ListScreen):
    """A list whose rows open replicas. A subclass says what is in it."""

    TITLE_WORDS = ""

    def compose(self) -> ComposeResult:
        """Title, list, footer."""
        yield LineView(self.inks, self.complain, id="title")
        yield RowList(self.inks, self.complain, id="list")
        yield LineView(self.inks, self.complain, id="footer")

    @abstractmethod
    def rows_of(self, width: int) -> Rows[str]:
        """The list."""

    def paint(self) -> None:
        """Bring every part up to date; each fails alone."""
        if not self.can_paint:
            return
        picture, width = self.picture, self.size.width
        with self.app.batch_update():
            self.part("#title").show_lines(
                self.build_lines("title", lambda: [page_title(picture, self.TITLE_WORDS, width)])
            )
            self.paint_parts(picture, width)
            try:
                self._shown = self.rows_of(width)
            except Exception as error:  # noqa: BLE001 - the rest of the screen must go on
                self.complain(str(self.PLACE), error)
                failed = plain(f" this page failed: {type(error).__name__}: {error}", "crit")
                self.rows.show_lines([clip(failed, width)])
            else:
                self.rows.show_rows(self._shown)
            self.paint_footer(self.rows)

    def paint_parts(self, picture: Picture, width: int) -> None:
        """Parts of its own that a subclass has."""

    _shown: Rows[str] = Rows((), 0)

    def open_row(self, key: str) -> None:
        """Show the replica that a row is about."""
        url = self._shown.about(key)
        if url is not None and self.picture.replica(url) is not None:
            self.open_screen(DetailScreen(self.inks, self.complain, url, self._neighbour))

    def _neighbour(self, step: int) -> str | None:
        """The next or previous row that opens another replica."""
        before = self.rows.cursor and self._shown.about(self.rows.cursor)
        while (key := self.rows.cursor) is not None:
            following = self.rows.neighbour(step)
            url = self._shown.about(following) if following is not None else None
            if url != before or following == key:
                return url
        return None


class SpeculationScreen(PageScreen):
    """Drafts: how many, how many taken, and what the rule says."""

    PLACE = Place.SPECULATION
    TITLE_WORDS = "speculation"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_for(Place.SPECULATION)]

    def rows_of(self, width: int) -> Rows[str]:
        """The list."""
        return speculation_rows(self.picture, width)


class ReasoningScreen(PageScreen):
    """Reasoning tokens against their budgets."""

    PLACE = Place.REASONING
    TITLE_WORDS = "reasoning"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_for(Place.REASONING)]

    def rows_of(self, width: int) -> Rows[str]:
        """The list."""
        return reasoning_rows(self.picture, width)


class GpuScreen(PageScreen):
    """Every device, and who runs on it."""

    PLACE = Place.GPU
    TITLE_WORDS = "GPUs"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_for(Place.GPU)]

    def rows_of(self, width: int) -> Rows[str]:
        """The list."""
        return gpu_rows(self.picture, width)


class EventsScreen(PageScreen):
    """What happened, newest first; one kind of events, or all."""

    PLACE = Place.EVENTS
    TITLE_WORDS = "events"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_for(Place.EVENTS)]

    kind = ""

    def compose(self) -> ComposeResult:
        """Title, kinds, list, footer."""
        yield LineView(self.inks, self.complain, id="title")
        yield LineView(self.inks, self.complain, id="kinds")
        yield RowList(self.inks, self.complain, id="list")
        yield LineView(self.inks, self.complain, id="footer")

    def paint_parts(self, picture: Picture, width: int) -> None:
        """How many of each kind."""
        self.part("#kinds").show_lines(
            self.build_lines("kinds", lambda: [events_verdict(picture, width, self.kind)])
        )

    def rows_of(self, width: int) -> Rows[str]:
        """The list."""
        return event_rows(self.picture, width, self.kind)

    def action_next_kind(self) -> None:
        """Show the next kind alone; after the last one, all."""
        self.kind = next_kind(self.picture, self.kind)
        self.paint()


PAGES: Mapping[str, type[PictureScreen]] = {
    "latency": LatencyScreen,
    "speculation": SpeculationScreen,
    "reasoning": ReasoningScreen,
    "gpu": GpuScreen,
    "events": EventsScreen,
}
"""The screens of the actions with these names."""
