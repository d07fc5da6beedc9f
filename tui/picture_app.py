"""The app as a shower of pictures: when it paints, on which screen, and what becomes of faults."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from textual.dom import DOMNode
from textual.timer import Timer

from tui.actions import Action
from tui.early_keys import EarlyKeys
from tui.faults import failure_line, write_fault
from tui.let_go import LetGo
from tui.linked_app import LinkedApp
from tui.moment import Moment
from tui.screens.base import PictureScreen
from tui.widgets.ink import Inks

_LOOK_AGAIN_SECONDS = 0.1
"""After so long a terminal that is behind is looked at again."""


class PictureApp(EarlyKeys, LinkedApp):
    """Paints the picture of `moment` on the screen on top; all of its screens are `PictureScreen`s.

    `clock` is that of `moment`; `fault_log` is where faults of views are written down. `actions` is the table
    of what the user can do, with his keys.
    """

    def __init__(
        self,
        moment: Moment,
        inks: Inks,
        actions: tuple[Action, ...],
        *,
        clock: Callable[[], float],
        fault_log: Path | None,
        ansi_color: bool | None,
    ) -> None:
        super().__init__(ansi_color=ansi_color)
        self.moment, self.inks, self.actions, self.clock = moment, inks, actions, clock
        self.failures: list[str] = []
        """What went wrong in the program itself, one line each; not empty: the exit code is not 0."""
        self._fault_log = fault_log
        self._painted_at: float | None = None
        self._paint_timer: Timer | None = None
        self._let_go = LetGo(lambda call: asyncio.get_running_loop().call_soon(call))

    # -- screens

    @property
    def top(self) -> PictureScreen:
        """The screen on top."""
        screen = self.screen
        assert isinstance(screen, PictureScreen)
        return screen

    @property
    def entry_to_come(self) -> bool:
        """Whether the screen on top waits for its entry."""
        screen = self.screen_stack[-1] if self.screen_stack else None
        return isinstance(screen, PictureScreen) and screen.awaits_entry

    async def on_picture_screen_entry_ready(self) -> None:
        """It has the keys now."""
        await self.hand_over_early_keys()

    def open_screen(self, screen: PictureScreen) -> None:
        """Put a screen on top; it shows the present picture at once."""
        screen.picture = self.moment.picture()
        self.push_screen(screen)

    def action_fleet(self) -> None:
        """Go back to the first screen, the fleet."""
        while len(self.screen_stack) > 1:
            self.pop_screen()

    # -- painting

    def paint(self) -> None:
        """Show the present picture on the screen on top."""
        screen = self.screen_stack[-1] if self.screen_stack else None
        if isinstance(screen, PictureScreen):
            screen.show(self.moment.picture())

    def paint_soon(self) -> None:
        """There is news: paint it when the last paint is long enough ago."""
        if self.moment.frozen_at is not None or self._paint_timer is not None:
            return
        wait = 0.0
        if self._painted_at is not None:
            wait = self._painted_at + self.paint_spacing_seconds - self.clock()
        if self.terminal_behind:
            wait = max(wait, _LOOK_AGAIN_SECONDS)
        if wait <= 0:
            self.take_and_paint()
        else:
            self._paint_timer = self.set_timer(wait, self.take_and_paint)

    def take_and_paint(self) -> None:
        """Show the newest snapshot, once the terminal has taken the former picture."""
        self._paint_timer = None
        if self.terminal_behind:
            self._paint_timer = self.set_timer(_LOOK_AGAIN_SECONDS, self.take_and_paint)
            return
        self._painted_at = self.clock()
        former = self.moment.snapshot
        self.moment.take()
        self._let_go.replaced(former, self.moment.snapshot)
        self.paint()

    def _tick(self) -> None:
        """Once a second: how long the picture is frozen or without news, and how long a value is on trial."""
        self.look_after_terminal()
        if self.moment.ages(self._painted_at) and not self.terminal_behind:
            self.paint()

    # -- faults

    def note_failure(self, where: str, error: Exception) -> None:
        """Remember a fault of a view: it is shown in its place, written down, and told in the exit code."""
        line = failure_line(where, error)
        if line not in self.failures:
            self.failures.append(line)
            if self._fault_log is not None:
                write_fault(self._fault_log, where, error, time.time())

    def begin(self, work: Awaitable[None]) -> None:
        """Run on the event loop; a fault in it must not end the program."""
        self.run_worker(work, group="errands", exit_on_error=False)

    async def run_action(
        self,
        action: str | tuple[str, str, tuple[object, ...]],
        default_namespace: DOMNode | None = None,
        namespaces: Mapping[str, DOMNode] | None = None,
    ) -> bool:
        """Carry out an action; a fault in it is told at the foot of the screen, and the rest goes on."""
        try:
            return await super().run_action(action, default_namespace, namespaces)
        except Exception as error:  # noqa: BLE001 - one key that fails must not end the program
            what = action if isinstance(action, str) else action[1]
            self.note_failure(what, error)
            screen = self.screen
            if isinstance(screen, PictureScreen):
                screen.say(f"✖ {failure_line(what, error)}", "crit")
            return True

    def _fatal_error(self) -> None:
        """Textual would print a traceback; a user gets one line."""
        error = sys.exc_info()[1]
        if isinstance(error, Exception):
            self.note_failure("the screen stopped", error)
        else:
            self.failures.append(f"the screen stopped: {type(error).__name__}")
        self._close_messages_no_wait()
