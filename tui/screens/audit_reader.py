"""The audit as a screen sees it: read again while the screen is on top, for others write to it too."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from textual.screen import Screen

from enginetop.fleet.change import AuditRow
from tui.control_desk import ControlDesk

AGAIN_SECONDS = 2.0
"""Between two readings. Another process may carry a change on; each reading follows the whole chain."""


class AuditReader:
    """Reads the audit for one screen. `take` is told of rows that are other than before, `tell` of trouble.

    `wanted`: whether the screen has a use for it at all now.
    """

    def __init__(
        self,
        desk: ControlDesk,
        screen: Screen[None],
        take: Callable[[Sequence[AuditRow]], None],
        tell: Callable[[str], None],
        wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        self._desk, self._screen = desk, screen
        self._take, self._tell, self._wanted = take, tell, wanted
        self._rows: Sequence[AuditRow] | None = None
        self._asking = False

    def follow(self) -> None:
        """Read now and from time to time; to be asked for once, when the screen is mounted."""
        self._screen.set_interval(AGAIN_SECONDS, self.read)
        self.read()

    def read(self) -> None:
        """Read, unless the screen is covered or still waits for an answer."""
        if self._screen.is_active and self._wanted() and not self._asking:
            self._asking = True
            self._desk.ask(self._desk.control.audit, self._have, self._failed)

    def _have(self, rows: Sequence[AuditRow]) -> None:
        self._asking = False
        if rows != self._rows:
            self._rows = rows
            self._take(rows)

    def _failed(self, message: str) -> None:
        self._asking, self._rows = False, None
        self._tell(message)
