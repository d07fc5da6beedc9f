"""The audit as a screen sees it: read again while the screen is on top, for others write to it too."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from textual.screen import Screen

from enginetop.fleet.change import AuditRow
from tui.control_desk import ControlDesk
from tui.view.past import PastChange, past_changes

AGAIN_SECONDS = 2.0
"""Between two readings. Another process may carry a change on; each reading follows the whole chain."""


class AuditReader:
    """Reads the audit for one screen. `take` is told of the changes when they differ, `tell` of trouble.

    `wanted`: whether the screen has a use for it at all now.
    """

    def __init__(
        self,
        desk: ControlDesk,
        screen: Screen[None],
        take: Callable[[tuple[PastChange, ...]], None],
        tell: Callable[[str], None],
        wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        self._desk, self._screen = desk, screen
        self._take, self._tell, self._wanted = take, tell, wanted
        self._found: tuple[Sequence[AuditRow], str] | None = None
        self._asking = False

    def follow(self) -> None:
        """Read now and from time to time; to be asked for once, when the screen is mounted."""
        self._screen.set_interval(AGAIN_SECONDS, self.read)
        self.read()

    def read(self) -> None:
        """Read, unless the screen is covered or still waits for an answer."""
        if self._screen.is_active and self._wanted() and not self._asking:
            self._asking = True
            self._desk.ask(self._look, self._have, self._failed)

    def _look(self) -> tuple[Sequence[AuditRow], str]:
        # who ends in between wrote his last row behind what is read, who begins his first
        before, rows = self._desk.control.at_work(), self._desk.control.audit()
        return rows, before or self._desk.control.at_work()

    def _have(self, found: tuple[Sequence[AuditRow], str]) -> None:
        self._asking = False
        if found != self._found:
            self._found = found
            rows, at_work = found
            self._take(past_changes(rows, nobody_at_work=not at_work))

    def _failed(self, message: str) -> None:
        self._asking, self._found = False, None
        self._tell(message)
