"""A connection to a host of several addresses: the next is tried when the former failed, or is slow."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import TypeVar

from enginetop.fleet.model import is_address

_NEXT_ADDRESS_DELAY_SECONDS = 0.25
"""So long an address is waited for alone (RFC 8305)."""

P = TypeVar("P", bound=asyncio.BaseProtocol)
_Attempt = asyncio.Task[tuple[asyncio.Transport, P]]


async def dial(new_protocol: Callable[[], P], host: str, port: int) -> P:
    """The protocol of the first connection that stands. Raises OSError, and UnicodeError for an odd name.

    asyncio has such a race of its own, but one that is called off can leave a socket open.
    """
    loop = asyncio.get_running_loop()
    if is_address(host):
        return (await loop.create_connection(new_protocol, host, port))[1]
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = _alternating([(family, str(address[0])) for family, _, _, _, address in found])
    attempts: list[_Attempt[P]] = []
    try:
        while addresses or not all(attempt.done() for attempt in attempts):
            if addresses:
                attempts.append(
                    loop.create_task(loop.create_connection(new_protocol, addresses.pop(0), port))
                )
            under_way = [attempt for attempt in attempts if not attempt.done()]
            patience = _NEXT_ADDRESS_DELAY_SECONDS if addresses else None
            await asyncio.wait(under_way, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
            for attempt in attempts:
                if attempt.done() and attempt.exception() is None:
                    attempts.remove(attempt)
                    return attempt.result()[1]
        raise _fault(attempts)
    finally:
        for attempt in attempts:
            attempt.add_done_callback(_hang_up)
            attempt.cancel()
        attempts.clear()  # else an error, the task that holds it and this frame hold one another


def _alternating(found: list[tuple[int, str]]) -> list[str]:
    """In their order, but the first of another family in the second place (RFC 8305, section 4)."""
    ordered = list(dict.fromkeys(found))
    other = next((place for place, (family, _) in enumerate(ordered) if family != ordered[0][0]), 1)
    if other > 1:
        ordered.insert(1, ordered.pop(other))
    return [address for _, address in ordered]


def _fault(attempts: list[_Attempt[P]]) -> BaseException:
    """Why the first address failed; the others are the same host."""
    faults = (attempt.exception() for attempt in attempts)
    return next(filter(None, faults), None) or OSError("the name has no address")


def _hang_up(attempt: _Attempt[P]) -> None:
    if not attempt.cancelled() and attempt.exception() is None:
        attempt.result()[0].abort()
