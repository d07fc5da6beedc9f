"""The terminal at the far end of a link: how long it takes what is drawn, and that it may be gone."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, cast

from textual.app import App
from textual.drivers.linux_driver import LinuxDriver
from textual.events import Resize
from textual.geometry import Size
from textual.message import Message

from tui.key_input import Leaving, LoopKeys, read_keys
from tui.keymap import alt_letters

_MOST_PENDING = 8
"""Writes that may wait; Textual's writer blocks the event loop at 30."""
_LAST_SECONDS = 2.0
"""How long a terminal may take for the last bytes when we leave."""


class TerminalLost(Message):
    """The terminal is gone: nothing can be written to it or read from it."""


class Outlet:
    """The file that Textual's writer thread writes to: straight to the descriptor, timed, never raising.

    A descriptor of its own, since a blocked write to the interpreter's stderr would keep the process from
    ending. What the terminal takes at once is sent by the event loop, so that no thread has to wake up for
    it; the writer thread sends what has to be waited for.
    """

    def __init__(self, fd: int, lost: Callable[[], None], clock: Callable[[], float]) -> None:
        self._fd = fd
        self._tell_lost = lost
        self._clock = clock
        self._taken: list[bytes] = []
        self._put = self._done = 0
        self._began = 0.0
        self.drain_seconds = 0.0
        """How long the terminal took for what was last drawn."""
        self.lost = False
        self.ready: int | None = None
        """A descriptor of the same terminal that never blocks; None: there is none, or it is not ours now."""

    @property
    def pending(self) -> int:
        """Writes that the terminal has not taken yet."""
        return self._put - self._done

    def expect(self) -> None:
        """A write is handed over; told by the event loop."""
        if not self.pending:
            self._began = self._clock()
        self._put += 1

    def send(self, text: str) -> bytes:
        """Send a text as far as the terminal takes it now; what is left must be handed over.

        Told by the event loop.
        """
        data = text.encode("utf-8", "replace")
        if self.ready is None or self.pending or self.lost:
            return data
        try:
            data = data[os.write(self.ready, data) :]
        except OSError:  # it takes nothing now, or is gone, which the thread finds out
            return data
        if not data:
            self.drain_seconds = 0.0
        return data

    def write(self, text: str | bytes) -> int:
        """Take a text; it is sent by `flush`."""
        self._taken.append(text.encode("utf-8", "replace") if isinstance(text, str) else text)
        return len(text)

    def flush(self) -> None:
        """Send what was taken; returns when the terminal has it, or is lost."""
        taken, self._taken = self._taken, []
        data = memoryview(b"".join(taken))
        while data and not self.lost:
            try:
                data = data[os.write(self._fd, data) :]
            except BlockingIOError:  # somebody else made the terminal so
                select.select([], [self._fd], [], 1.0)
            except OSError:
                self.lost = True
                self._tell_lost()
        self._done += len(taken)
        if not self.pending:
            self.drain_seconds = self._clock() - self._began

    def fileno(self) -> int:
        """The descriptor."""
        return self._fd

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        return os.isatty(self._fd)


class PatientDriver(LinuxDriver):
    """Textual's driver for a terminal that may be slow, stalled or gone."""

    def __init__(
        self, app: App[Any], *, debug: bool = False, mouse: bool = True, size: tuple[int, int] | None = None
    ) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        stream = sys.__stderr__
        assert stream is not None  # the UI is run on a terminal only
        self.outlet = Outlet(os.dup(stream.fileno()), self._lost, time.monotonic)
        self._file = cast("Any", self.outlet)
        self.exit_event = self._leaving = Leaving()
        self._keys: LoopKeys | None = None
        self._alt = alt_letters(getattr(app, "actions", ()))
        self._taken = False

    def start_application_mode(self) -> None:
        """Take the terminal, and tell its size at every change.

        Textual reads the size in the handler of the signal. One that comes while another is handled is
        handled first, so that the older size was told last and stayed.
        """
        self._forget_ready()
        self.outlet.ready = never_blocking(self.outlet.fileno(), os.O_WRONLY)
        former = self._writer_thread
        super().start_application_mode()  # type: ignore[no-untyped-call]
        self._taken = self._writer_thread is not former  # not in the background
        loop = asyncio.get_running_loop()
        signal.signal(signal.SIGWINCH, lambda *_: loop.call_soon_threadsafe(self._tell_size))

    def resume_application_mode(self) -> None:
        """Take the terminal again. Stopped by SIGSTOP, which nobody hears, we give it back first.

        Else the modes that we set would be taken for those of the shell, and the threads be there twice.
        """
        if self._taken:
            self.suspend_application_mode()
        super().resume_application_mode()

    def _tell_size(self) -> None:
        if not self._in_band_window_resize:
            size = Size(*self._get_terminal_size())
            self._app.post_message(Resize(size, size))

    @property
    def behind(self) -> bool:
        """Whether the terminal has not taken all that was drawn."""
        return self.outlet.pending > 0

    @property
    def congested(self) -> bool:
        """Whether so much waits that drawing more could hold up the event loop."""
        return self.outlet.pending > _MOST_PENDING

    @property
    def gone(self) -> bool:
        """Whether the other end has hung up."""
        poll = select.poll()
        poll.register(self.fileno, 0)
        return self.outlet.lost or any(event & (select.POLLHUP | select.POLLERR) for _, event in poll.poll(0))

    def write(self, data: str) -> None:
        """Draw: what the terminal does not take at once is handed to the writer thread."""
        rest = self.outlet.send(data)
        if rest:
            self.outlet.expect()
            super().write(cast("str", rest))  # through Textual's queue to our own outlet

    def run_input_thread(self) -> None:
        """Read keys until we leave or the terminal is gone: on the event loop if it can be.

        This thread ends then. A key that it read would wait for the interpreter again and again.
        """
        fd = never_blocking(self.fileno, os.O_RDONLY)
        if fd is not None:
            self._loop.call_soon_threadsafe(self._read_on_loop, fd)
            return
        try:
            read_keys(self.fileno, self._leaving, self.process_message, alt=self._alt)
        except (OSError, ValueError):
            self._lost()

    def send_message(self, message: Message) -> None:
        """Hand a message to the app: from the event loop at once."""
        if self._keys is None:
            super().send_message(message)
        else:
            self._app.post_message(message)

    def _read_on_loop(self, fd: int) -> None:
        self._stop_reading()
        self._keys = LoopKeys(fd, self.process_message, self._lost, self._alt)

    def _stop_reading(self) -> None:
        if self._keys is not None:
            os.close(self._keys.close())
            self._keys = None

    def disable_input(self) -> None:
        """Read no more keys."""
        self._stop_reading()
        super().disable_input()

    def close(self) -> None:
        """End the writer thread; one that is stuck in a stalled terminal is left behind."""
        self._taken = False
        self._forget_ready()
        closing = threading.Thread(target=super().close, name="enginetop-closing", daemon=True)
        closing.start()
        closing.join(_LAST_SECONDS)

    def _forget_ready(self) -> None:
        if self.outlet.ready is not None:
            os.close(self.outlet.ready)
            self.outlet.ready = None

    def _lost(self) -> None:
        self._app.post_message(TerminalLost())


def never_blocking(fd: int, how: int) -> int | None:
    """Another descriptor of the terminal at `fd`, opened `how`, that never blocks; None: it is no terminal.

    Opened anew, since what is set on `fd` would hold for all who share it: the shell that we return to.
    """
    try:
        return os.open(os.ttyname(fd), how | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
