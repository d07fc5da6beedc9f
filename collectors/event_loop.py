"""The engine's asyncio loop: name lookups that hang hold up nobody else."""

from __future__ import annotations

import asyncio
import select
import selectors
import socket
import threading
import time
from typing import Any

_HELD_UP_SECONDS = 0.1
"""A loop that does not come back to look for so long keeps those waiting who have answered."""


_AT_A_STRETCH_SECONDS = 0.004
_PAUSE_SECONDS = 0.0001
"""A loop at work gives the interpreter away again and again, for a send or a receive, but takes it back
before another thread has woken up, and each try begins that thread's waiting anew: a key had to wait until a
whole burst of scrapes was over. So it stands aside for a moment after each such stretch."""


def _pause(seconds: float) -> None:
    select.select((), (), (), seconds)  # libfaketime refuses what time.sleep asks for


_Found = list[Any] | Exception
"""Addresses, or why there are none: a result too, since those who wait for it may all have given up."""


class _TimedSelector(selectors.DefaultSelector):
    """Adds up how long the loop was held up, and stands aside for other threads after a stretch of work."""

    def __init__(self) -> None:
        super().__init__()
        self.held_up_seconds = 0.0
        self._left = self._rested = time.monotonic()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        asked = time.monotonic()
        busy = asked - self._left
        if busy > _HELD_UP_SECONDS:
            self.held_up_seconds += busy
        if asked - self._rested > _AT_A_STRETCH_SECONDS:
            _pause(_PAUSE_SECONDS)
            self._rested = time.monotonic()
        try:
            return super().select(timeout)
        finally:
            self._left = time.monotonic()
            if self._left - asked > _PAUSE_SECONDS:
                self._rested = self._left


class EngineEventLoop(asyncio.SelectorEventLoop):
    """An event loop that knows when it is late, and whose name lookups run in a daemon thread each.

    The stock loop shares a handful of pool threads between all lookups and joins them when it closes: a dead
    name server would delay healthy replicas, and the end of the program. Who asks for a name that is being
    looked up waits for that lookup: a dead name server hangs longer than a scrape, and every look would leave
    another thread behind.
    """

    def __init__(self) -> None:
        self._timed = _TimedSelector()
        self._lookups: dict[tuple[object, ...], asyncio.Future[_Found]] = {}
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
        question = (host, port, family, type, proto, flags)
        under_way = self._lookups.get(question) or self._begin_lookup(*question)
        found = await asyncio.shield(under_way)  # who gives up takes it from nobody else
        if isinstance(found, list):
            return list(found)
        try:
            raise found
        finally:
            del found  # else it and this frame hold one another

    def _begin_lookup(
        self, host: bytes | str | None, port: bytes | str | int | None, *how: int
    ) -> asyncio.Future[_Found]:
        question = (host, port, *how)
        under_way = self._lookups[question] = self.create_future()

        def settle(found: _Found) -> None:
            self._lookups.pop(question, None)
            under_way.set_result(found)

        def look_up() -> None:
            found: _Found
            try:
                found = list(socket.getaddrinfo(host, port, *how))
            except Exception as raised:  # noqa: BLE001 - handed to those who wait
                found = raised.with_traceback(None)  # which holds this frame, and that holds it
            if not self.is_closed():
                try:
                    self.call_soon_threadsafe(settle, found)
                except RuntimeError:
                    return  # closed in between: nobody waits any more

        try:
            threading.Thread(target=look_up, name="enginetop-lookup", daemon=True).start()
        except RuntimeError:  # no thread to be had: the next one who asks may try
            del self._lookups[question]
            raise
        return under_way
