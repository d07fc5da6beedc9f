"""A fleet, a watch and a screen under faults that are put on one after the other."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TypeVar

from bench.screen_terminal import HEIGHT, WIDTH, Terminal
from bench.soak_faults import REPLICA_FAULTS, RULES
from bench.soak_figures import Growth, Row, starved_seconds
from bench.soak_fleet import FaultyFleet, Mode
from bench.soak_receiver import Receiver

_SERVING = {"ok", "idle", "no_progress"}
_STATE = re.compile(r'^enginetop_replica_state\{.*name="(r\d+|nobody)".*state="(\w+)".*\} 1(?:\.0)?$', re.M)
_DOUBT = re.compile(
    r'^enginetop_replica_(?:failed_looks|unanswered_seconds)\{.*name="(r\d+|nobody)".*\} (?!0\.0$)', re.M
)
FAKETIME = tuple(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
"""The library that shows a process another wall clock; empty where it is not installed."""
_DISK_BYTES = 1 << 20
_LEAST_DESCRIPTORS = 3
_LONGEST_BACKOFF_SECONDS = 60.0

T = TypeVar("T")


class Soak:
    """A watch, a screen and a fleet, and what was seen of each fault."""

    def __init__(self, folder: Path, replicas: int, interval: float, hold: float) -> None:
        self.interval, self.hold = interval, hold
        self.gap_seconds = interval / 4
        """Between two looks at the watch, whose page costs it a part of a second."""
        self.rows: list[Row] = []
        self.watch_growth, self.screen_growth = Growth(), Growth()
        self._folder = folder
        self._replicas = replicas
        self._clock = folder / "clock"
        self._stalled = threading.Event()
        self._ended = threading.Event()
        self.painted = 0
        self.silent_seconds = 0.0

    @contextlib.contextmanager
    def running(self) -> Iterator[Soak]:
        """Everything is up and every replica was looked at."""
        with (
            FaultyFleet(self._replicas) as self.fleet,
            _small_disk(self._folder / "state") as self.small,
            contextlib.closing(Receiver()) as self.receiver,
        ):
            config = self._configure()
            common = ["--config", str(config), "--interval", f"{self.interval:g}"]
            environ = {**os.environ, "XDG_STATE_HOME": str(self._folder / "state")}
            self._clock.write_text("+0")
            faked = {
                "LD_PRELOAD": str(FAKETIME[0]) if FAKETIME else "",
                "FAKETIME_TIMESTAMP_FILE": str(self._clock),
                "FAKETIME_CACHE_DURATION": "1",
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            }
            said = (self._folder / "watch.err").open("w+")
            command = [sys.executable, "-m", "enginetop", "watch", *common, "--listen", "127.0.0.1:0"]
            with (
                said,
                subprocess.Popen(
                    command, env={**environ, **faked}, stdout=subprocess.DEVNULL, stderr=said
                ) as self.watch,
                Terminal([sys.executable, "-m", "enginetop", *common]) as self.terminal,
            ):
                reader = threading.Thread(target=self._read_screen, daemon=True)
                reader.start()
                try:
                    self._metrics = self._address(self._folder / "watch.err")
                    if not self._until(self._all_serve, 60):
                        told = (self._folder / "watch.err").read_text()
                        raise RuntimeError(f"the watch does not see all replicas serve: {told}")
                    yield self
                finally:
                    self._ended.set()
                    reader.join()
                    self.watch.terminate()

    def states(self) -> dict[str, str]:
        """The state of each replica as the watch tells it; empty when it does not answer."""
        return dict(_STATE.findall(self._page()))

    def _page(self) -> str:
        try:
            with urllib.request.urlopen(f"{self._metrics}/metrics", timeout=5) as answer:
                return str(answer.read().decode())
        except OSError:
            return ""

    def _all_serve(self) -> bool:
        states = self.states()
        return sum(state in _SERVING for state in states.values()) >= self._replicas

    def _strike(self, mode: Mode, rule: str, name: str, number: int) -> Row:
        """Put the fault on, hold it until its alert must fire, and take it away."""
        row, replica, url = Row(name, alert=rule), f"r{number}", self.fleet.urls[number]
        starved, began = starved_seconds(self.watch.pid), time.monotonic()
        self.fleet.put(number, mode)
        row.state = self._until(
            lambda: self._look(replica, row, began, starved), self.hold + 10 * self.interval
        )
        row.state_seconds = round(time.monotonic() - began, 2) if row.state else None
        row.fired = bool(self._until(lambda: (rule, url, "firing") in self.receiver.told, 3 * self.hold + 20))
        self.fleet.put(number, Mode.WELL)
        began = time.monotonic()
        over = self._until(
            lambda: not self._trouble(replica) and bool(self.states()),
            _LONGEST_BACKOFF_SECONDS + 20 * self.interval,
        )
        row.recovered_seconds = round(time.monotonic() - began, 2) if over else None
        row.resolved = bool(self._until(lambda: (rule, url, "resolved") in self.receiver.told, 90))
        self.receiver.told -= {(rule, url, state) for state in ("firing", "resolved")}
        self.rows.append(row)
        return row

    def faults(self) -> Sequence[Callable[[int], Row]]:
        """Every fault, to be called with the number of the replica that it strikes.

        During a fault of the machine, the watch or the terminal a replica dies: its alert must not be lost.
        """
        machine = {
            "stalled tty": self._stalled_tty,  # long before a resize, which would have all drawn anew
            "unknown name": self._unknown_name,
            "clock step": self._clock_step,
            "descriptors": self._descriptors,
            "full disk": self._full_disk,
            "receiver away": self._receiver_away,
            "sighup": self._sighup,
            "resize": self._resize,
        }
        own = [partial(self._strike, fault.mode, fault.rule, fault.mode.value) for fault in REPLICA_FAULTS]
        return own + [partial(self._strike_in, fault, name) for name, fault in machine.items()]

    def _strike_in(self, fault: Callable[[], AbstractContextManager[None]], name: str, number: int) -> Row:
        with fault():
            time.sleep(2 * self.interval)
            return self._strike(Mode.KILLED, "TargetDown", f"{name} + killed", number)

    def _look(self, replica: str, row: Row, began: float, starved: dict[str, float]) -> str:
        """The state that tells of the fault; notes when the fault is visible first, by that or before it."""
        page = self._page()
        state = dict(_STATE.findall(page)).get(replica, "")
        trouble = "" if state in _SERVING else state
        if row.visible_seconds is None and (trouble or replica in _DOUBT.findall(page)):
            row.visible_seconds = round(time.monotonic() - began, 2)
            now = starved_seconds(self.watch.pid)
            row.starved_seconds = round(max(now[task] - starved.get(task, 0.0) for task in now), 2)
        return trouble

    def _trouble(self, replica: str) -> str:
        state = self.states().get(replica, "")
        return "" if state in _SERVING else state

    @contextlib.contextmanager
    def _unknown_name(self) -> Iterator[None]:
        """The fleet has one from the start on: it stays a row with its reason."""
        if self.states().get("nobody") not in ("down", "unknown"):
            raise RuntimeError(f"a name that nobody knows is shown as {self.states().get('nobody')}")
        yield

    @contextlib.contextmanager
    def _clock_step(self) -> Iterator[None]:
        for step in ("-3600", "+0"):
            self._clock.write_text(step)
            time.sleep(3 * self.interval)
        yield

    @contextlib.contextmanager
    def _descriptors(self) -> Iterator[None]:
        pid = self.watch.pid
        former = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (_LEAST_DESCRIPTORS, former[1]))
        self.fleet.drop_connections(range(8))
        time.sleep(5 * self.interval)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, former)
        self._until(lambda: set(self.states().values()) <= _SERVING | {"down"}, 60)
        yield

    @contextlib.contextmanager
    def _full_disk(self) -> Iterator[None]:
        filler = self._folder / "state" / "filler"
        if self.small:
            with contextlib.suppress(OSError), filler.open("wb") as file:
                while True:
                    file.write(b"\0" * 4096)
                    file.flush()
        yield
        filler.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _receiver_away(self) -> Iterator[None]:
        self.receiver.away = True
        timer = threading.Timer(self.hold + 4 * self.interval, self._receiver_back)
        timer.start()
        yield
        timer.join()

    def _receiver_back(self) -> None:
        self.receiver.away = False

    @contextlib.contextmanager
    def _sighup(self) -> Iterator[None]:
        self.watch.send_signal(signal.SIGHUP)
        yield

    @contextlib.contextmanager
    def _resize(self) -> Iterator[None]:
        for size in ((80, 24), (40, 10), (300, 80), (WIDTH, HEIGHT)):
            self.terminal.resize(*size)
            time.sleep(self.interval)
        yield

    @contextlib.contextmanager
    def _stalled_tty(self) -> Iterator[None]:
        self._stalled.set()
        yield
        self._stalled.clear()

    def sample(self, minutes: float) -> None:
        """Look at what both processes hold."""
        self.watch_growth.take(self.watch.pid, minutes)
        self.screen_growth.take(self.terminal.pid, minutes)

    def _read_screen(self) -> None:
        quiet = time.monotonic()
        while not self._ended.is_set():
            if self._stalled.is_set():
                time.sleep(0.05)
                quiet = time.monotonic()
                continue
            count = len(self.terminal.read(0.2))
            self.painted += count
            if count:
                quiet = time.monotonic()
            self.silent_seconds = max(self.silent_seconds, time.monotonic() - quiet)

    def _until(self, done: Callable[[], T], longest_seconds: float) -> T:
        end = time.monotonic() + longest_seconds
        while not (found := done()) and time.monotonic() < end:
            time.sleep(self.gap_seconds)
        return found

    def _configure(self) -> Path:
        lines = [f'[[targets]]\nurl = "{url}"\nname = "r{n}"' for n, url in enumerate(self.fleet.urls)]
        lines.append('[[targets]]\nurl = "http://nobody.invalid:8000"\nname = "nobody"')
        lines += [f'[[alerts]]\nrule = "{rule}"\nfor_seconds = {self.hold:g}' for rule in RULES]
        address = self._folder / "webhook"
        address.write_text(self.receiver.url)
        lines.append(f'[[sinks]]\nkind = "webhook"\nurl_file = "{address}"')
        path = self._folder / "config.toml"
        path.write_text("\n".join(lines) + "\n")
        return path

    def _address(self, said: Path) -> str:
        found = self._until(lambda: re.search(r"http://127\.0\.0\.1:\d+", said.read_text()), 30)
        if not found:
            raise RuntimeError(f"the watch does not say where it listens: {said.read_text()}")
        return str(found[0])


@contextlib.contextmanager
def _small_disk(folder: Path) -> Iterator[bool]:
    """A folder on a disk of its own; False where only root could make one."""
    folder.mkdir()
    mounted = (
        os.geteuid() == 0
        and subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={_DISK_BYTES}", "tmpfs", str(folder)], capture_output=True
        ).returncode
        == 0
    )
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", str(folder)], check=False)
