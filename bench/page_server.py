"""Simulated vLLM replicas for benches, light enough to leave the CPU to what is measured.

`python -m bench.page_server --replicas 64 --hung 1` prints one JSON line, `{"good": [URL, ...], "hung": [URL,
...]}`, and serves until it is stopped; a line on its input is answered with the number of pages served so
far. The page is a capture of a loaded server, filled up to 74 KiB; its counters and buckets grow with time,
so that no two pages of a replica are the same. `--idle`: of servers that serve nothing, of which only the
counters of the process and of Python grow. `--tls` serves them over https.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import ssl
import subprocess
import sys
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

_CAPTURES: Final = Path(__file__).parents[1] / "tests/fixtures/vllm/0.32.0"
CAPTURE: Final = _CAPTURES / "vllm-0.32.0-loaded.prom"
IDLE_CAPTURE: Final = _CAPTURES / "vllm-0.32.0-after.prom"
PAGE_BYTES: Final = 74 * 1024
_GROWING: Final = ("_total", "_bucket", "_count", "_sum")
_OF_THE_PROCESS: Final = ("process_", "python_")
_GROWTH_PER_SECOND: Final = 0.01
AGES, AGE_SECONDS = 16, 7.0
"""Replicas are of so many ages, each so much older than the one before; those of one age share pages."""
_SPACING_SECONDS = 0.5
"""Pages asked closer together are the same."""
TLS: Final = Path(__file__).parents[1] / "tests/support/tls"


class MovingPage:
    """A page whose counters, those that begin so, are `1 + growth` times those of the capture."""

    def __init__(self, capture: bytes = b"", growing: str | tuple[str, ...] = "") -> None:
        text = _filled_up((capture or CAPTURE.read_bytes()).decode())
        self._parts: list[str] = []
        self._values: list[float] = []
        fixed = ""
        for line in text.splitlines(keepends=True):
            series, _, value = line.rstrip("\n").rpartition(" ")
            if line.startswith(growing) and line[0] != "#" and series.partition("{")[0].endswith(_GROWING):
                self._parts.append(f"{fixed}{series} ")
                self._values.append(float(value))
                fixed = "\n"
            else:
                fixed += line
        self._end = fixed
        self._rendered: OrderedDict[float, bytes] = OrderedDict()

    def lately(self, seconds: float) -> bytes:
        """The page after `seconds`, to the last half of one; rendered once for all who ask for it."""
        moment = seconds // _SPACING_SECONDS * _SPACING_SECONDS
        page = self._rendered.get(moment)
        if page is None:
            page = self._rendered[moment] = self.at(moment)
            if len(self._rendered) > 4 * AGES:
                self._rendered.popitem(last=False)
        return page

    def at(self, seconds: float) -> bytes:
        """The page after `seconds`."""
        growth = 1.0 + _GROWTH_PER_SECOND * seconds
        pairs = zip(self._parts, self._values, strict=True)
        return (
            "".join([f"{part}{float(int(value * growth))!r}" for part, value in pairs]) + self._end
        ).encode()


def _filled_up(text: str) -> str:
    """The page with more handlers of the HTTP histogram, up to `PAGE_BYTES`."""
    lines = [text.rstrip("\n")]
    missing = PAGE_BYTES - len(lines[0])
    number = 0
    while missing > 0:
        labels = f'handler="/v1/extra/{number // 10}",le="{number % 10}.0",method="POST"'
        lines.append(f"http_request_duration_seconds_bucket{{{labels}}} {1000.0 + number % 10}")
        missing -= len(lines[-1]) + 1
        number += 1
    return "\n".join(lines) + "\n"


class _Connection(asyncio.Protocol):
    served = 0

    def __init__(self, page: MovingPage, hung: bool, started: float) -> None:
        self._page = page
        self._hung = hung
        self._started = started
        self._head = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self._head += data
        while b"\r\n\r\n" in self._head and self._transport is not None:
            head, _, self._head = self._head.partition(b"\r\n\r\n")
            if self._hung:
                return
            status, body = b"404 Not Found", b""
            if head.startswith(b"GET /metrics "):
                status, body = b"200 OK", self._page.lately(time.monotonic() - self._started)
                _Connection.served += 1
            kind = b"content-type: text/plain; version=0.0.4; charset=utf-8"
            answer = b"HTTP/1.1 %b\r\n%b\r\ncontent-length: %d\r\n\r\n%b" % (status, kind, len(body), body)
            self._transport.write(answer)


def idle_page() -> MovingPage:
    """The page of a server that serves nothing."""
    return MovingPage(IDLE_CAPTURE.read_bytes(), _OF_THE_PROCESS)


async def _serve(page: MovingPage, replicas: int, hung: int, tls: bool) -> None:
    loop = asyncio.get_running_loop()
    context = None
    if tls:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(TLS / "server.crt", TLS / "server.key")
    urls: dict[str, list[str]] = {"good": [], "hung": []}
    for number in range(replicas + hung):
        stuck = number >= replicas
        make = partial(_Connection, page, stuck, time.monotonic() - AGE_SECONDS * (number % AGES))
        server = await loop.create_server(make, "127.0.0.1", 0, ssl=context)
        port = server.sockets[0].getsockname()[1]
        urls["hung" if stuck else "good"].append(f"{'https' if tls else 'http'}://127.0.0.1:{port}")
    print(json.dumps(urls), flush=True)
    loop.add_reader(sys.stdin.fileno(), _tell)
    await asyncio.Event().wait()


def _tell() -> None:
    sys.stdin.readline()
    print(_Connection.served, flush=True)


class PageServer(NamedTuple):
    """A server that runs: its base URLs, and itself."""

    good: list[str]
    hung: list[str]
    process: subprocess.Popen[str]

    def served(self) -> int:
        """Pages served so far."""
        if self.process.stdin is None or self.process.stdout is None:
            raise RuntimeError("the page server has no pipes")
        print(file=self.process.stdin, flush=True)
        return int(self.process.stdout.readline())


@contextmanager
def page_server(
    replicas: int, hung: int = 0, *, tls: bool = False, idle: bool = False
) -> Iterator[PageServer]:
    """The server in a process of its own."""
    command = [sys.executable, "-m", "bench.page_server", "--replicas", str(replicas), "--hung", str(hung)]
    command += (["--tls"] if tls else []) + (["--idle"] if idle else [])
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            if process.stdout is None:
                raise RuntimeError("the page server has no output")
            urls: dict[str, list[str]] = json.loads(process.stdout.readline())
            yield PageServer(urls["good"], urls["hung"], process)
        finally:
            process.kill()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Simulated vLLM replicas for benches.")
    parser.add_argument("--replicas", type=int, default=64)
    parser.add_argument("--hung", type=int, default=0)
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--idle", action="store_true")
    arguments = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    shown = idle_page() if arguments.idle else MovingPage()
    asyncio.run(_serve(shown, arguments.replicas, arguments.hung, arguments.tls))
