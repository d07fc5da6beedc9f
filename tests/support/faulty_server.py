"""An HTTP server that misbehaves on purpose, for tests: raw bytes, silence, early ends, one port a replica.

It runs in a thread of its own, so that a test may block. Every replica listens on a free loopback port.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it arrived. `number` counts the requests of the replica from 0."""

    path: str
    headers: dict[str, str]
    number: int
    connection: int
    method: str = "GET"
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Reply:
    """What is sent: `parts` one after the other, then the connection is closed if `close`.

    `hang`: nothing more is sent and the connection stays open. `gate`: wait for this event before each part.
    """

    parts: tuple[bytes, ...] = ()
    close: bool = False
    hang: bool = False
    reset: bool = False
    gate: threading.Event | None = None


Script = Callable[[Request], Reply]


def page(
    body: bytes, status: int = 200, content_type: str = "text/plain; version=0.0.4", extra: str = ""
) -> Reply:
    """A complete response with a length."""
    head = (
        f"HTTP/1.1 {status} X\r\ncontent-type: {content_type}\r\n{extra}content-length: {len(body)}\r\n\r\n"
    )
    return Reply((head.encode() + body,))


def chunked(*chunks: bytes, end: bytes = b"0\r\n\r\n") -> Reply:
    """A response in chunks, each sent on its own."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4\r\ntransfer-encoding: chunked\r\n\r\n"
    return Reply((head, *(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks), end))


def raw(*parts: bytes, close: bool = True) -> Reply:
    """Bytes as they are, then the end of the connection."""
    return Reply(parts, close=close)


HANG = Reply(hang=True)
DROP = Reply(close=True)
RESET = Reply(reset=True)


@dataclass(slots=True)
class Replica:
    """One listening port and what happened there."""

    url: str
    script: Script
    requests: list[Request] = field(default_factory=list)
    connections: int = 0

    def count(self, path: str) -> int:
        """How often `path` (without query) was asked."""
        return sum(request.path.partition("?")[0] == path for request in self.requests)


class FaultyServer:
    """`with FaultyServer() as server: replica = server.replica(script)`."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._servers: list[asyncio.Server] = []
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def __enter__(self) -> FaultyServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def replica(
        self, script: Script | Reply, *, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
    ) -> Replica:
        """A new port that answers by `script`, or always with one reply."""
        answer: Script = (lambda _: script) if isinstance(script, Reply) else script
        return asyncio.run_coroutine_threadsafe(self._listen(answer, host, tls), self._loop).result(10)

    async def _listen(self, script: Script, host: str, tls: ssl.SSLContext | None) -> Replica:
        replica = Replica("", script)

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            if task is not None:
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            await self._serve(replica, reader, writer)

        server = await asyncio.start_server(serve, host, 0, ssl=tls)
        self._servers.append(server)
        port = server.sockets[0].getsockname()[1]
        shown = f"[{host}]" if ":" in host else host
        replica.url = f"{'https' if tls else 'http'}://{shown}:{port}"
        return replica

    async def _serve(
        self, replica: Replica, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._writers.add(writer)
        connection = replica.connections
        replica.connections += 1
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                first, *lines = head.rstrip("\r\n").split("\r\n")
                headers = {n.lower(): v.strip() for n, _, v in (line.partition(":") for line in lines)}
                method, path, *_ = first.split(" ")
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                request = Request(path, headers, len(replica.requests), connection, method, body)
                replica.requests.append(request)
                if not await self._reply(replica.script(request), writer):
                    return
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            return
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _reply(self, reply: Reply, writer: asyncio.StreamWriter) -> bool:
        for part in reply.parts:
            while reply.gate is not None and not reply.gate.is_set():
                await asyncio.sleep(0.002)
            writer.write(part)
            await writer.drain()
        if reply.hang:
            await asyncio.Event().wait()
        if reply.reset:
            writer.transport.abort()
        return not (reply.close or reply.reset)

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        for task in tuple(self._tasks):
            task.cancel()
        for writer in tuple(self._writers):
            writer.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)
