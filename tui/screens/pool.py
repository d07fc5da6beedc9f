"""The advice on one pool."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import BindingType

from enginetop.fleet.snapshot import PoolAdvice
from tui.actions import Action, Place
from tui.screens.base import bindings_for
from tui.screens.reading import ReadingScreen
from tui.view.cells import Line
from tui.view.pool import pool_key, pool_lines, pool_title, pools_of
from tui.widgets.ink import Inks
from tui.widgets.line_view import Complain


class PoolScreen(ReadingScreen):
    """The advice on a pool, by the pool's key."""

    PLACE = Place.QUIET
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_for(Place.QUIET)]

    def __init__(self, inks: Inks, complain: Complain, key: str) -> None:
        super().__init__(inks, complain)
        self._key = key

    @property
    def pool(self) -> PoolAdvice | None:
        """The pool in the present picture."""
        return next((one for one in pools_of(self.picture) if pool_key(one) == self._key), None)

    def title_line(self, width: int) -> Line:
        """Which pool."""
        return pool_title(self.picture, self.pool, width)

    def body_lines(self, width: int) -> list[Line]:
        """Knob by knob."""
        return pool_lines(self.picture, self.pool, width)

    def offers(self, action: Action) -> bool:
        """No what-if: a value is asked for of a knob."""
        return action.name != "what_if" and super().offers(action)
