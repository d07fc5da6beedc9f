"""One connection of the lean client, over http or https: bytes in, responses out, by callbacks alone."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable

from collectors.fetch import FetchError, RawResponse
from collectors.http_response import NOT_HTTP, NeedsFullClient, ResponseParser
from collectors.lean_tls import TlsLayer
from enginetop.fleet.observation import FailureKind

_ARRIVALS_BYTES = 256 * 1024
"""What one call reads at most: a page of any usual size."""

_LARGER_BYTES = 4 * _ARRIVALS_BYTES


class Dropped(Exception):  # noqa: N818 - an outcome, not an error
    """The connection ended before the first byte of the answer."""


Outcome = RawResponse | Exception
"""A response, or why there is none: a FetchError, `Dropped`, NeedsFullClient, or an ssl.SSLError."""

Tell = Callable[[Outcome], None]


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


class Connection(asyncio.BufferedProtocol):
    """One connection, one request at a time; `tls` None: without TLS."""

    def __init__(self, arrivals: Arrivals, tls: TlsLayer | None) -> None:
        self._arrivals = arrivals
        self._tls = tls
        self._secured: asyncio.Future[Exception | None] | None = None
        self._transport: asyncio.Transport | None = None
        self._parser: ResponseParser | None = None
        self._tell: Tell | None = None
        """Who waits for a response."""
        self._outcome: Outcome | None = None
        """What they are told at the end of the present event, when all that came with it has been read."""
        self._unheard: Exception | None = None
        """Why it ended while nobody waited: a name is dialled in tasks, and the other end may be quicker."""
        self.usable = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # always a stream transport here
        self.usable = True

    @property
    def peer(self) -> object:
        """The address of the other end, as the socket tells it; None where there is none."""
        return self._transport.get_extra_info("peername") if self._transport is not None else None

    async def secure(self) -> None:
        """Shake hands, where there is TLS.

        Raises ssl.SSLError, Dropped when the other end hangs up, and FetchError when it speaks unasked.
        """
        if self._tls is None or self._transport is None:
            return
        if not self.usable:
            raise self._unheard or Dropped
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
        else:
            self._receive_sealed(self._tls, wire)
        if self._outcome is not None:
            self._hand_over()

    def _receive_sealed(self, tls: TlsLayer, wire: memoryview) -> None:
        try:
            for count in tls.read(wire, self._arrivals.plain):
                self._receive(self._arrivals.plain[:count])
        except ssl.SSLError as error:
            self._send_owed()  # the alert that tells the other end why
            self._settle(error.with_traceback(None))
            self.close()
            return
        self._send_owed()
        if tls.ended:
            self._end()
            self.close()
        elif tls.ready and self._secured is not None and not self._secured.done():
            self._secured.set_result(None)

    def _send_owed(self) -> None:
        if self._tls is not None and self._transport is not None and (owed := self._tls.to_send()):
            self._transport.write(owed)

    def _receive(self, data: memoryview) -> None:
        if self._parser is None:
            self._settle(FetchError(FailureKind.PROTOCOL, NOT_HTTP))  # bytes nobody asked for
            self.close()
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
        self._end()
        self._hand_over()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._end()
        self._hand_over()

    def _end(self) -> None:
        self.usable = False
        if self._parser is not None and self._parser.started:
            self._settle(self._parser.end_of_stream())
        else:
            self._settle(Dropped())

    def _settle(self, outcome: Outcome) -> None:
        if self._tell is not None and self._outcome is None:
            self._outcome = outcome
        elif self._secured is not None and not self._secured.done() and isinstance(outcome, Exception):
            self._secured.set_result(outcome)  # not raised: see `_settle`
        elif self._unheard is None and isinstance(outcome, Exception):
            self._unheard = outcome

    def _hand_over(self) -> None:
        tell, outcome = self._tell, self._outcome
        self._tell = self._outcome = self._parser = None
        if tell is not None and outcome is not None:
            tell(outcome)

    def ask(self, request: bytes, max_body_bytes: int, tell: Tell) -> None:
        """Send a request; what comes of it is told, from the event loop. The caller bounds the time.

        Raises Dropped, or FetchError, when the connection has ended already.
        """
        if self._transport is None or not self.usable:
            raise self._unheard or Dropped
        self._parser = ResponseParser(max_body_bytes)
        self._tell = tell
        if self._tls is None:
            self._transport.write(request)
        else:
            self._tls.write(request)
            self._send_owed()

    def call_off(self) -> None:
        """Drop the connection, and tell nothing of what was asked."""
        self._tell = self._outcome = self._parser = None
        self.close()

    def close(self) -> None:
        """Drop the connection now."""
        self.usable = False
        if self._transport is not None:
            self._transport.abort()
