"""A connection whose other end is quicker than whoever dialled."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable

import pytest

from collectors.connection import Arrivals, Connection, Dropped
from collectors.fast_http import LeanHttp
from collectors.fetch import FetchError
from collectors.lean_tls import TlsLayer
from enginetop.fleet.observation import FailureKind
from tests.support.tls_server import CA


class _Wire(asyncio.Transport):
    """Takes what is written, and is closed at once."""

    closed = False

    def write(self, data: object) -> None:
        assert not self.closed

    def abort(self) -> None:
        self.closed = True


def hang_up(connection: Connection) -> None:
    connection.eof_received()
    connection.connection_lost(None)


def speak_another_language(connection: Connection) -> None:
    said = b"SSH-2.0-OpenSSH_9.9\r\n"
    connection.get_buffer(-1)[: len(said)] = said
    connection.buffer_updated(len(said))
    connection.connection_lost(None)


@pytest.mark.parametrize(
    ("does", "fault"),
    [(hang_up, Dropped), (speak_another_language, ssl.SSLError)],
    ids=lambda one: one.__name__,
)
def test_it_is_told_what_came_before_the_handshake_began(
    does: Callable[[Connection], None], fault: type[Exception]
) -> None:
    async def shake() -> None:
        context = ssl.create_default_context(cafile=CA)
        connection = Connection(Arrivals(), TlsLayer(context, "127.0.0.1"))
        connection.connection_made(_Wire())
        does(connection)
        async with asyncio.timeout(10.0):
            await connection.secure()

    with pytest.raises(fault) as caught:
        asyncio.run(shake())
    if isinstance(caught.value, ssl.SSLError):
        assert caught.value.reason == "WRONG_VERSION_NUMBER"


@pytest.mark.parametrize(("does", "fault"), [(hang_up, Dropped), (speak_another_language, FetchError)])
def test_it_is_told_what_came_before_anything_was_asked(
    does: Callable[[Connection], None], fault: type[Exception]
) -> None:
    connection = Connection(Arrivals(), None)
    connection.connection_made(_Wire())
    does(connection)
    with pytest.raises(fault) as caught:
        connection.ask(b"GET / HTTP/1.1\r\n\r\n", 1000, lambda _: None)
    if isinstance(caught.value, FetchError):
        assert caught.value.kind is FailureKind.PROTOCOL


class _Broken:
    """TLS that has been shaken, over which nothing can be said any more."""

    def __init__(self, fault: Exception) -> None:
        self._fault = fault

    def write(self, data: bytes) -> None:
        raise self._fault

    def to_send(self) -> bytes:
        return b""


@pytest.mark.parametrize("fault", [ssl.SSLError("protocol is shutdown"), MemoryError()], ids=str)
def test_a_kept_connection_that_cannot_be_spoken_over_is_let_go(fault: Exception) -> None:
    wire, told = _Wire(), list[object]()
    connection = Connection(Arrivals(), _Broken(fault))  # type: ignore[arg-type]
    connection.connection_made(wire)
    client = LeanHttp("127.0.0.1", 1, 1000, Arrivals())
    client._keep(connection)
    if isinstance(fault, ssl.SSLError):
        assert client.ask(b"GET / HTTP/1.1\r\n\r\n", told.append) is None  # it takes a `get`
    else:
        with pytest.raises(MemoryError):
            client.ask(b"GET / HTTP/1.1\r\n\r\n", told.append)
    assert wire.closed
    connection.connection_lost(None)
    assert told == []  # who asked has gone on
    assert client.ask(b"GET / HTTP/1.1\r\n\r\n", told.append) is None  # it is not kept
