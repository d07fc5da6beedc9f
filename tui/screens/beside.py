"""Two replicas side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import BindingType

from tui.actions import Place
from tui.screens.base import bindings_for
from tui.screens.reading import ReadingScreen
from tui.view.beside import beside_lines, beside_title, others
from tui.view.cells import Line
from tui.widgets.ink import Inks
from tui.widgets.line_view import Complain


class BesideScreen(ReadingScreen):
    """The replica `url` and, beside it, another one that can be changed."""

    PLACE = Place.BESIDE
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_for(Place.BESIDE)]

    def __init__(self, inks: Inks, complain: Complain, url: str) -> None:
        super().__init__(inks, complain)
        self.url = url
        self._other: str | None = None

    @property
    def other(self) -> str | None:
        """Who stands beside it: the one chosen as long as it is there, else the most alike."""
        found = others(self.picture, self.url)
        return self._other if self._other in found else next(iter(found), None)

    @property
    def export_name(self) -> str:
        """Both names."""
        return f"{self.picture.name_of(self.url)} beside {self.picture.name_of(self.other or '')}"

    def exported_urls(self) -> Sequence[str]:
        """Both."""
        return [url for url in (self.url, self.other) if url is not None]

    def title_line(self, width: int) -> Line:
        """Who stands beside whom."""
        return beside_title(self.picture, self.url, self.other, width)

    def body_lines(self, width: int) -> list[Line]:
        """Both."""
        return beside_lines(self.picture, self.url, self.other, width)

    def action_other(self, step: int) -> None:
        """Another one beside it."""
        found = others(self.picture, self.url)
        if found:
            self._other = found[(found.index(self.other or "") + step) % len(found)]
            self.paint()
