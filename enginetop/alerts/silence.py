"""Silences (planned quiet) and acknowledgements (somebody is at it). Pure; time is passed in."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Protocol

from enginetop.alerts.rule import Key
from enginetop.fleet.frozen import frozen
from enginetop.fleet.snapshot import Alert


@frozen
class Silence:
    """Keeps alerts from being told until `until` (Unix seconds). Patterns are shell patterns.

    `target` is held against the URL and against the name of the replica. `id` and `by` (who made it) are
    empty for a silence of the config file.
    """

    until: float
    rule: str = "*"
    target: str = "*"
    reason: str = ""
    id: str = ""
    by: str = ""

    def covers(self, alert: Alert, replica_name: str, at: float) -> bool:
        """Whether it keeps this alert quiet at that time."""
        named = any(fnmatchcase(name, self.target) for name in (alert.target, replica_name))
        return at < self.until and named and fnmatchcase(alert.rule, self.rule)


@frozen
class Acknowledgement:
    """That `by` looks after one alert since `at` (Unix seconds), until it is over."""

    key: Key
    at: float
    by: str
    note: str = ""

    @property
    def text(self) -> str:
        """Who, and the note."""
        return f"{self.by}: {self.note}" if self.note else self.by


@frozen
class Quiet:
    """What people have silenced and acknowledged besides the config file."""

    silences: tuple[Silence, ...] = ()
    acknowledgements: tuple[Acknowledgement, ...] = ()


NO_QUIET = Quiet()


class QuietSource(Protocol):
    """Where a book looks for what people have silenced and acknowledged; asked with every snapshot."""

    def read(self) -> Quiet:
        """All there is now; returns at once."""

    def forget(self, over: Iterable[Acknowledgement]) -> None:
        """These alerts are over; returns at once, and may leave it to a later call."""


class QuietDesk(QuietSource, Protocol):
    """Where people silence and acknowledge. May wait for a disk; EnginetopError says in one line why not."""

    def add(self, silence: Silence, now: float) -> tuple[Silence, str]:
        """Keep a silence, under a new id; the silence, and what else is to be said."""

    def expire(self, silence_id: str) -> Silence:
        """Take a silence back; the silence."""

    def acknowledge(self, acknowledgement: Acknowledgement) -> str:
        """Keep an acknowledgement, in place of a former one of the same alert; what else is to be said."""

    def withdraw(self, key: Key) -> None:
        """Take an acknowledgement back."""


class NobodyQuiet:
    """A `QuietSource` of runs that nobody can say anything to."""

    def read(self) -> Quiet:
        """Nothing."""
        return NO_QUIET

    def forget(self, over: Iterable[Acknowledgement]) -> None:
        """Nothing to forget."""


NOT_SILENCED: tuple[str, float | None] = ("", None)


def silenced_by(
    silences: Iterable[Silence], alert: Alert, replica_name: str, at: float
) -> tuple[str, float | None]:
    """Why an alert is silenced (the reason of the first silence that covers it) and until when (the last).

    `NOT_SILENCED` where none does.
    """
    covering = [silence for silence in silences if silence.covers(alert, replica_name, at)]
    if not covering:
        return NOT_SILENCED
    reason = ": ".join(filter(None, (covering[0].by, covering[0].reason))) or "silenced"
    return reason, max(silence.until for silence in covering)
