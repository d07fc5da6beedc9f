"""A lean keep-alive client for plain `http://` GETs, the thing a large fleet needs most often.

Anything beyond it (TLS, proxies, odd responses) is left to the complete client in `http.py`.
"""

from __future__ import annotations

import asyncio

from collectors.fetch import FetchError, RawResponse, connection_fault
from collectors.http_response import NeedsFullClient, ResponseParser
from collectors.no_engine_there import leads_astray
from enginetop.fleet.model import is_address
from enginetop.fleet.observation import FailureKind

_SECOND_ADDRESS_DELAY_SECONDS = 0.25
"""A host with two address families is tried over the second after this long (RFC 8305)."""


ARRIVALS_BYTES = 256 * 1024
"""What one call reads at most: a page of any usual size."""


class _Dropped(Exception):  # noqa: N818 - an outcome, not an error
    """The connection ended before the first byte of the answer."""


class _Connection(asyncio.BufferedProtocol):
    """One TCP connection, one request at a time. What arrives passes through `arrivals`."""

    def __init__(self, arrivals: bytearray) -> None:
        self._arrivals = arrivals
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

    def get_buffer(self, sizehint: int) -> bytearray:  # noqa: ARG002
        return self._arrivals

    def buffer_updated(self, nbytes: int) -> None:
        if self._parser is None or self._answer is None:
            self.close()  # bytes nobody asked for
            return
        try:
            complete = self._parser.feed(memoryview(self._arrivals)[:nbytes])
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
        if self._parser is not None:
            if self._parser.started:
                self._settle(self._parser.end_of_stream())
            else:
                self._settle(_Dropped())

    def _settle(self, outcome: RawResponse | Exception) -> None:
        # a result even when it is an exception: nobody may be left to retrieve it, and asyncio would complain
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(outcome)

    async def ask(self, request: bytes, max_body_bytes: int) -> RawResponse:
        """Send a request and wait for its response. The caller bounds the time."""
        if self._transport is None or not self.usable:
            raise _Dropped
        self._parser = ResponseParser(max_body_bytes)
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
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


class PlainHttp:
    """GETs from one host and port, over a connection that is kept between requests.

    `unix_path`: the connection goes to this socket instead. All clients of one event loop may share
    `arrivals`, the buffer that is read into: a page is taken out of it at once.
    """

    def __init__(
        self,
        host: str,
        port: int,
        max_body_bytes: int,
        arrivals: bytearray,
        unix_path: str | None = None,
    ) -> None:
        self._unix_path = unix_path
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
        kept, self._idle = self._idle, None
        if kept is not None and kept.usable:
            try:
                return await self._ask(kept, request)
            except _Dropped:
                pass
        fresh = await self._connect()
        try:
            return await self._ask(fresh, request)
        except _Dropped:
            raise ResponseParser(0).end_of_stream() from None

    def close(self) -> None:
        """Close the kept connection."""
        if self._idle is not None:
            self._idle.close()
            self._idle = None

    async def _connect(self) -> _Connection:
        loop = asyncio.get_running_loop()
        try:
            if self._unix_path is not None:
                _, connection = await loop.create_unix_connection(self._new_connection, self._unix_path)
                return connection
            _, connection = await loop.create_connection(
                self._new_connection,
                self._host,
                self._port,
                # a race has no second runner here, and one that is called off can lose its socket
                happy_eyeballs_delay=None if is_address(self._host) else _SECOND_ADDRESS_DELAY_SECONDS,
            )
        except (OSError, UnicodeError) as error:
            raise connection_fault(error) from error
        if leads_astray(self._host, connection.peer):
            connection.close()
            raise FetchError(FailureKind.REFUSED, "the name leads to the metadata service of a cloud")
        return connection

    def _new_connection(self) -> _Connection:
        return _Connection(self._arrivals)

    async def _ask(self, connection: _Connection, request: bytes) -> RawResponse:
        try:
            response = await connection.ask(request, self._max_body_bytes)
        except BaseException:
            connection.close()
            raise
        if connection.usable and self._idle is None:
            self._idle = connection
        else:
            connection.close()
        return response
