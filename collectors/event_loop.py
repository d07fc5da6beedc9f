"""The engine's asyncio loop: name lookups that hang hold up nobody else."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any


class EngineEventLoop(asyncio.SelectorEventLoop):
    """An event loop whose name lookups run in a daemon thread each.

    The stock loop shares a handful of pool threads between all lookups and joins them when it closes: a dead
    name server would delay healthy replicas, and the end of the program.
    """

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
