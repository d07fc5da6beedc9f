"""Name lookups that hang hold up neither each other, nor the deadline, nor the end."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from typing import Any

import pytest

from collectors.clock import SteadyClock
from collectors.event_loop import EngineEventLoop
from collectors.http import HttpFetcher
from enginetop.fleet.observation import FailureKind


def test_dead_name_servers_hold_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    look_up = socket.getaddrinfo

    def hangs(host: Any, *args: Any, **named: Any) -> Any:
        if str(host).endswith(".dead"):
            release.wait(20)
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return look_up(host, *args, **named)

    monkeypatch.setattr(socket, "getaddrinfo", hangs)

    async def ask() -> list[FailureKind | None]:
        fetcher = HttpFetcher()
        # more hung lookups than a pool would have threads, and one name that resolves
        hosts = [f"http://h{number}.dead:1" for number in range(40)]
        slow = [asyncio.create_task(fetcher.fetch(url, "/metrics", timeout_seconds=0.5)) for url in hosts]
        quick = await fetcher.fetch("http://localhost:1", "/metrics", timeout_seconds=5)
        errors = [quick.error, *[(await task).error for task in slow]]
        await fetcher.aclose()
        return errors

    began = time.monotonic()
    try:
        with asyncio.Runner(loop_factory=EngineEventLoop) as runner:
            errors = runner.run(ask())
        took = time.monotonic() - began
    finally:
        release.set()
    assert errors == [FailureKind.REFUSED] + [FailureKind.TIMEOUT] * 40
    assert took < 15  # the lookups themselves hang for 20 s


def test_a_failed_lookup_is_told() -> None:
    async def ask() -> None:
        with pytest.raises(socket.gaierror):
            await asyncio.get_running_loop().getaddrinfo("no-such-host.invalid", 80)

    with asyncio.Runner(loop_factory=EngineEventLoop) as runner:
        runner.run(ask())


def test_the_clock_follows_steps_forward_and_never_runs_back() -> None:
    wall, steady = 1000.0, 50.0
    clock = SteadyClock(lambda: wall, lambda: steady)
    assert clock.now() == 1000.0
    wall, steady = 1002.0, 52.0
    assert clock.now() == 1002.0
    wall, steady = 902.0, 53.0  # set back by 101 s
    assert clock.now() == 1003.0
    wall, steady = 5000.0, 54.0  # set forward, or awake again
    assert clock.now() == 5000.0
    wall, steady = 4500.0, 55.0
    assert clock.now() == 5001.0
    wall, steady = 5002.4, 56.0  # small differences are not jumped over
    assert clock.now() == 5002.0
