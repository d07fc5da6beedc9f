"""Several addresses of one host: their order, who is tried when, and that nobody leaves a socket behind."""

from __future__ import annotations

import asyncio
import gc
import socket
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from collectors import dial as dialling
from collectors.dial import dial

_REFUSED, _WELL, _SILENT = "10.0.0.1", "10.0.0.2", "10.0.0.3"


class _Closing(asyncio.Protocol):
    """Either end of a connection that is not used."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def eof_received(self) -> None:
        self.transport.abort()


class Loop:
    """Addresses of a name, and what becomes of who connects to them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
        self._addresses, self.tried = addresses, list[str]()
        loop = asyncio.get_running_loop()
        self._connect = loop.create_connection
        monkeypatch.setattr(loop, "getaddrinfo", self._found)
        monkeypatch.setattr(loop, "create_connection", self._connected)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        server = await asyncio.get_running_loop().create_server(_Closing, "127.0.0.1", 0)
        self._port = server.sockets[0].getsockname()[1]
        async with server:
            yield

    async def _found(self, host: str, port: int, **_: object) -> list[tuple[Any, ...]]:
        return [
            (socket.AF_INET6 if ":" in address else socket.AF_INET, 0, 0, "", (address, port))
            for address in self._addresses
        ]

    async def _connected(self, new: Any, host: str, port: int) -> Any:
        self.tried.append(host)
        if host == _SILENT:
            await asyncio.get_running_loop().create_future()
        if host != _WELL:
            raise ConnectionRefusedError(host)
        return await self._connect(new, "127.0.0.1", self._port)


def tried(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> tuple[list[str], object]:
    """Which addresses were tried, and the fault; None: a connection stands."""

    async def run() -> tuple[list[str], object]:
        loop = Loop(monkeypatch, *addresses)
        async with loop.serving():
            try:
                protocol = await dial(_Closing, "engine", 8000)
            except OSError as error:
                return loop.tried, error
            protocol.transport.abort()
            return loop.tried, None

    monkeypatch.setattr(dialling, "_NEXT_ADDRESS_DELAY_SECONDS", 0.01)
    return asyncio.run(run())


def test_the_next_is_tried_when_the_former_failed_or_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tried(monkeypatch, _WELL, _REFUSED) == ([_WELL], None)
    assert tried(monkeypatch, _REFUSED, _WELL) == ([_REFUSED, _WELL], None)
    assert tried(monkeypatch, _SILENT, _REFUSED, _WELL) == ([_SILENT, _REFUSED, _WELL], None)


def test_the_fault_is_that_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    places, fault = tried(monkeypatch, _REFUSED, "10.0.0.9")
    assert places == [_REFUSED, "10.0.0.9"]
    assert isinstance(fault, ConnectionRefusedError)
    assert str(fault) == _REFUSED
    assert str(tried(monkeypatch)[1]) == "the name has no address"


def test_the_other_family_comes_second(monkeypatch: pytest.MonkeyPatch) -> None:
    places, _ = tried(monkeypatch, "::1", "::2", "::1", _REFUSED)
    assert places == ["::1", _REFUSED, "::2"]


@pytest.mark.parametrize("rounds", range(12))
def test_who_is_called_off_leaves_no_socket(rounds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Called off after so many rounds of the loop: before, while and after the connection comes to stand."""

    async def run() -> None:
        loop = Loop(monkeypatch, _SILENT, _WELL)
        async with loop.serving():
            dialled = asyncio.create_task(dial(_Closing, "engine", 8000))
            while len(loop.tried) < 2:
                await asyncio.sleep(0)
            for _ in range(rounds):
                await asyncio.sleep(0)
            dialled.cancel()
            await asyncio.wait([dialled])
            if not dialled.cancelled():
                dialled.result().transport.abort()

    monkeypatch.setattr(dialling, "_NEXT_ADDRESS_DELAY_SECONDS", 0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(run())
        gc.collect()
