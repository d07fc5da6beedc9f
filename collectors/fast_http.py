"""A lean keep-alive client for GETs over http and https, the thing a large fleet needs most often.

Anything beyond it (proxies, odd responses) is left to the complete client in `full_http.py`.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from traceback import clear_frames

from collectors.connection import Arrivals, Connection, Dropped, Outcome, Tell
from collectors.dial import dial
from collectors.fetch import Asked, FetchError, RawResponse, connection_fault
from collectors.http_response import ResponseParser
from collectors.lean_tls import Tls
from collectors.no_engine_there import ASTRAY, leads_astray
from enginetop.fleet.observation import FailureKind


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
        self._idle: Connection | None = None

    async def get(self, request: bytes) -> RawResponse:
        """The response to the bytes of one GET request.

        A kept connection that the server had dropped meanwhile is replaced once. Raises FetchError, or
        NeedsFullClient when the answer is not for this client.
        """
        try:
            return await self._over_a_connection(request)
        except Dropped:
            fault: Exception = self._told(ResponseParser(0).end_of_stream())
        except (ssl.SSLError, FetchError) as error:
            fault = self._told(error)
        try:
            raise fault
        finally:
            del fault  # which holds this frame

    def ask(self, request: bytes, tell: Tell) -> Asked | None:
        """As `get`, without a task: what comes is told, from the event loop.

        None where no connection is kept, or the kept one cannot be spoken over, and Dropped is told where the
        server had dropped it: it takes a `get`.
        """
        kept, self._idle = self._idle, None
        if kept is None or not kept.usable:
            return None

        def take(outcome: Outcome) -> None:
            if isinstance(outcome, Exception):
                kept.close()
                tell(self._told(outcome))
            else:
                self._keep(kept)
                tell(outcome)

        try:
            kept.ask(request, self._max_body_bytes, take)
        except BaseException as error:
            kept.call_off()  # or its end would be told to who has long gone on
            if isinstance(error, ssl.SSLError):
                return None
            raise
        return kept

    def _told(self, outcome: Exception) -> Exception:
        """A fault as people are told it; an outcome that is none stays."""
        if isinstance(outcome, ssl.SSLError):
            outcome = connection_fault(outcome)
        return (
            outcome if self._tls is None or not isinstance(outcome, FetchError) else self._tls.told(outcome)
        )

    async def _over_a_connection(self, request: bytes) -> RawResponse:
        kept, self._idle = self._idle, None
        if kept is not None and kept.usable:
            try:
                return await self._ask(kept, request)
            except Dropped:
                pass
        return await self._ask(await self._connect(), request)

    def close(self) -> None:
        """Close the kept connection."""
        if self._idle is not None:
            self._idle.close()
            self._idle = None

    async def _connect(self) -> Connection:
        layer = None if self._tls is None else self._tls.layer()
        try:
            connection = await self._dial(lambda: Connection(self._arrivals, layer))
        except (OSError, UnicodeError) as error:
            clear_frames(error.__traceback__)  # asyncio's hold the error that holds them
            raise connection_fault(error) from error
        if leads_astray(self._host, connection.peer):
            connection.close()
            raise FetchError(FailureKind.REFUSED, ASTRAY)
        try:
            await connection.secure()
        except BaseException:
            connection.close()
            raise
        return connection

    async def _dial(self, new_connection: Callable[[], Connection]) -> Connection:
        if self._unix_path is not None:
            loop = asyncio.get_running_loop()
            _, connection = await loop.create_unix_connection(new_connection, self._unix_path)
            return connection
        return await dial(new_connection, self._host, self._port)

    async def _ask(self, connection: Connection, request: bytes) -> RawResponse:
        answer: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        try:
            connection.ask(request, self._max_body_bytes, lambda came: _settle(answer, came))
            outcome = await answer
            if isinstance(outcome, Exception):
                raise outcome
        except BaseException:
            connection.call_off()
            raise
        self._keep(connection)
        return outcome

    def _keep(self, connection: Connection) -> None:
        """A response has come over it."""
        if self._tls is not None:
            self._tls.note_answer()
        if connection.usable and self._idle is None:
            self._idle = connection
        else:
            connection.close()


def _settle(answer: asyncio.Future[Outcome], outcome: Outcome) -> None:
    # a result even when it is an exception: nobody may be left to retrieve it, and asyncio would complain
    if not answer.done():
        answer.set_result(outcome)
