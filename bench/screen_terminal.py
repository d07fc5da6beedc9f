"""A terminal of 200x50 on a pseudo-terminal: what a program sends it, and how soon it answers a key."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Sequence

from bench.process_figures import cpu_seconds, resident_mib

WIDTH, HEIGHT = 200, 50
_SYNC_QUERY, _SYNC_ANSWER = b"\x1b[?2026$p", b"\x1b[?2026;2$y"
_FRAME = b"\x1b[?2026h"
_QUIET_SECONDS = 0.05
"""So long without a byte is the end of a frame."""


class Terminal:
    """Runs `command` on a terminal that answers what it is asked. Use as a context manager."""

    def __init__(self, command: Sequence[str]) -> None:
        self._leader, follower = pty.openpty()
        self._set_size(WIDTH, HEIGHT)
        environ = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", "LANG": "C.UTF-8"}
        environ.pop("NO_COLOR", None)
        self._child = subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower, env=environ)
        os.close(follower)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self._child.send_signal(signal.SIGKILL)
        self._child.wait()
        os.close(self._leader)

    def resize(self, width: int, height: int) -> None:
        """Make the terminal as large; the program is told."""
        self._set_size(width, height)
        self._child.send_signal(signal.SIGWINCH)

    def _set_size(self, width: int, height: int) -> None:
        fcntl.ioctl(self._leader, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def press(self, key: bytes) -> None:
        """Type."""
        os.write(self._leader, key)

    def read(self, seconds: float) -> bytes:
        """What comes next within so many seconds; empty when nothing does."""
        ready, _, _ = select.select([self._leader], [], [], seconds)
        if not ready:
            return b""
        try:
            block = os.read(self._leader, 1 << 16)
        except OSError:
            return b""
        if _SYNC_QUERY in block:
            os.write(self._leader, _SYNC_ANSWER)
        return block

    def read_for(self, seconds: float) -> int:
        """Bytes that come in so many seconds."""
        end = time.monotonic() + seconds
        count = 0
        while (left := end - time.monotonic()) > 0:
            count += len(self.read(left))
        return count

    def frames_for(self, seconds: float) -> list[int]:
        """Bytes of each frame that comes in so many seconds."""
        end = time.monotonic() + seconds
        received = bytearray()
        while (left := end - time.monotonic()) > 0:
            received += self.read(left)
        return [len(frame) for frame in received.split(_FRAME)]

    def read_until_quiet(self, longest_seconds: float = 5.0) -> int:
        """Bytes up to a pause."""
        end = time.monotonic() + longest_seconds
        count = 0
        while time.monotonic() < end and (block := self.read(_QUIET_SECONDS)):
            count += len(block)
        return count

    def wait_for(self, text: bytes, longest_seconds: float = 30.0) -> float:
        """Seconds until the text has come. TimeoutError: it did not."""
        began = time.monotonic()
        received = bytearray()
        while text not in received:
            if time.monotonic() > began + longest_seconds:
                raise TimeoutError(f"the screen never said {text.decode()!r}")
            received += self.read(0.2)
        return time.monotonic() - began

    @property
    def pid(self) -> int:
        """Of the program."""
        return self._child.pid

    def cpu_seconds(self) -> float:
        """CPU that the program has used."""
        return cpu_seconds(self._child.pid)

    def resident_mib(self) -> float:
        """Memory that the program holds."""
        return resident_mib(self._child.pid)
