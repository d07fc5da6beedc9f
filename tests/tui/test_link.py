"""The link to the terminal: slow, stalled, resized in storms, suspended, hung up, lost. On a pty."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from textual.app import App
from textual.drivers.linux_driver import LinuxDriver

from tests.tui.snapshots import FakeSource
from tui.app import FleetApp
from tui.patient_driver import Outlet, PatientDriver

_PATIENCE_SECONDS = 30.0
_LEFT_ALTERNATE_SCREEN = b"\x1b[?1049l"


class Terminal:
    """A process on a pty, and whoever reads what it draws."""

    def __init__(self, tmp_path: Path) -> None:
        self._status = tmp_path / "status.json"
        self.leader, self.follower = pty.openpty()
        self.resize(200, 50, tell=False)
        self.before = termios.tcgetattr(self.follower)
        environ = {**os.environ, "TERM": "xterm-256color", "LANG": "C.UTF-8", "COLUMNS": "", "LINES": ""}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.pty_app", str(self._status)],
            stdin=self.follower,
            stdout=self.follower,
            stderr=self.follower,
            env=environ,
            start_new_session=True,
        )
        self.drawn = bytearray()
        self.reading = threading.Event()
        self.reading.set()
        self._over = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while not self._over:
            self.reading.wait(0.1)
            if not self.reading.is_set():
                continue
            with suppress(OSError, ValueError):
                if select.select([self.leader], [], [], 0.05)[0]:
                    self.drawn += os.read(self.leader, 1 << 16)

    def status(self) -> dict[str, Any]:
        """What the process says of itself."""
        try:
            found: dict[str, Any] = json.loads(self._status.read_text(encoding="utf-8"))
        except OSError:
            return {"ticks": 0, "turns": 0, "size": [0, 0], "pending": 0}
        return found

    def wait(self, holds: Callable[[], bool], what: str) -> None:
        """Until something holds, looking often."""
        until = time.monotonic() + _PATIENCE_SECONDS
        while not holds():
            assert time.monotonic() < until, f"{what}: {self.status()} {bytes(self.drawn[-300:])!r}"
            assert self.process.poll() is None or what == "end", bytes(self.drawn[-2000:])
            time.sleep(0.02)

    def resize(self, columns: int, lines: int, *, tell: bool = True) -> None:
        """Another size."""
        fcntl.ioctl(self.leader, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        if tell:
            self.process.send_signal(signal.SIGWINCH)

    def type(self, keys: bytes) -> None:
        """Type on the keyboard."""
        os.write(self.leader, keys)

    def end(self) -> int:
        """The exit code, once it is over."""
        self.wait(lambda: self.process.poll() is not None, "end")
        assert self.process.returncode is not None
        return self.process.returncode

    def close(self) -> None:
        """Clean up whatever is left."""
        self._over = True
        self._reader.join()
        with suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()
        for fd in (self.leader, self.follower):
            with suppress(OSError):
                os.close(fd)


@contextmanager
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    one = Terminal(tmp_path)
    try:
        one.wait(lambda: one.status()["ticks"] > 2 and b"n00" in one.drawn, "first picture")
        yield one
    finally:
        one.close()


def ended_clean(one: Terminal) -> None:
    """The terminal is as it was, and nobody saw a traceback."""
    one.wait(lambda: _LEFT_ALTERNATE_SCREEN in one.drawn, "end")
    assert b"Traceback" not in one.drawn
    assert termios.tcgetattr(one.follower) == one.before


def test_a_stalled_terminal_stops_neither_collection_nor_the_event_loop(tmp_path: Path) -> None:
    with terminal(tmp_path) as one:
        one.reading.clear()
        one.wait(lambda: one.status()["pending"] > 0, "stall")
        begun = one.status()["ticks"]

        def typed_on() -> bool:  # every key wants a frame: more than the writer's queue holds
            one.type(b"jk")
            return bool(one.status()["ticks"] > begun + 100)

        one.wait(typed_on, "keys")
        before = one.status()
        one.wait(lambda: one.status()["ticks"] > before["ticks"] + 20, "collection")
        one.wait(lambda: one.status()["turns"] > before["turns"] + 10, "event loop")
        assert 0 < one.status()["pending"] < 30
        drawn = len(one.drawn)
        one.reading.set()
        one.wait(lambda: one.status()["pending"] == 0 and len(one.drawn) > drawn, "recovery")
        one.type(b"q")
        assert one.end() == 0
        ended_clean(one)


def test_a_stalled_terminal_does_not_keep_us_from_ending(tmp_path: Path) -> None:
    with terminal(tmp_path) as one:
        one.reading.clear()
        one.wait(lambda: one.status()["pending"] > 0, "stall")
        one.process.send_signal(signal.SIGTERM)
        assert one.end() == 128 + signal.SIGTERM


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_a_signal_ends_it_in_order(tmp_path: Path, number: signal.Signals) -> None:
    with terminal(tmp_path) as one:
        one.process.send_signal(number)
        assert one.end() == 128 + number
        ended_clean(one)


def test_a_lost_terminal_ends_it(tmp_path: Path) -> None:
    with terminal(tmp_path) as one:
        one.reading.clear()
        time.sleep(0.2)  # the reader has let go of the descriptor
        os.close(one.follower)
        os.close(one.leader)
        assert one.end() == 128 + signal.SIGHUP


def test_a_storm_of_resizes_ends_at_the_last_size(tmp_path: Path) -> None:
    with terminal(tmp_path) as one:
        for number in range(60):
            one.resize(20 + 3 * number, 5 + number % 40)
        one.resize(90, 30)
        one.wait(lambda: one.status()["size"] == [90, 30], "size")
        one.type(b"q")
        assert one.end() == 0
        ended_clean(one)


def test_the_size_is_read_when_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Handlers of signals nest: what one of them had read could be told after what came later."""
    size = [80, 24]
    told: list[tuple[int, int]] = []
    monkeypatch.setattr(LinuxDriver, "start_application_mode", lambda _: None)

    async def run() -> None:
        app = App[None]()
        driver = PatientDriver(app)
        monkeypatch.setattr(driver, "_get_terminal_size", lambda: tuple(size))
        monkeypatch.setattr(app, "post_message", lambda event: told.append(tuple(event.size)))
        driver.start_application_mode()
        signal.raise_signal(signal.SIGWINCH)
        assert told == []
        size[:] = [90, 30]
        signal.raise_signal(signal.SIGWINCH)
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    former = signal.getsignal(signal.SIGWINCH)
    try:
        asyncio.run(run())
    finally:
        signal.signal(signal.SIGWINCH, former)
    assert told == [(90, 30), (90, 30)]


def test_suspended_and_continued(tmp_path: Path) -> None:
    with terminal(tmp_path) as one:
        one.type(b"\x1a")
        pid, how = os.waitpid(one.process.pid, os.WUNTRACED)
        assert pid == one.process.pid
        assert os.WIFSTOPPED(how)
        one.wait(lambda: _LEFT_ALTERNATE_SCREEN in one.drawn, "the shell's screen")
        assert termios.tcgetattr(one.follower) == one.before
        drawn = len(one.drawn)
        one.process.send_signal(signal.SIGCONT)
        one.wait(lambda: b"n00" in one.drawn[drawn:], "the picture again")
        one.type(b"q")
        assert one.end() == 0
        ended_clean(one)


def test_stopped_unasked_it_gives_back_what_it_found(tmp_path: Path) -> None:
    """By a signal that nobody can hear (`kill -STOP`, cpulimit): it has not given the terminal back."""

    def held(one: Terminal) -> tuple[int, ...]:
        return tuple(len([*Path(f"/proc/{one.process.pid}/{what}").iterdir()]) for what in ("task", "fd"))

    with terminal(tmp_path) as one:
        former = held(one)
        for _ in range(2):
            one.process.send_signal(signal.SIGSTOP)
            os.waitpid(one.process.pid, os.WUNTRACED)
            drawn = len(one.drawn)
            one.process.send_signal(signal.SIGCONT)
            one.wait(lambda start=drawn: b"n00" in one.drawn[start:], "the picture again")  # type: ignore[misc]
        one.wait(lambda: held(one) == former, "threads and files")
        one.type(b"q")
        assert one.end() == 0
        ended_clean(one)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_how_long_the_terminal_took_is_measured() -> None:
    reader, writer = os.pipe()
    clock = Clock()
    outlet = Outlet(writer, lambda: None, clock)
    outlet.expect()
    outlet.write("abc ä")
    assert outlet.pending == 1
    clock.now = 3.5
    outlet.flush()
    assert (outlet.pending, outlet.drain_seconds) == (0, 3.5)
    assert os.read(reader, 100) == "abc ä".encode()
    os.close(reader)
    os.close(writer)


def test_it_is_measured_from_the_first_write_that_waits() -> None:
    reader, writer = os.pipe()
    clock = Clock()
    outlet = Outlet(writer, lambda: None, clock)
    for text, now in (("a", 1.0), ("b", 3.0)):
        clock.now = now
        outlet.expect()
        outlet.write(text)
    clock.now = 4.5
    outlet.flush()
    assert (outlet.pending, outlet.drain_seconds) == (0, 3.5)
    clock.now = 6.0
    outlet.expect()
    outlet.write("c")
    clock.now = 6.25
    outlet.flush()
    assert outlet.drain_seconds == 0.25
    assert os.read(reader, 100) == b"abc"
    os.close(reader)
    os.close(writer)


def test_what_is_taken_in_parts_and_after_a_refusal_comes_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    write, refused = os.write, iter((False, True, False, True))

    def grudging(fd: int, data: bytes) -> int:
        if next(refused, False):
            raise BlockingIOError
        return write(fd, data[:3])

    monkeypatch.setattr("tui.patient_driver.os", SimpleNamespace(write=grudging))
    outlet = Outlet(writer, lambda: None, Clock())
    outlet.expect()
    outlet.write("0123456789")
    outlet.flush()
    assert (outlet.pending, outlet.lost) == (0, False)
    assert os.read(reader, 100) == b"0123456789"
    os.close(reader)
    os.close(writer)


def test_a_lost_terminal_is_told_once_and_swallows_the_rest() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    told: list[bool] = []
    outlet = Outlet(writer, lambda: told.append(True), Clock())
    for _ in range(3):
        outlet.expect()
        outlet.write("x")
        outlet.flush()
    assert (told, outlet.lost, outlet.pending) == ([True], True, 0)
    os.close(writer)


def test_what_a_terminal_takes_at_once_wakes_nobody() -> None:
    """And what it does not take is sent after it, in order, by whoever may wait."""
    reader, writer = os.pipe2(os.O_NONBLOCK)
    os.set_blocking(reader, True)
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    outlet = Outlet(writer, lambda: None, Clock())
    assert outlet.send("x") == b"x", "it does not know the terminal"
    outlet.ready = writer
    assert outlet.send("é") == b""
    assert (os.read(reader, 10), outlet.pending) == ("é".encode(), 0)
    rest = outlet.send("a" * 5000)
    assert rest == b"a" * 904
    outlet.expect()
    assert outlet.send("b") == b"b", "not before what waits"
    outlet.write(rest)
    assert os.read(reader, 5000) == b"a" * 4096
    outlet.flush()
    assert (os.read(reader, 5000), outlet.pending) == (rest, 0)
    assert outlet.send("c") == b""
    os.close(reader)
    os.close(writer)


@pytest.mark.parametrize(("drain", "spacing"), [(0.0, 0.5), (0.2, 0.5), (3.0, 6.0), (60.0, 10.0)])
def test_a_slow_terminal_gets_fewer_pictures(drain: float, spacing: float) -> None:
    app = FleetApp(FakeSource())
    assert app.paint_spacing_seconds == 0.5
    driver = PatientDriver.__new__(PatientDriver)
    driver.outlet = Outlet(-1, lambda: None, Clock())
    driver.outlet.drain_seconds = drain
    app._driver = driver
    assert app.paint_spacing_seconds == spacing
    behind = [app.terminal_behind]
    driver.outlet.expect()
    behind.append(app.terminal_behind)
    assert behind == [False, True]
    assert not driver.congested
    for _ in range(8):
        driver.outlet.expect()
    assert driver.congested
