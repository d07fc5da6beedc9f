"""What is typed, read by a thread that sleeps until something is: Textual's own looks ten times a second."""

from __future__ import annotations

import os
import select
from codecs import getincrementaldecoder
from collections.abc import Callable, Collection
from contextlib import suppress
from threading import Event

from textual import constants
from textual._parser import ParseError
from textual._xterm_parser import XTermParser
from textual.message import Message

_BLOCK_BYTES = 4096

Wait = Callable[[float | None], Collection[int]]
"""Sleeps until one can be read, at most so many seconds (None: as long as it takes); those that can."""


class Leaving(Event):
    """An event that can be waited for together with a descriptor."""

    def __init__(self) -> None:
        super().__init__()
        self._reader, self._writer = os.pipe()

    def fileno(self) -> int:
        """A descriptor that can be read while the event is set."""
        return self._reader

    def set(self) -> None:
        """Set it."""
        if not self.is_set():
            super().set()
            os.write(self._writer, b"\0")

    def clear(self) -> None:
        """Take it back."""
        if self.is_set():
            super().clear()
            os.read(self._reader, 1)


class _Poll:
    def __init__(self, *fds: int) -> None:
        self._poll = select.poll()
        for fd in fds:
            self._poll.register(fd, select.POLLIN)

    def __call__(self, seconds: float | None) -> Collection[int]:
        return [fd for fd, _ in self._poll.poll(None if seconds is None else seconds * 1000)]


def read_keys(fd: int, leaving: Leaving, tell: Callable[[Message], None], wait: Wait | None = None) -> None:
    """Read what is typed at `fd` and tell of it, until we leave or the input ends. OSError: it is gone.

    What has been read but may be the beginning of more (an escape) is told once nothing has followed for
    Textual's escape delay; there is nothing else to wake up for.
    """
    wait = wait or _Poll(fd, leaving.fileno())
    parser, decode = XTermParser(), getincrementaldecoder("utf-8")("replace").decode
    unfinished = False
    try:
        while not leaving.is_set():
            if fd in wait(constants.ESCAPE_DELAY if unfinished else None):
                block = os.read(fd, _BLOCK_BYTES)
                if not block:
                    return
                text = decode(block)
                for message in parser.feed(text) if text else ():  # an empty text would end the parser
                    tell(message)
                unfinished = True
            else:
                unfinished = False
            for message in parser.tick():
                tell(message)
    finally:
        with suppress(EOFError, ParseError):
            for _ in parser.feed(""):
                pass
