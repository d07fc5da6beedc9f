"""The pages about the whole fleet that are lists or texts: one screen for each of the two kinds."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from textual.binding import BindingType

from tui.actions import Place
from tui.screens.base import PictureScreen, bindings_for
from tui.screens.detail import DetailScreen
from tui.screens.listing import TitledListScreen
from tui.screens.reading import ReadingScreen
from tui.view.cells import Line
from tui.view.event_list import event_rows, events_verdict, next_kind
from tui.view.gpus import gpu_rows
from tui.view.latency import CurveMemory, latency_page
from tui.view.page import page_title
from tui.view.reasoning import reasoning_rows
from tui.view.rows import Rows
from tui.view.speculation import speculation_rows
from tui.widgets.ink import Inks
from tui.widgets.line_view import Complain


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


class PageScreen(TitledListScreen):
    """A list whose rows open replicas. A subclass says what is in it."""

    TITLE_WORDS = ""

    def __init__(self, inks: Inks, complain: Complain) -> None:
        super().__init__(inks, complain)
        self._shown: Rows[str] = Rows((), 0)

    def title_line(self, width: int) -> Line:
        """Which page."""
        return page_title(self.picture, self.TITLE_WORDS, width)

    @abstractmethod
    def page_rows(self, width: int) -> Rows[str]:
        """The rows, each about the target URL of a replica."""

    def list_rows(self, width: int) -> Rows[str]:
        """The list."""
        self._shown = self.page_rows(width)
        return self._shown

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

    def page_rows(self, width: int) -> Rows[str]:
        """The list."""
        return speculation_rows(self.picture, width)


class ReasoningScreen(PageScreen):
    """Reasoning tokens against their budgets."""

    PLACE = Place.REASONING
    TITLE_WORDS = "reasoning"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_for(Place.REASONING)]

    def page_rows(self, width: int) -> Rows[str]:
        """The list."""
        return reasoning_rows(self.picture, width)


class GpuScreen(PageScreen):
    """Every device, and who runs on it."""

    PLACE = Place.GPU
    TITLE_WORDS = "GPUs"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_for(Place.GPU)]

    def page_rows(self, width: int) -> Rows[str]:
        """The list."""
        return gpu_rows(self.picture, width)


class EventsScreen(PageScreen):
    """What happened, newest first; one kind of events, or all."""

    PLACE = Place.EVENTS
    TITLE_WORDS = "events"
    HAS_VERDICT = True
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_for(Place.EVENTS)]

    kind = ""

    def verdict_line(self, width: int) -> Line:
        """How many of each kind."""
        return events_verdict(self.picture, width, self.kind)

    def page_rows(self, width: int) -> Rows[str]:
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
