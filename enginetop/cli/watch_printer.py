"""What `watch` prints: the changes that each look brought, and heartbeats."""

from __future__ import annotations

from enginetop.alerts.book import AlertEvent
from enginetop.alerts.sinks.desk import Desk
from enginetop.cli import exit_codes
from enginetop.cli.line_writer import LineWriter
from enginetop.cli.watch_lines import Lines
from enginetop.fleet.snapshot import FleetSnapshot

_LAST_SECONDS = 5.0
"""How long a reader may take for the last lines."""

Look = tuple[FleetSnapshot, tuple[AlertEvent, ...]]
"""A snapshot, and what became of alerts in it."""


class Printer:
    """Prints what a look brought, and heartbeats by the clock of the snapshots."""

    def __init__(self, writer: LineWriter, lines: Lines, heartbeat_seconds: float | None) -> None:
        self._writer = writer
        self._lines = lines
        self._every = heartbeat_seconds
        self._beaten_at: float | None = None
        self._before: FleetSnapshot | None = None

    def take(self, look: Look, desk: Desk | None) -> None:
        """Print the changes of one snapshot, and a heartbeat when it is time."""
        snapshot, events = look
        if events:
            names = snapshot.names
            for event in events:
                self._writer.write(self._lines.alert(event, names))
        if self._before is not None:
            for line in self._lines.changes(snapshot, self._before):
                self._writer.write(line)
        self._before = snapshot
        if self._every is None:
            return
        last = self._beaten_at
        if last is None or not 0 <= snapshot.at - last < self._every:
            self._beaten_at = snapshot.at
            self._writer.write(self._lines.heartbeat(snapshot, desk.health() if desk is not None else ()))
            for line in self._lines.replicas(snapshot):
                self._writer.write(line)

    def flush(self, patience_seconds: float = 0.0) -> None:
        """Try to print what waits for the disk or the reader."""
        self._writer.flush(patience_seconds)

    def end(self) -> int:
        """The exit code: whether every line was printed."""
        self._writer.flush(_LAST_SECONDS)
        return exit_codes.INTERNAL if self._writer.behind else exit_codes.OK
