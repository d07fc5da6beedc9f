"""The machines that are reached through `ssh`: each connected once, at need, and again when that was lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from collectors.fetch import FetchError
from collectors.ssh.address import SshAddress, SshHost
from collectors.ssh.connection import SshConnection, connect
from collectors.ssh.faults import ssh_fault
from enginetop.fleet.observation import FailureKind

_SHORTEST_PAUSE_SECONDS = 2.0
_LONGEST_PAUSE_SECONDS = 60.0
_STEADY_SECONDS = 30.0
"""A connection that stood so long is made again at once; a shorter one is a failure, and pauses grow."""

_MOST_AT_ONCE = 8
"""Connections that are begun at once: a jump host's sshd drops some of more than ten (MaxStartups)."""


class SshMachines:
    """The machines of one fetcher, each connected once however many servers are behind it.

    Belongs to one event loop. `program` is the `ssh` to run.
    """

    def __init__(self, program: str = "ssh", monotonic: Callable[[], float] = time.monotonic) -> None:
        self._program = program
        self._monotonic = monotonic
        self._machines: dict[SshHost, _Machine] = {}
        self._turns = asyncio.Semaphore(_MOST_AT_ONCE)

    async def socket(self, address: SshAddress) -> str:
        """The path of a unix socket that leads to the server. FetchError: there is no way to it."""
        machine = self._machines.get(address.machine)
        if machine is None:
            machine = _Machine(address.machine, self._program, self._monotonic, self._turns)
            self._machines[address.machine] = machine
        machine.urls.add(address.url)
        connection = await machine.connected()
        return await connection.socket(address.server)

    def fault(self, address: SshAddress) -> FetchError | None:
        """Why connections to a server are closed unanswered, as far as `ssh` told."""
        machine = self._machines.get(address.machine)
        if machine is None or machine.connection is None:
            return None
        return machine.connection.server_fault(address.server)

    def stands(self, address: SshAddress) -> bool:
        """Whether the connection to the machine stands; when not, `socket` connects anew."""
        machine = self._machines.get(address.machine)
        return machine is not None and machine.connection is not None and machine.connection.listens()

    async def leave(self, address: SshAddress) -> None:
        """A server is asked no more; the last one of a machine takes the connection with it."""
        machine = self._machines.get(address.machine)
        if machine is None:
            return
        machine.urls.discard(address.url)
        if not machine.urls:
            del self._machines[address.machine]
            await machine.aclose()

    async def aclose(self) -> None:
        """End every connection and remove every socket."""
        machines, self._machines = list(self._machines.values()), {}
        await asyncio.gather(*(machine.aclose() for machine in machines))


class _Machine:
    """One machine: its connection, and when it may be tried again."""

    def __init__(
        self, host: SshHost, program: str, monotonic: Callable[[], float], turns: asyncio.Semaphore
    ) -> None:
        self.urls: set[str] = set()
        self.connection: SshConnection | None = None
        self._host = host
        self._program = program
        self._monotonic = monotonic
        self._turns = turns
        self._opening: asyncio.Task[SshConnection | FetchError] | None = None
        self._fault: FetchError | None = None
        self._pause_seconds = 0.0
        self._not_before = 0.0

    async def connected(self) -> SshConnection:
        """The connection; who gives up waiting does not stop it. FetchError: there is none at present."""
        if self._opening is None:
            if self.connection is not None and self.connection.stands:
                return self.connection
            self._opening = asyncio.create_task(self._open())
        opening = self._opening
        await asyncio.wait((opening,))
        if opening.cancelled():  # by `aclose`: not whoever waits here is to end
            raise ssh_fault(self._host, FailureKind.REFUSED, "given up before it was connected")
        made = opening.result()
        if isinstance(made, FetchError):
            raise FetchError(made.kind, made.detail)
        return made

    async def aclose(self) -> None:
        """End the connection."""
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.gather(self._opening, return_exceptions=True)
        if self.connection is not None:
            await self.connection.end()

    async def _open(self) -> SshConnection | FetchError:
        try:
            lost, self.connection = self.connection, None
            if lost is not None:
                if lost.age_seconds < _STEADY_SECONDS:
                    self._failed(lost.end_fault())
                else:
                    self._fault, self._pause_seconds = None, 0.0
                await lost.end()
            if self._fault is not None and self._monotonic() < self._not_before:
                return self._fault
            try:
                async with self._turns:
                    self.connection = await connect(self._host, self._program, self._monotonic)
            except FetchError as fault:
                self._failed(fault)
                return fault
            self._fault = None
            return self.connection
        finally:
            self._opening = None

    def _failed(self, fault: FetchError) -> None:
        """Remember why, and try again ever later."""
        self._fault = fault
        self._pause_seconds = min(
            max(_SHORTEST_PAUSE_SECONDS, self._pause_seconds * 2), _LONGEST_PAUSE_SECONDS
        )
        self._not_before = self._monotonic() + self._pause_seconds
