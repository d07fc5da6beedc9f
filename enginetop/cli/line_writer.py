"""Lines on stdout of a program that runs for months: a full disk or a slow reader loses none of them."""

from __future__ import annotations

import errno
import os
import select
from collections.abc import Callable

from enginetop.cli.stdout import open_stdout

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG})
_MOST_BYTES = 16 * 1024 * 1024
_ATOMIC_BYTES = select.PIPE_BUF
"""So much can be written without waiting to a pipe that is ready at all."""


class LineWriter:
    """Writes lines to a file descriptor and keeps what cannot be written yet; for one thread.

    `tell` hears of a full disk once, and of its end. A reader that went away is a BrokenPipeError.
    """

    def __init__(self, handle: int, tell: Callable[[str], None]) -> None:
        self._handle = handle
        self._tell = tell
        self._unwritten = bytearray()
        self._troubled = False
        self._lost = 0
        self._poll = select.poll()
        self._poll.register(handle, select.POLLOUT)

    @property
    def behind(self) -> bool:
        """Whether lines wait to be written."""
        return bool(self._unwritten)

    def write(self, line: str) -> None:
        """Write one line, after those that wait. Of more than 16 MiB that wait the newest are lost."""
        text = line.encode("utf-8", "backslashreplace") + b"\n"
        if len(self._unwritten) + len(text) <= _MOST_BYTES:
            self._unwritten += text
        else:
            self._lost += 1

    def flush(self, patience_seconds: float = 0.0) -> None:
        """Write what waits; a reader that takes nothing for `patience_seconds` is left alone."""
        try:
            while self._unwritten and self._poll.poll(1000 * patience_seconds):
                del self._unwritten[: os.write(self._handle, self._unwritten[:_ATOMIC_BYTES])]
        except OSError as error:
            if error.errno not in _FULL:
                raise
            if not self._troubled:
                reason = os.strerror(error.errno or 0).lower()
                self._tell(f"stdout cannot be written: {reason}; lines are kept until it can")
            self._troubled = True
            return
        if self._troubled and not self._unwritten:
            self._troubled = False
            self._tell(f"stdout can be written again; {self._lost} lines were lost")
            self._lost = 0


def stdout_writer(tell: Callable[[str], None]) -> LineWriter:
    """A writer to stdout. ConfigError when there is none."""
    stdout = open_stdout("alerts")
    stdout.flush()
    return LineWriter(stdout.fileno(), tell)
