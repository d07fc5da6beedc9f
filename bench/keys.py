"""How soon a key is on the screen of the whole program: `python -m bench.keys [--replicas 1000] [--json]`.

`enginetop` scrapes a fleet once a second (`bench.page_server`) and draws on a pseudo-terminal of 200x50. Keys
that move the cursor are pressed at any phase of the tick, and each is waited for until the cursor stands on
another row; then keys are held down, thirty a second, and a filter is typed.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.figures import spread, tell
from bench.page_server import page_server
from bench.scale import config
from bench.screen_terminal import Terminal

_CURSOR = re.compile(rb"\xe2\x96\xb8(?:\x1b\[[0-9;]*m)*([^\s\x1b]+)")
_LONGEST_MARK = 64
_APART_SECONDS = (0.06, 0.3)
_HELD_PER_SECOND = 30.0
_LOST_SECONDS = 5.0
_SETTLE_SECONDS = 15.0


class Cursor:
    """Follows on which row the cursor of a terminal's list stands."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._rest = b""
        self.row = b""

    def read(self, seconds: float) -> bool:
        """Take what comes next; whether the cursor has moved."""
        block = self._terminal.read(seconds)
        former, received = self.row, self._rest + block
        found = _CURSOR.findall(received)
        if found:
            self.row = found[-1]
        self._rest = received[-_LONGEST_MARK:]  # what may be the beginning of one
        return self.row != former

    def rest_for(self, seconds: float) -> None:
        """Take what comes in so many seconds."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.read(left)

    def key_seconds(self, key: bytes) -> float:
        """From a key to the cursor on another row; `_LOST_SECONDS` when it never came."""
        began = time.monotonic()
        self._terminal.press(key)
        while (left := began + _LOST_SECONDS - time.monotonic()) > 0:
            if self.read(left):
                break
        return time.monotonic() - began


def key_times(terminal: Terminal, keys: int, seed: int = 1) -> list[float]:
    """Seconds of each of so many keys, pressed at any phase of the tick."""
    cursor, dice = Cursor(terminal), random.Random(seed)
    times = []
    for number in range(keys):
        cursor.rest_for(dice.uniform(*_APART_SECONDS))
        times.append(cursor.key_seconds(b"j" if number % 60 < 30 else b"k"))
    return times


def held_lag(terminal: Terminal, key: bytes, seconds: float) -> Iterator[float]:
    """Gaps in seconds between two moves of the cursor while a key is held down; the last one ends with it."""
    cursor = Cursor(terminal)
    cursor.rest_for(0.3)
    began = moved = time.monotonic()
    pressed = 0
    while (now := time.monotonic()) < began + seconds:
        due = began + pressed / _HELD_PER_SECOND
        if now >= due:
            terminal.press(key)
            pressed += 1
        elif cursor.read(due - now):
            now = time.monotonic()
            yield now - moved
            moved = now
    yield time.monotonic() - moved


def measure(replicas: int, keys: int, settle: float = _SETTLE_SECONDS) -> dict[str, float]:
    """Run the program on such a fleet, and return the figures."""
    with page_server(replicas) as server, tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "config.toml")
        path.write_text(config(server.good, tls=False))
        command = [sys.executable, "-m", "enginetop", "--config", str(path), "--interval", "1"]
        with Terminal(command) as terminal:
            terminal.wait_for(b"/%d up" % replicas, longest_seconds=60.0)
            terminal.read_for(settle)
            cpu, began = terminal.cpu_seconds(), time.monotonic()
            figures = spread("key", key_times(terminal, keys))
            cores = (terminal.cpu_seconds() - cpu) / (time.monotonic() - began)
            figures |= spread("held_key_gap", list(held_lag(terminal, b"j", 5.0)))
            figures |= spread("held_page_gap", list(held_lag(terminal, b"\x1b[6~", 3.0)))
    return {"replicas": replicas, "keys": keys, "cores": round(cores, 3), **figures}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="How soon a key is on the screen of the whole program.")
    parser.add_argument("--replicas", type=int, default=1000)
    parser.add_argument("--keys", type=int, default=200)
    parser.add_argument("--settle", type=float, default=_SETTLE_SECONDS)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    figures = measure(arguments.replicas, arguments.keys, arguments.settle)
    tell(figures, as_json=arguments.json)


if __name__ == "__main__":
    main()
