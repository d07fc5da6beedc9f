"""Silences (planned quiet) and acknowledgements (somebody is at it)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from enginetop.fleet.snapshot import Alert


@dataclass(frozen=True, slots=True)
class Silence:
    """Keeps alerts from being told until `until` (Unix seconds). Patterns are shell patterns.

    `target` is held against the URL and against the name of the replica.
    """

    until: float
    rule: str = "*"
    target: str = "*"
    reason: str = ""

    def covers(self, alert: Alert, replica_name: str, at: float) -> bool:
        """Whether it keeps this alert quiet at that time."""
        named = any(fnmatchcase(name, self.target) for name in (alert.target, replica_name))
        return at < self.until and named and fnmatchcase(alert.rule, self.rule)


def silenced_by(silences: Iterable[Silence], alert: Alert, replica_name: str, at: float) -> str:
    """Why an alert is silenced: the reason of the first silence that covers it; empty: it is not."""
    for silence in silences:
        if silence.covers(alert, replica_name, at):
            return silence.reason or "silenced"
    return ""
