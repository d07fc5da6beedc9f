"""Screens that are sent whole: after a new layout nothing goes to the terminal until the lines fit it."""

from __future__ import annotations

from abc import abstractmethod

from textual.events import Resize
from textual.geometry import Region
from textual.screen import Screen
from textual.widget import Widget

from tui.sure_timers import SureTimers
from tui.widgets.line_view import LineView


class WholeScreen(SureTimers, Screen[None]):
    """Paints when its size is known, and withholds what Textual would draw of the steps of a layout."""

    def __init__(self) -> None:
        super().__init__()
        self._holds = 0
        self._parts: tuple[Widget, ...] = ()

    def on_mount(self) -> None:
        """What is on the screen from the start is there as long as the screen is."""
        self._parts = tuple(self.query_children("*"))

    @abstractmethod
    def paint_safely(self) -> None:
        """Bring every part of the screen up to date; what fails is told."""

    @property
    def can_paint(self) -> bool:
        """Whether there is something to paint on: not before the first layout, not while closing."""
        whole = bool(self._parts) and all(part.parent is self for part in self._parts)
        return whole and self.is_mounted and self.size.width > 0

    def withhold(self) -> None:
        """Send nothing to the terminal until the lines are built for the layout that comes."""
        self._holds += 1
        self.call_after_refresh(self._release)

    @property
    def withheld(self) -> bool:
        """Whether nothing is sent now."""
        return self._holds > 0

    def _release(self) -> None:
        self._holds -= 1
        if not self.withheld and self.can_paint:
            self.paint_safely()
            # Not `self.refresh()`: Textual would send what the widgets declared dirty once more, later.
            self.query(LineView).first().refresh(Region(0, 0, 1, 1))

    def _compositor_refresh(self) -> None:
        """Textual draws after every step of a layout: blank lines first, then those of the former size."""
        if not self.withheld:
            super()._compositor_refresh()

    def on_resize(self, event: Resize) -> None:
        """Lines are built for one width, so a new size wants new ones as soon as the widgets have theirs."""
        # Textual tells a screen of every layout's size once more. One that comes late, after the terminal has
        # another size, would be laid out for, told of again, and fight with the newer one for ever.
        event.size = self.app.size
        self.call_next(self.paint_safely)
        self.withhold()  # what is shown at another height only is laid out after that

    def on_screen_resume(self) -> None:
        """A screen that comes on top is sent once."""
        self.call_after_refresh(self.withhold)  # Textual has all drawn once more when styles are applied
        self.withhold()
