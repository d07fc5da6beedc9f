"""The client of one target behind `ssh`: an HTTP client of the socket that leads to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from collectors.fetch import FetchError, RawResponse
from collectors.patience import Patience
from collectors.ssh.address import SshAddress
from collectors.ssh.connection import CONNECT_SECONDS
from collectors.ssh.faults import ssh_fault
from collectors.ssh.machines import SshMachines
from enginetop.fleet.observation import FailureKind

_PATIENCE_SECONDS = CONNECT_SECONDS + 2.0
"""For the way: a page's own time would never be enough for the first connection to a machine."""


class SocketClient(Protocol):
    """A client that is connected through one unix socket."""

    async def get(self, path: str, timeout_seconds: float) -> RawResponse:
        """The response to a GET of `path`. TimeoutError, FetchError: there is none."""

    async def aclose(self) -> None:
        """Close its connections."""


class SshClient:
    """One target behind `ssh`. `new_client` makes the client of a socket, given its path."""

    def __init__(
        self, address: SshAddress, machines: SshMachines, new_client: Callable[[str], SocketClient]
    ) -> None:
        self._address = address
        self._machines = machines
        self._new_client = new_client
        self._client: SocketClient | None = None
        self._socket = ""

    async def get(self, path: str, timeout_seconds: float) -> RawResponse:
        """As `SocketClient.get`; a connection that was lost meanwhile is made again once."""
        client = await self._open()
        try:
            return await client.get(path, timeout_seconds)
        except FetchError as raised:
            if raised.kind is not FailureKind.REFUSED:
                raise
            if self._machines.stands(self._address):  # then it is the server that does not answer
                raise self._machines.fault(self._address) or raised from None
        client = await self._open()
        return await client.get(path, timeout_seconds)

    async def leave(self) -> None:
        """The target is asked no more."""
        await self.aclose()
        await self._machines.leave(self._address)

    async def aclose(self) -> None:
        """Close what leads through the socket."""
        if self._client is not None:
            client, self._client = self._client, None
            await client.aclose()

    async def _open(self) -> SocketClient:
        try:
            async with Patience(_PATIENCE_SECONDS):
                path = await self._machines.socket(self._address)
        except TimeoutError:
            raise ssh_fault(self._address.machine, FailureKind.TIMEOUT, "not connected yet") from None
        if self._client is not None and path == self._socket:
            return self._client
        former, client = self._client, self._new_client(path)
        self._socket, self._client = path, client
        if former is not None:
            await former.aclose()
        return client
