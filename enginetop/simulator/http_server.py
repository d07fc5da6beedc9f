"""A small HTTP/1.1 server on a loopback port that stays ours while nothing listens."""

from __future__ import annotations

import asyncio
import socket

from enginetop.simulator.http_connection import HttpConnection
from enginetop.simulator.http_messages import Handler

LOOPBACK = "127.0.0.1"
_BACKLOG = 128
_PAUSE_SECONDS = 0.5


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
    """Lets `handler` answer on `port`; may be opened and closed again and again in a loop.

    It accepts by itself: asyncio's own server can leave a connection open and mute that arrives while it is
    being closed (python/cpython#109564), which is how a dying replica would look hung.
    """

    def __init__(self, port: Port, handler: Handler) -> None:
        self._port = port
        self._handler = handler
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
            loop.connect_accepted_socket(
                lambda: HttpConnection(self._handler, self._greet, self._part), accepted
            )
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
