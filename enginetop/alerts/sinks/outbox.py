"""The ledger on disk: appended before anything is delivered, so that a crash loses and doubles nothing.

A sink that was told and whose mark did not reach the disk is told again after a crash, with the same id.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from enginetop.alerts.sinks.ledger import Accepts, Ledger
from enginetop.alerts.sinks.notice import Notice, stored
from enginetop.fleet.errors import ConfigError
from enginetop.fleet.snapshot import Alert

_MOST_BYTES = 256 * 1024
"""A longer file is written anew with what is still of use."""


class Outbox:
    """Notices that wait for sinks, on disk and safe between threads.

    A disk that cannot be written stops no delivery: `problem` says so, and the file is made whole as soon as
    it can be. ConfigError when another process uses the file.
    """

    def __init__(self, path: Path, sinks: Mapping[str, Accepts]) -> None:
        self._path = path
        self._ledger = Ledger(sinks)
        self._changed = threading.Condition()
        self._whole = False
        self.problem = ""
        self._lock = self._locked()
        for line in self._stored_lines():
            self._load(line)
        self._ledger.loaded()
        with self._changed:
            self._rewrite()

    def offer(self, at: float, alerts: Iterable[Alert]) -> None:
        """Tell what follows from these alerts, which are all there are at `at`."""
        with self._changed:
            notices = self._ledger.due(at, alerts)
            for notice in notices:
                self._ledger.add(notice)
            if notices:
                self._append([stored(notice, []) for notice in notices])
                self._changed.notify_all()

    def settle(self, sink: str, notices: Sequence[Notice]) -> None:
        """The sink has these, or will never take them."""
        with self._changed:
            numbers = [notice.number for notice in notices]
            self._ledger.settle(sink, numbers)
            self._append([{"n": number, "sink": sink} for number in numbers])

    def waiting(self, sink: str) -> Sequence[Notice]:
        """What a sink has not been told, oldest first."""
        with self._changed:
            return self._ledger.waiting(sink)

    def firing(self, sink: str) -> Sequence[Notice]:
        """What a sink knows to be firing."""
        with self._changed:
            return self._ledger.firing(sink)

    def told(self) -> Sequence[Alert]:
        """The alerts that fire as far as anybody was told: where a new run goes on."""
        with self._changed:
            return self._ledger.told()

    def dropped(self, sink: str) -> int:
        """How many notices a sink will never hear of because it was too far behind."""
        with self._changed:
            return self._ledger.dropped[sink]

    def wait(self, sink: str, seconds: float) -> None:
        """Return when something waits for the sink, after `wake`, or after `seconds`."""
        with self._changed:
            if not self._ledger.waiting(sink):
                self._changed.wait(seconds)

    def wake(self) -> None:
        """End every wait."""
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """Let another process use the file."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _locked(self) -> int | None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle = os.open(self._path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            self._note(error)
            return None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            raise ConfigError(
                "another `enginetop watch` delivers the alerts of this config file; stop it first"
            ) from None
        return handle

    def _stored_lines(self) -> list[bytes]:
        try:
            return self._path.read_bytes().splitlines()
        except OSError as error:
            if not isinstance(error, FileNotFoundError):
                self._note(error)
            return []

    def _load(self, line: bytes) -> None:
        try:
            self._ledger.load(json.loads(line))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return  # a torn write of a run that crashed: it had not begun to deliver it

    def _append(self, documents: Sequence[dict[str, Any]]) -> None:
        if not self._whole:
            self._rewrite()
            return
        try:
            with self._path.open("ab") as file:
                file.write(_encoded(documents))
                file.flush()
                os.fsync(file.fileno())
                long = file.tell() > _MOST_BYTES
        except OSError as error:
            self._note(error)
            return
        if long:
            self._rewrite()

    def _rewrite(self) -> None:
        beside = self._path.with_suffix(".new")
        try:
            handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(_encoded(list(self._ledger.lines())))
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self._path)
        except OSError as error:
            self._note(error)
            return
        self._whole, self.problem = True, ""

    def _note(self, error: OSError) -> None:
        self._whole = False
        self.problem = (
            f"{self._path}: {(error.strerror or 'not writable').lower()}; alerts are kept in memory"
        )


def _encoded(documents: Sequence[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(document, separators=(",", ":")).encode() + b"\n" for document in documents)
