"""What is typed, read where it is wanted: on the event loop, else by a thread that sleeps until something is.

Textual's own thread looks ten times a second. A key that a thread reads waits for the interpreter five times
until it is on the loop, up to 5 ms each beside an engine at work.
"""

from __future__ import annotations

import asyncio
import os
import select
from codecs import getincrementaldecoder
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from threading import Event

from textual import constants
from textual._parser import ParseError
from textual._xterm_parser import XTermParser
from textual.events import Key
from textual.message import Message

from tui.lone_escape import ESCAPE, LoneEscape

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


class KeyParser:
    """Tells of the keys in the bytes of a terminal.

    What may be the beginning of more (an escape) is told by `rest`, once nothing has followed for Textual's
    escape delay. A sequence that Textual's parser breaks at is left out. `alt` as for `LoneEscape`.
    """

    def __init__(self, tell: Callable[[Message], None], alt: Collection[str] = ()) -> None:
        self._tell, self._parser, self._escapes = tell, XTermParser(), LoneEscape(alt)
        self._decode = getincrementaldecoder("utf-8")("replace").decode

    def take(self, block: bytes) -> None:
        """What came."""
        for character in self._decode(block):
            self._feed(self._escapes.take(character))
        self._tell_all(self._parser.tick())

    def rest(self) -> None:
        """Nothing came for a while."""
        self._tell_all(self._parser.tick())
        self._feed(self._escapes.rest())

    def _feed(self, characters: Iterable[str | None]) -> None:
        for character in characters:  # one by one, so that what follows a broken sequence is told
            if character is None:
                self._tell(Key("escape", ESCAPE))
            else:
                self._tell_all(self._parser.feed(character))

    def _tell_all(self, parsed: Iterable[Message]) -> None:
        try:
            messages = list(parsed)
        except Exception:  # noqa: BLE001 - a number too large, a part that it does not know: its parser is dead
            self._parser = XTermParser()
            return
        for message in messages:
            self._tell(message)

    def close(self) -> None:
        """Nothing will come."""
        with suppress(EOFError, ParseError):
            for _ in self._parser.feed(""):
                pass


def read_keys(
    fd: int,
    leaving: Leaving,
    tell: Callable[[Message], None],
    wait: Wait | None = None,
    alt: Collection[str] = (),
) -> None:
    """Read what is typed at `fd` and tell of it, until we leave or the input ends. OSError: it is gone.

    After a key it wakes once more, for what may be the beginning of more; there is nothing else to wake for.
    """
    wait = wait or _Poll(fd, leaving.fileno())
    parser = KeyParser(tell, alt)
    unfinished = False
    try:
        while not leaving.is_set():
            if fd in wait(constants.ESCAPE_DELAY if unfinished else None):
                block = os.read(fd, _BLOCK_BYTES)
                if not block:
                    return
                parser.take(block)
                unfinished = True
            else:
                unfinished = False
                parser.rest()
    finally:
        parser.close()


class LoopKeys:
    """The same on the running event loop, from a descriptor that never blocks.

    `lost` is told when it is gone.
    """

    def __init__(
        self,
        fd: int,
        tell: Callable[[Message], None],
        lost: Callable[[], None],
        alt: Collection[str] = (),
    ) -> None:
        self._fd, self._lost = fd, lost
        self._parser = KeyParser(tell, alt)
        self._pause: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(fd, self._read)

    def close(self) -> int:
        """Read no more; the descriptor."""
        self._loop.remove_reader(self._fd)
        if self._pause is not None:
            self._pause.cancel()
        self._parser.close()
        return self._fd

    def _read(self) -> None:
        try:
            block = os.read(self._fd, _BLOCK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            self._loop.remove_reader(self._fd)
            self._lost()
            return
        if not block:
            self._loop.remove_reader(self._fd)
            return
        self._parser.take(block)
        if self._pause is not None:
            self._pause.cancel()
        self._pause = self._loop.call_later(constants.ESCAPE_DELAY, self._parser.rest)
