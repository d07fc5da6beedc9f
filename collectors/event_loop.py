"""The engine's asyncio loop: name lookups that hang hold up nobody else."""

from __future__ import annotations

import asyncio
import selectors
import socket
import threading
import time
from typing import Any

_HELD_UP_SECONDS = 0.1
"""A loop that does not come back to look for so long keeps those waiting who have answered."""


class _TimedSelector(selectors.DefaultSelector):
    """Adds up how long the loop was held up."""

    def __init__(self) -> None:
        super().__init__()
        self.held_up_seconds = 0.0
        self._left = time.monotonic()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        busy = time.monotonic() - self._left
        if busy > _HELD_UP_SECONDS:
            self.held_up_seconds += busy
        try:
            return super().select(timeout)
        finally:
            self._left = time.monotonic()


class EngineEventLoop(asyncio.SelectorEventLoop):
    """An event loop that knows when it is late, and whose name lookups run in a daemon thread each.

    The stock loop shares a handful of pool threads between all lookups and joins them when it closes: a dead
    name server would delay healthy replicas, and the end of the program.
    """

    def __init__(self) -> None:
        self._timed = _TimedSelector()
        super().__init__(self._timed)

    @property
    def held_up_seconds(self) -> float:
        """For how long in all it answered nobody, in stretches of a tenth of a second and more."""
        return self._timed.held_up_seconds

    async def getaddrinfo(
        self,
        host: bytes | str | None,
        port: bytes | str | int | None,
        *,
        family: int = 0,
        type: int = 0,  # noqa: A002 - the name that asyncio calls with
        proto: int = 0,
        flags: int = 0,
    ) -> list[Any]:
        """As `socket.getaddrinfo`."""
        found: asyncio.Future[list[Any]] = self.create_future()

        def settle(addresses: list[Any] | None, error: Exception | None) -> None:
            if found.done():
                return
            if error is not None:
                found.set_exception(error)
            else:
                found.set_result(addresses or [])

        def look_up() -> None:
            addresses: list[Any] | None = None
            error: Exception | None = None
            try:
                addresses = list(socket.getaddrinfo(host, port, family, type, proto, flags))
            except Exception as raised:  # noqa: BLE001 - handed to the one who waits
                error = raised
            if not self.is_closed():
                try:
                    self.call_soon_threadsafe(settle, addresses, error)
                except RuntimeError:
                    return  # closed in between: nobody waits any more

        threading.Thread(target=look_up, name="enginetop-lookup", daemon=True).start()
        return await found
