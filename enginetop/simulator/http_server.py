"""A small HTTP/1.1 server for fixed answers to GET: what a scraper and a health probe need, no more."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

LOOPBACK = "127.0.0.1"
_MOST_HEADER_BYTES = 16 * 1024
_BACKLOG = 128
_PAUSE_SECONDS = 0.5
_PHRASES = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed"}


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer."""

    body: bytes
    content_type: str = "application/json"
    status: int = 200


Routes = Mapping[str, Callable[[], Reply | None]]
"""What answers each path; None instead of a reply means that the process is gone: the connection is cut."""

_NOT_FOUND = Reply(b'{"detail":"Not Found"}', status=404)
_NOT_ALLOWED = Reply(b'{"detail":"Method Not Allowed"}', status=405)
_BAD_REQUEST = Reply(b'{"detail":"Bad Request"}', status=400)


class Port:
    """A loopback port that is ours from the first moment to the last, whether or not something listens.

    A second socket, bound and never listening, holds the number: while a replica is down its port refuses
    connections, and neither another process nor an outgoing connection can be given it. `number` 0 takes a
    free one.

    Raises:
        OSError: somebody else has the port.
    """

    def __init__(self, number: int = 0) -> None:
        if number:
            # Another fleet of this user would share the port with us; it is asked for unshared first.
            _bound(number, shared=False).close()
        self._holder = _bound(number)
        self.number: int = self._holder.getsockname()[1]

    def listening_socket(self) -> socket.socket:
        """A new socket bound to this port, for a server to listen on."""
        return _bound(self.number)

    def close(self) -> None:
        """Let the port go."""
        self._holder.close()


class HttpServer:
    """Answers GET and HEAD for `routes` on `port`; may be opened and closed again and again in a loop.

    It accepts by itself: asyncio's own server can leave a connection open and mute that arrives while it is
    being closed (python/cpython#109564), which is how a dying replica would look hung.
    """

    def __init__(self, port: Port, routes: Routes) -> None:
        self._port = port
        self._routes: Routes = MappingProxyType(dict(routes))
        self._listener: socket.socket | None = None
        self._transports: set[asyncio.Transport] = set()
        self._accepted: set[asyncio.Task[object]] = set()

    @property
    def is_open(self) -> bool:
        """Whether connections are accepted."""
        return self._listener is not None

    def open(self) -> None:
        """Begin to listen; within a running event loop.

        Raises:
            OSError: the system does not let us.
        """
        listener = self._port.listening_socket()
        try:
            listener.setblocking(False)
            listener.listen(_BACKLOG)
        except OSError:
            listener.close()
            raise
        self._listener = listener
        asyncio.get_running_loop().add_reader(listener, self._accept)

    def close(self) -> None:
        """Stop listening and cut every connection, as a dying process does."""
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
            self._listener = None
        for transport in tuple(self._transports):
            transport.abort()

    async def wait_closed(self) -> None:
        """Wait for connections that were accepted just before `close`; they are cut like the others."""
        await asyncio.gather(*self._accepted, return_exceptions=True)

    def _accept(self) -> None:
        if self._listener is None:
            return
        try:
            accepted, _ = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError:
            # No file descriptor left. Look away for a while, or the loop would spin.
            loop = asyncio.get_running_loop()
            loop.remove_reader(self._listener)
            loop.call_later(_PAUSE_SECONDS, self._look_again, self._listener)
            return
        accepted.setblocking(False)
        loop = asyncio.get_running_loop()
        connecting: asyncio.Task[object] = loop.create_task(
            loop.connect_accepted_socket(lambda: _Connection(self._routes, self._greet, self._part), accepted)
        )
        self._accepted.add(connecting)
        connecting.add_done_callback(self._accepted.discard)

    def _look_again(self, listener: socket.socket) -> None:
        if self._listener is listener:
            asyncio.get_running_loop().add_reader(listener, self._accept)

    def _greet(self, transport: asyncio.Transport) -> None:
        if self.is_open:
            self._transports.add(transport)
        else:
            transport.abort()

    def _part(self, transport: asyncio.Transport) -> None:
        self._transports.discard(transport)


class _Connection(asyncio.Protocol):
    """One connection, kept alive until the client closes it or asks for something odd."""

    def __init__(
        self,
        routes: Routes,
        greet: Callable[[asyncio.Transport], None],
        part: Callable[[asyncio.Transport], None],
    ) -> None:
        self._routes = routes
        self._greet = greet
        self._part = part
        self._transport: asyncio.Transport | None = None
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, asyncio.Transport):
            self._transport = transport
            self._greet(transport)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        if self._transport is not None:
            self._part(self._transport)

    def data_received(self, data: bytes) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        self._received += data
        while not self._transport.is_closing():
            head, end, rest = self._received.partition(b"\r\n\r\n")
            if not end:
                if len(head) > _MOST_HEADER_BYTES:
                    self._send(_BAD_REQUEST, with_body=True, keep=False)
                return
            self._received = rest
            self._answer(head)

    def _answer(self, head: bytes) -> None:
        request_line, *header_lines = head.decode("latin-1").split("\r\n")
        words = request_line.split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            self._send(_BAD_REQUEST, with_body=True, keep=False)
            return
        method, target, version = words
        if method not in {"GET", "HEAD"}:
            # Its body, if any, is not read, so nothing more can be understood on this connection.
            self._send(_NOT_ALLOWED, with_body=True, keep=False)
            return
        route = self._routes.get(target.partition("?")[0])
        reply = _NOT_FOUND if route is None else route()
        if reply is None:
            self._abort()
            return
        self._send(reply, with_body=method == "GET", keep=_keeps_alive(version, header_lines))

    def _abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _send(self, reply: Reply, *, with_body: bool, keep: bool) -> None:
        if self._transport is None:
            return
        head = (
            f"HTTP/1.1 {reply.status} {_PHRASES[reply.status]}\r\n"
            f"content-type: {reply.content_type}\r\n"
            f"content-length: {len(reply.body)}\r\n"
            f"connection: {'keep-alive' if keep else 'close'}\r\n\r\n"
        ).encode("latin-1")
        self._transport.write(head + reply.body if with_body else head)
        if not keep:
            self._transport.close()


def _keeps_alive(version: str, header_lines: list[str]) -> bool:
    for line in header_lines:
        name, _, value = line.partition(":")
        if name.strip().lower() == "connection":
            return value.strip().lower() != "close"
    return version == "HTTP/1.1"


def _bound(number: int, *, shared: bool = True) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        made.bind((LOOPBACK, number))
    except OSError:
        made.close()
        raise
    return made
