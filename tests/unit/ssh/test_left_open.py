"""What is begun and given up is closed."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest

from collectors.fetch import FetchError, RawResponse
from collectors.ssh.address import SshAddress, SshHost, ssh_address
from collectors.ssh.client import SshClient
from collectors.ssh.connection import connect
from collectors.ssh.machines import SshMachines

ADDRESS = ssh_address("ssh://gpu1/127.0.0.1:8000")


class Moving(SshMachines):
    """Machines whose way to a server is another one after each loss."""

    def __init__(self) -> None:
        super().__init__()
        self.path = "/first"

    async def socket(self, address: SshAddress) -> str:
        return self.path


class Client:
    """Takes its time to close, as a client with connections does."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.open = True

    async def get(self, path: str, timeout_seconds: float) -> RawResponse:
        assert self.open
        await asyncio.sleep(0)
        return RawResponse(200, {}, self.path.encode())

    async def aclose(self) -> None:
        await asyncio.sleep(0)
        self.open = False


def test_two_that_find_a_new_way_at_once_share_its_client() -> None:
    made: list[Client] = []

    def new_client(path: str) -> Client:
        made.append(Client(path))
        return made[-1]

    async def run() -> None:
        machines = Moving()
        client = SshClient(ADDRESS, machines, new_client)
        await client.get("/metrics", 1.0)
        machines.path = "/second"
        found = await asyncio.gather(client.get("/metrics", 1.0), client.get("/health", 1.0))
        assert [one.body for one in found] == [b"/second", b"/second"]
        await client.aclose()

    asyncio.run(run())
    assert [(one.path, one.open) for one in made] == [("/first", False), ("/second", False)]


@pytest.mark.parametrize("end", ["leave", "aclose"])
def test_who_waits_for_a_machine_that_is_given_up_hears_of_it_and_is_not_cancelled(
    monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    async def run() -> None:
        begun = asyncio.Event()

        async def for_ever(*_: object) -> None:
            begun.set()
            await asyncio.Event().wait()

        monkeypatch.setattr("collectors.ssh.machines.connect", for_ever)
        machines = SshMachines()
        waiting = [asyncio.create_task(machines.socket(ADDRESS)) for _ in range(2)]
        await begun.wait()
        await (machines.leave(ADDRESS) if end == "leave" else machines.aclose())
        for found in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(found, FetchError)
            assert found.detail == "ssh to gpu1: given up before it was connected"

    asyncio.run(run())


def test_a_machine_on_which_nothing_can_be_started_keeps_nothing_open(
    sockets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a user has as many processes as he may: it is tried again every minute."""

    def refused(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", refused)
    before = open_files()
    for _ in range(3):
        with pytest.raises(FetchError, match="cannot be started: resource temporarily unavailable"):
            asyncio.run(connect(SshHost("gpu1"), "sh", lambda: 0.0))
    assert open_files() == before
    assert not any(sockets.iterdir())


def open_files() -> int:
    """How many descriptors this process has."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())
