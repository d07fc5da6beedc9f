"""Simulated vLLM replicas whose answers go wrong on command, each on a port of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
import threading
import time
from collections.abc import Coroutine
from enum import Enum
from types import TracebackType
from typing import Any

from bench.page_server import MovingPage

_TRICKLE_BYTES, _TRICKLE_SECONDS = 64, 0.2
_HUGE_BLOCK = b"x" * (1 << 20)
_PATIENCE_SECONDS = 30.0


class Mode(Enum):
    """How a replica answers."""

    WELL = "well"
    KILLED = "killed"
    HUNG = "hung"
    SLOW = "slow"
    RESET = "reset"
    GARBAGE = "garbage"
    HUGE = "huge"
    UNAUTHORIZED = "401"
    UNAVAILABLE = "503"


class FaultyFleet:
    """`replicas` ports of this machine in a thread of its own. Use as a context manager."""

    def __init__(self, replicas: int) -> None:
        self._count = replicas
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._replicas: list[_Replica] = []

    @property
    def urls(self) -> list[str]:
        """Their base URLs."""
        return [f"http://127.0.0.1:{replica.port}" for replica in self._replicas]

    def __enter__(self) -> FaultyFleet:
        self._thread.start()
        page = MovingPage()
        self._replicas = [_Replica(page) for _ in range(self._count)]
        for replica in self._replicas:
            self._run(replica.listen())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for replica in self._replicas:
            self._run(replica.close())
        self._run(_end_tasks())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def put(self, number: int, mode: Mode) -> None:
        """The replica answers so from now on."""
        self._run(self._replicas[number].put(mode))

    def drop_connections(self, numbers: range) -> None:
        """Close what is kept open to these replicas; they go on listening."""
        for number in numbers:
            self._run(self._replicas[number].drop())

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(_PATIENCE_SECONDS)


async def _end_tasks() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


class _Replica:
    def __init__(self, page: MovingPage) -> None:
        self.port = 0
        self._page = page
        self._began = time.monotonic()
        self._mode = Mode.WELL
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        await self.drop()

    async def drop(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    async def put(self, mode: Mode) -> None:
        former, self._mode = self._mode, mode
        if mode is Mode.KILLED:
            await self.close()
        elif former is Mode.KILLED:
            await self.listen()
        elif former is not Mode.WELL:
            await self.drop()  # what hangs or trickles ends

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                await self._answer(head, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the other end, or the bench, has enough
        finally:
            self._writers.discard(writer)
            with contextlib.suppress(OSError):
                writer.close()

    async def _answer(self, head: bytes, writer: asyncio.StreamWriter) -> None:
        body = self._page.lately(time.monotonic() - self._began)
        mode = self._mode
        if mode is Mode.HUNG:
            await asyncio.sleep(3600)
        elif mode is Mode.RESET:
            own = writer.get_extra_info("socket")
            own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        elif mode is Mode.HUGE:
            await self._send_without_end(writer)
        elif mode in (Mode.UNAUTHORIZED, Mode.UNAVAILABLE):
            writer.write(_response(int(mode.value), b"no"))
        elif mode is Mode.GARBAGE:
            writer.write(_response(200, os.urandom(4096)))
        elif not head.startswith(b"GET /metrics "):
            writer.write(_response(404, b""))
        elif mode is Mode.SLOW:
            await self._trickle(_response(200, body), writer)
        else:
            writer.write(_response(200, body))
        await writer.drain()

    async def _trickle(self, answer: bytes, writer: asyncio.StreamWriter) -> None:
        for start in range(0, len(answer), _TRICKLE_BYTES):
            writer.write(answer[start : start + _TRICKLE_BYTES])
            await writer.drain()
            await asyncio.sleep(_TRICKLE_SECONDS)

    async def _send_without_end(self, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"%x\r\n%b\r\n" % (len(_HUGE_BLOCK), _HUGE_BLOCK))
            await writer.drain()


def _response(status: int, body: bytes) -> bytes:
    kind = b"content-type: text/plain; version=0.0.4; charset=utf-8"
    return b"HTTP/1.1 %d X\r\n%b\r\ncontent-length: %d\r\n\r\n%b" % (status, kind, len(body), body)
