"""A file of alerts: one JSON line a notice, appended; a rotated file is simply begun anew."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from enginetop.alerts.sinks.courier import Delivery
from enginetop.alerts.sinks.notice import Notice

_TAIL_BYTES = 256 * 1024


class FileSink:
    """Opens the file for every delivery, so that whoever rotates it need not tell.

    A line is written whole or not at all. Notices that a crashed run wrote and did not mark are found again
    by their ids at the end of the file, and not written twice.
    """

    resend_seconds: float | None = None

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self._path = path
        self._there: frozenset[str] | None = None

    def deliver(self, notices: Sequence[Notice]) -> Delivery:
        """See `Sink`."""
        taken = 0
        try:
            if self._there is None:
                self._there = _ids_at_end(self._path)
            handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)
            try:
                for notice in notices:
                    if notice.id not in self._there:
                        _append(handle, json.dumps(notice.document()).encode() + b"\n")
                    taken += 1
                os.fsync(handle)
            finally:
                os.close(handle)
        except OSError as error:
            return Delivery(taken, f"{self._path}: {(error.strerror or 'not writable').lower()}")
        return Delivery(taken)


def _append(handle: int, line: bytes) -> None:
    """Append a line whole. OSError when the disk has no room for it; then none of it stays."""
    size = os.fstat(handle).st_size
    written = 0
    try:
        while written < len(line):
            written += os.write(handle, line[written:])
    except OSError:
        if written:
            os.ftruncate(handle, size)
        raise


def _ids_at_end(path: Path) -> frozenset[str]:
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
            lines = file.read().splitlines()
    except FileNotFoundError:
        return frozenset()
    ids: set[str] = set()
    for line in lines:
        try:
            ids.add(str(json.loads(line)["id"]))
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
    return frozenset(ids)
