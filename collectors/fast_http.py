"""A lean keep-alive client for GETs over http and https, the thing a large fleet needs most often.

Anything beyond it (proxies, odd responses) is left to the complete client in `full_http.py`.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable

from collectors.dial import dial
from collectors.fetch import FetchError, RawResponse, connection_fault
from collectors.http_response import NeedsFullClient, ResponseParser
from collectors.lean_tls import Tls, TlsLayer
from collectors.no_engine_there import leads_astray
from enginetop.fleet.observation import FailureKind

_ARRIVALS_BYTES = 256 * 1024
"""What one call reads at most: a page of any usual size."""

_LARGER_BYTES = 4 * _ARRIVALS_BYTES


class _Dropped(Exception):  # noqa: N818 - an outcome, not an error
    """The connection ended before the first byte of the answer."""


class Arrivals:
    """What all connections of one event loop read into: a page is taken out of it at once."""

    __slots__ = ("plain", "wire")

    def __init__(self) -> None:
        # Every page is allocated and freed. The C library gives such memory back to the system each time, and
        # gets it again by page faults, until a larger block was freed once (mallopt(3), M_MMAP_THRESHOLD).
        bytes(_LARGER_BYTES)
        self.wire = memoryview(bytearray(_ARRIVALS_BYTES))
        self.plain = memoryview(bytearray(_ARRIVALS_BYTES))
        """What TLS makes of it; untouched memory where there is none."""


class _Connection(asyncio.BufferedProtocol):
    """One connection, one request at a time; `tls` None: without TLS."""

    def __init__(self, arrivals: Arrivals, tls: TlsLayer | None) -> None:
        self._arrivals = arrivals
        self._tls = tls
        self._secured: asyncio.Future[Exception | None] | None = None
        self._transport: asyncio.Transport | None = None
        self._parser: ResponseParser | None = None
        self._answer: asyncio.Future[RawResponse | Exception] | None = None
        self.usable = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # always a stream transport here
        self.usable = True

    @property
    def peer(self) -> object:
        """The address of the other end, as the socket tells it; None where there is none."""
        return self._transport.get_extra_info("peername") if self._transport is not None else None

    async def secure(self) -> None:
        """Shake hands, where there is TLS. Raises ssl.SSLError, and _Dropped when the other end hangs up."""
        if self._tls is None or self._transport is None:
            return
        self._secured = asyncio.get_running_loop().create_future()
        self._tls.begin()
        self._transport.write(self._tls.to_send())
        try:
            outcome = await self._secured
        finally:
            self._secured = None
        if outcome is not None:
            raise outcome

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        return self._arrivals.wire

    def buffer_updated(self, nbytes: int) -> None:
        wire = self._arrivals.wire[:nbytes]
        if self._tls is None:
            self._receive(wire)
            return
        try:
            for count in self._tls.read(wire, self._arrivals.plain):
                self._receive(self._arrivals.plain[:count])
        except ssl.SSLError as error:
            self._send_owed()  # the alert that tells the other end why
            self._settle(error.with_traceback(None))
            self.close()
            return
        self._send_owed()
        if self._tls.ended:
            self._ended()
            self.close()
        elif self._tls.ready and self._secured is not None and not self._secured.done():
            self._secured.set_result(None)

    def _send_owed(self) -> None:
        if self._tls is not None and self._transport is not None and (owed := self._tls.to_send()):
            self._transport.write(owed)

    def _receive(self, data: memoryview) -> None:
        if self._parser is None or self._answer is None:
            self.close()  # bytes nobody asked for
            return
        try:
            complete = self._parser.feed(data)
        except (FetchError, NeedsFullClient) as outcome:
            self._settle(outcome.with_traceback(None))  # which holds all that was read of the body
            self.close()
            return
        if complete:
            self.usable = self.usable and self._parser.reusable
            self._settle(self._parser.response)

    def eof_received(self) -> None:
        self._ended()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._ended()

    def _ended(self) -> None:
        self.usable = False
        if self._parser is not None and self._parser.started:
            self._settle(self._parser.end_of_stream())
        else:
            self._settle(_Dropped())

    def _settle(self, outcome: RawResponse | Exception) -> None:
        # a result even when it is an exception: nobody may be left to retrieve it, and asyncio would complain
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(outcome)
        elif self._secured is not None and not self._secured.done() and isinstance(outcome, Exception):
            self._secured.set_result(outcome)

    async def ask(self, request: bytes, max_body_bytes: int) -> RawResponse:
        """Send a request and wait for its response. The caller bounds the time."""
        if self._transport is None or not self.usable:
            raise _Dropped
        self._parser = ResponseParser(max_body_bytes)
        self._answer = asyncio.get_running_loop().create_future()
        if self._tls is None:
            self._transport.write(request)
        else:
            self._tls.write(request)
            self._send_owed()
        try:
            outcome = await self._answer
        finally:
            self._parser = self._answer = None
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def close(self) -> None:
        """Drop the connection now."""
        self.usable = False
        if self._transport is not None:
            self._transport.abort()


class LeanHttp:
    """GETs from one host and port, over a connection that is kept between requests.

    `unix_path`: the connection goes to this socket instead. `tls` None: without TLS.
    """

    def __init__(
        self,
        host: str,
        port: int,
        max_body_bytes: int,
        arrivals: Arrivals,
        unix_path: str | None = None,
        tls: Tls | None = None,
    ) -> None:
        self._unix_path = unix_path
        self._tls = tls
        self._arrivals = arrivals
        self._host = host
        self._port = port
        self._max_body_bytes = max_body_bytes
        self._idle: _Connection | None = None

    async def get(self, request: bytes) -> RawResponse:
        """The response to the bytes of one GET request.

        A kept connection that the server had dropped meanwhile is replaced once. Raises FetchError, or
        NeedsFullClient when the answer is not for this client.
        """
        try:
            return await self._over_a_connection(request)
        except _Dropped:
            fault = ResponseParser(0).end_of_stream()
        except ssl.SSLError as error:
            fault = connection_fault(error)
        except FetchError as error:
            fault = error
        raise fault if self._tls is None else self._tls.told(fault)

    async def _over_a_connection(self, request: bytes) -> RawResponse:
        kept, self._idle = self._idle, None
        if kept is not None and kept.usable:
            try:
                return await self._ask(kept, request)
            except _Dropped:
                pass
        return await self._ask(await self._connect(), request)

    def close(self) -> None:
        """Close the kept connection."""
        if self._idle is not None:
            self._idle.close()
            self._idle = None

    async def _connect(self) -> _Connection:
        layer = None if self._tls is None else self._tls.layer()
        try:
            connection = await self._dial(lambda: _Connection(self._arrivals, layer))
        except (OSError, UnicodeError) as error:
            raise connection_fault(error) from error
        if leads_astray(self._host, connection.peer):
            connection.close()
            raise FetchError(FailureKind.REFUSED, "the name leads to the metadata service of a cloud")
        try:
            await connection.secure()
        except BaseException:
            connection.close()
            raise
        return connection

    async def _dial(self, new_connection: Callable[[], _Connection]) -> _Connection:
        if self._unix_path is not None:
            loop = asyncio.get_running_loop()
            _, connection = await loop.create_unix_connection(new_connection, self._unix_path)
            return connection
        return await dial(new_connection, self._host, self._port)

    async def _ask(self, connection: _Connection, request: bytes) -> RawResponse:
        try:
            response = await connection.ask(request, self._max_body_bytes)
        except BaseException:
            connection.close()
            raise
        if self._tls is not None:
            self._tls.note_answer()
        if connection.usable and self._idle is None:
            self._idle = connection
        else:
            connection.close()
        return response
