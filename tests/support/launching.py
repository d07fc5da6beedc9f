"""`enginetop launch` in a process of its own, and the knobs behind it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from collectors.control_http import UNIX_SCHEME, HttpKnobTransport
from collectors.fetch import NO_CREDENTIALS
from enginetop.fleet.knobs import KnobRow
from tuners.control.knob_api import HttpKnobClient

PATIENCE_SECONDS = 60.0
T = TypeVar("T")


def free_port() -> int:
    """A port that was free a moment ago; nothing else is given it soon."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port: int = held.getsockname()[1]
        return port


def until(look: Callable[[], T | None], what: str) -> T:
    """The first thing that `look` finds. AssertionError after a minute."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (found := look()) is None:
        assert time.monotonic() < deadline, f"never {what}"
        time.sleep(0.05)
    return found


@dataclass
class Launched:
    """A launcher at work."""

    process: subprocess.Popen[str]
    port: int
    folder: Path

    @property
    def socket(self) -> Path:
        return self.folder / "run" / "enginetop" / f"launch-{self.port}.sock"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def client(self) -> HttpKnobClient:
        return HttpKnobClient(HttpKnobTransport(f"{UNIX_SCHEME}{self.socket}", NO_CREDENTIALS))

    def row(self, knob: str) -> KnobRow | None:
        sheet = self.client.read().sheet
        return None if sheet is None else sheet.knob(knob)

    def wait_for(self, knob: str, wanted: Callable[[KnobRow], bool], what: str) -> KnobRow:
        def look() -> KnobRow | None:
            found = self.row(knob)
            return found if found is not None and wanted(found) else None

        return until(look, what)

    def put(self, knob: str, value: int, ttl_seconds: float | None = 600.0) -> str:
        reply = self.client.write(
            knob, value, if_version=None, ttl_seconds=ttl_seconds, change="test", reason="a test"
        )
        return reply.kind.value


@contextmanager
def launching(folder: Path, port: int, command: Sequence[str], *options: str) -> Iterator[Launched]:
    """Launch `command`, which answers on `port`; its state and its socket lie under `folder`."""
    environment = {
        **os.environ,
        "XDG_STATE_HOME": str(folder / "state"),
        "XDG_RUNTIME_DIR": str(folder / "run"),
        "XDG_CONFIG_HOME": str(folder / "config"),
    }
    (folder / "run").mkdir(mode=0o700, exist_ok=True)
    whole = [sys.executable, "-m", "enginetop", "launch", *options]
    whole += ["--url", f"http://127.0.0.1:{port}", "--", *command]
    with subprocess.Popen(
        whole, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        launched = Launched(process, port, folder)
        try:
            until(lambda: launched.client.read().sheet or process.poll(), "answers for its knobs")
            yield launched
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.communicate(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
