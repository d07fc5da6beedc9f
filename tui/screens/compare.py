"""Two instants compared."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import BindingType

from tui.actions import Action, Place
from tui.screens.base import bindings_for
from tui.screens.reading import ReadingScreen
from tui.view.cells import Line
from tui.view.compare import Pair, compare_lines, compare_title
from tui.widgets.ink import Inks
from tui.widgets.line_view import Complain


class CompareScreen(ReadingScreen):
    """A replica's figures (the fleet's when `url` is None) at two instants; `pair` None: they are not set."""

    PLACE = Place.COMPARE
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_for(Place.COMPARE)]

    def __init__(self, inks: Inks, complain: Complain, pair: Pair | None, url: str | None) -> None:
        super().__init__(inks, complain)
        self._pair = pair
        self._url = url

    def title_line(self, width: int) -> Line:
        """Who, and when."""
        return compare_title(self.picture, self._pair, self._url, width)

    def body_lines(self, width: int) -> list[Line]:
        """The figures."""
        return compare_lines(self._pair, self._url, width)

    def offers(self, action: Action) -> bool:
        """Not the way to where one is."""
        return action.name != "compare" and super().offers(action)
