"""`enginetop watch` as its user runs it: a process, its lines, its signals; and receivers for its alerts."""

from __future__ import annotations

import atexit
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO, Any

WAIT_SECONDS = 90.0
"""Longer than anything here takes on a busy machine."""


class WatchProcess:
    """A running watch. `folder` holds its state and its config; `wrapper` runs it under something else."""

    def __init__(
        self,
        folder: Path,
        *argv: str,
        env: dict[str, str] | None = None,
        stdout: Any = subprocess.PIPE,
        wrapper: tuple[str, ...] = (),
    ) -> None:
        own = {"XDG_STATE_HOME": str(folder / "state"), "XDG_CONFIG_HOME": str(folder / "config")}
        self.process = subprocess.Popen(
            [*wrapper, sys.executable, "-m", "enginetop", "watch", *argv],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **own, **(env or {})},
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._told: queue.Queue[str | None] = queue.Queue()
        self.told: list[str] = []
        for stream, lines in ((self.process.stdout, self._lines), (self.process.stderr, self._told)):
            if stream is not None:
                threading.Thread(target=_pump, args=(stream, lines), daemon=True).start()

    def event(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The next printed object that is wanted; those before it are passed over."""
        while True:
            line = self._lines.get(timeout=WAIT_SECONDS)
            assert line is not None, f"the watch ended: {self.rest()}"
            found: dict[str, Any] = json.loads(line)
            if wanted(found):
                return found

    def says(self, words: str) -> str:
        """The next line on stderr that has these words in it."""
        while True:
            line = self._told.get(timeout=WAIT_SECONDS)
            assert line is not None, f"not said: {words!r}, but {self.told}"
            self.told.append(line)
            if words in line:
                return line

    def rest(self) -> list[str]:
        """All of stderr, after the end."""
        while (line := self._told.get(timeout=WAIT_SECONDS)) is not None:
            self.told.append(line)
        return self.told

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and wait for the end; the exit code."""
        self.process.send_signal(number)
        return self.process.wait(timeout=WAIT_SECONDS)

    def __enter__(self) -> WatchProcess:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


def _pump(stream: IO[str], lines: queue.Queue[str | None]) -> None:
    try:
        for line in stream:
            lines.put(line.rstrip("\n"))
    except ValueError:
        pass  # closed by the test
    lines.put(None)


class Receiver:
    """A webhook receiver on loopback. `hold` makes it sit on a post until `released` is set."""

    def __init__(self, port: int = 0) -> None:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                receiver.paths.append(self.path)
                receiver.tokens.append(self.headers.get("Authorization"))
                receiver.posts.put(body)
                if receiver.hold:
                    receiver.released.wait(WAIT_SECONDS)
                self.send_response(receiver.status)
                self.send_header("Content-Length", str(len(receiver.answer)))
                self.end_headers()
                self.wfile.write(receiver.answer)

            def log_message(self, *_: object) -> None:
                pass

        self.posts: queue.Queue[Any] = queue.Queue()
        self.paths: list[str] = []
        self.tokens: list[str | None] = []
        self.status = 200
        self.answer = b""
        self.hold = False
        self.released = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def post(self) -> Any:
        """The next body that was posted."""
        return self.posts.get(timeout=WAIT_SECONDS)

    def close(self) -> None:
        """Stop listening; the port is refused from now on."""
        self.released.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def __enter__(self) -> Receiver:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def free_port() -> int:
    """A port that refuses connections until a server of the test's own listens there.

    It stays bound until the end of the run, so that no other test's server is given it meanwhile.
    """
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers set it: they may listen there
    held.bind(("127.0.0.1", 0))
    atexit.register(held.close)
    port: int = held.getsockname()[1]
    return port
