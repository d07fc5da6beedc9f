"""The app at the end of a link: it draws as fast as the terminal takes it, and ends in order."""

from __future__ import annotations

import asyncio
import signal

from rich.console import RenderableType
from textual.app import App
from textual.screen import Screen

from tui.patient_driver import PatientDriver
from tui.sure_timers import SureTimers
from tui.widgets.line_view import LineView

PAINT_SPACING_SECONDS = 0.5
"""Pictures are painted at most this often, however fast snapshots come."""

_DRAIN_SHARE = 2.0
"""A slow terminal gets so many times as long to take a picture as the last one took it."""
_LONGEST_SPACING_SECONDS = 10.0
_SIGNALS = (signal.SIGHUP, signal.SIGTERM)


class LinkedApp(SureTimers, App[None]):
    """An app for a terminal that may be slow, stalled or gone."""

    def __init__(self, *, ansi_color: bool | None) -> None:
        # Textual chooses its colour filters in its constructor, so it must know of an ansi theme by then.
        super().__init__(driver_class=PatientDriver, ansi_color=ansi_color)
        self._undrawn = False

    @property
    def _terminal(self) -> PatientDriver | None:
        """The driver; None while nothing is driven, as in most tests."""
        return self._driver if isinstance(self._driver, PatientDriver) else None

    @property
    def terminal_behind(self) -> bool:
        """Whether the terminal has not taken all that was drawn."""
        return self._terminal is not None and self._terminal.behind

    @property
    def paint_spacing_seconds(self) -> float:
        """Seconds between two pictures: more where the terminal is slow to take them."""
        drain = self._terminal.outlet.drain_seconds if self._terminal is not None else 0.0
        return min(max(PAINT_SPACING_SECONDS, _DRAIN_SHARE * drain), _LONGEST_SPACING_SECONDS)

    def heed_signals(self) -> None:
        """End in order when we are told to; with the exit code that shells give."""
        if self._terminal is not None:
            for number in _SIGNALS:
                asyncio.get_running_loop().add_signal_handler(number, self.end, 128 + number)

    def forget_signals(self) -> None:
        """Leave signals to others again."""
        if self._terminal is not None:
            for number in _SIGNALS:
                asyncio.get_running_loop().remove_signal_handler(number)

    def look_after_terminal(self) -> None:
        """Once in a while: draw what was left out; end when nobody sees us any more."""
        if self._terminal is None:
            return
        if self._terminal.gone:
            self.on_terminal_lost()
        elif self._undrawn and not self.terminal_behind:
            self._undrawn = False
            self.refresh(layout=True)
            for view in self.screen.query(LineView):
                view.refresh()

    def on_terminal_lost(self) -> None:
        """Nobody sees us any more."""
        self.end(128 + signal.SIGHUP)

    def end(self, code: int) -> None:
        """End the program."""
        self.exit(return_code=code)

    def _display(self, screen: Screen[object], renderable: RenderableType | None) -> None:
        """Draw, unless so much waits that the event loop would be held up: then all later, at once."""
        if self._terminal is not None and self._terminal.congested:
            self._undrawn = True
        else:
            super()._display(screen, renderable)
