"""Journals for virtual worlds: what a controller would have on disk."""

from __future__ import annotations

from collections.abc import Sequence

from enginetop.fleet.change import AuditRow, ChangeState
from tuners.control.progress import Progress


class MemoryJournal:
    """A `Journal` that keeps everything and outlives nothing."""

    def __init__(self) -> None:
        self.rows: list[AuditRow] = []
        self.saved: list[Progress] = []
        self.stop = ""

    def save(self, progress: Progress) -> None:
        """See `Journal`."""
        if not self.saved or self.saved[-1].state is not progress.state:
            self.saved.append(progress)

    def append(self, rows: Sequence[AuditRow]) -> None:
        """See `Journal`."""
        self.rows.extend(rows)

    def stop_wanted(self, change: str) -> str:
        """See `Journal`."""
        return self.stop


class DiedError(Exception):
    """What ends a controller."""


class DiesInObservation(MemoryJournal):
    """The controller ends when it would store that it observes."""

    def save(self, progress: Progress) -> None:
        """See `Journal`."""
        if progress.state is ChangeState.OBSERVE:
            raise DiedError
