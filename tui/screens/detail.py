"""All about one replica."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual.binding import BindingType

from tui.actions import Place
from tui.screens.base import bindings_for
from tui.screens.beside import BesideScreen
from tui.screens.reading import ReadingScreen
from tui.view.cells import Line
from tui.view.detail import detail_lines, detail_title
from tui.widgets.ink import Inks
from tui.widgets.line_view import Complain


class DetailScreen(ReadingScreen):
    """One replica. `neighbour(step)` moves the fleet's cursor and returns the URL that it then stands on."""

    PLACE = Place.REPLICA
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_for(Place.REPLICA)]

    def __init__(
        self, inks: Inks, complain: Complain, url: str, neighbour: Callable[[int], str | None]
    ) -> None:
        super().__init__(inks, complain)
        self.url = url
        self._neighbour = neighbour

    @property
    def export_name(self) -> str:
        """The replica's name."""
        return self.picture.name_of(self.url)

    def exported_urls(self) -> Sequence[str]:
        """The one."""
        return [self.url]

    def title_line(self, width: int) -> Line:
        """Who this is."""
        return detail_title(self.picture, self.url, width)

    def body_lines(self, width: int) -> list[Line]:
        """All that is known."""
        return detail_lines(self.picture, self.url, width)

    def action_neighbour(self, step: int) -> None:
        """Show the next or previous replica of the list."""
        url = self._neighbour(step)
        if url is not None and url != self.url:
            self.url = url
            self.paint()

    def action_tune(self) -> None:
        """Show the advice for this replica."""
        self.post_message(self.TunersWanted(self.url))

    def action_raw_page(self) -> None:
        """Show its last page as it was served."""
        self.post_message(self.RawPageWanted(self.url))

    def action_beside(self) -> None:
        """Show another replica side by side with it."""
        self.open_screen(BesideScreen(self.inks, self.complain, self.url))
