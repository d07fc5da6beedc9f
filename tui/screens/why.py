"""Why an alert is there, and which ones there were."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual.binding import BindingType

from tui.actions import Place
from tui.screens.base import bindings_for
from tui.screens.pages import PageScreen
from tui.screens.reading import ReadingScreen
from tui.timeline import AlertBegin
from tui.view.alert_history import history_rows
from tui.view.cells import Line
from tui.view.rows import Rows
from tui.view.why import alert_with, why_lines, why_title
from tui.widgets.ink import Inks
from tui.widgets.line_view import Complain


class WhyScreen(ReadingScreen):
    """One alert, by the key of its row."""

    PLACE = Place.WHY
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_for(Place.WHY)]

    def __init__(self, inks: Inks, complain: Complain, key: str) -> None:
        super().__init__(inks, complain)
        self._key = key

    def title_line(self, width: int) -> Line:
        """Which alert."""
        return why_title(self.picture, alert_with(self.picture, self._key), width)

    def body_lines(self, width: int) -> list[Line]:
        """All about it."""
        return why_lines(self.picture, self._key, width)


class HistoryScreen(PageScreen):
    """The alerts that `begins` tells of."""

    PLACE = Place.HISTORY
    TITLE_WORDS = "alerts that began"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_for(Place.HISTORY)]

    def __init__(self, inks: Inks, complain: Complain, begins: Callable[[], Sequence[AlertBegin]]) -> None:
        super().__init__(inks, complain)
        self._begins = begins

    def page_rows(self, width: int) -> Rows[str]:
        """The list."""
        return history_rows(self.picture, self._begins(), width)
