"""Name lookups that hang hold up neither each other, nor the deadline, nor the end."""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
import time
from typing import Any

import pytest

from collectors.clock import SteadyClock
from collectors.event_loop import EngineEventLoop, _TimedSelector
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


def test_a_name_that_hangs_is_looked_up_once_however_often_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A dead name server hangs longer than a scrape: each look would leave a thread behind."""
    asked: list[str] = []
    release = threading.Event()

    def hangs(host: str, *_: object) -> list[Any]:
        asked.append(host)
        release.wait(20)
        if host == "unknown":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.0.0.1", 80))]

    monkeypatch.setattr(socket, "getaddrinfo", hangs)

    async def look_up() -> tuple[list[Any], list[str]]:
        loop = asyncio.get_running_loop()
        for host in ("a", "a", "unknown"):  # who gives up takes nothing away from the others
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(loop.getaddrinfo(host, 80), 0.01)
        waiting = [asyncio.create_task(loop.getaddrinfo(host, 80)) for host in ("a", "a", "unknown", "b")]
        await asyncio.sleep(0)
        release.set()
        found = await asyncio.gather(*waiting, return_exceptions=True)
        while_it_hung = sorted(asked)
        await loop.getaddrinfo("a", 80)  # nothing is remembered: addresses change
        assert len(asked) == len(while_it_hung) + 1
        return found, while_it_hung

    try:
        with asyncio.Runner(loop_factory=EngineEventLoop) as runner:
            found, while_it_hung = runner.run(look_up())
    finally:
        release.set()
    assert while_it_hung == ["a", "b", "unknown"]
    assert [one[0][4] for one in (found[0], found[1], found[3])] == [("10.0.0.1", 80)] * 3
    assert isinstance(found[2], socket.gaierror)


def test_nobody_complains_of_a_failed_lookup_that_all_gave_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    release, complaints = threading.Event(), list[str]()

    def fails(*_: object) -> list[Any]:
        release.wait(20)
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", fails)

    async def give_up() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: complaints.append(str(context)))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(loop.getaddrinfo("a", 80), 0.01)
        release.set()
        for thread in threading.enumerate():
            if thread.name == "enginetop-lookup":
                thread.join()
        await asyncio.sleep(0)  # it is told

    with asyncio.Runner(loop_factory=EngineEventLoop) as runner:
        runner.run(give_up())
    gc.collect()
    assert complaints == []


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


class HandTime:
    """A clock that work and pauses move on."""

    def __init__(self) -> None:
        self.now = 100.0
        self.pauses = list[float]()

    def monotonic(self) -> float:
        """Now."""
        return self.now

    def pause(self, seconds: float) -> None:
        """A pause."""
        self.pauses.append(round(self.now - 100.0, 4))
        self.now += seconds


@pytest.mark.parametrize(
    ("waited", "pauses"),
    [(0.0, 10), (0.00005, 10), (0.002, 0)],
    ids=["always at work", "answers lie there already", "it waits in between"],
)
def test_a_loop_at_work_stands_aside_every_few_milliseconds(
    waited: float, pauses: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thirty turns of 1.5 ms: the third of each three goes beyond 4 ms. Who waits by itself owes no pause."""
    clock = HandTime()

    def select(_selector: object, _timeout: float | None) -> list[object]:
        clock.now += waited
        return []

    monkeypatch.setattr("collectors.event_loop.time", clock)
    monkeypatch.setattr("collectors.event_loop._pause", clock.pause)
    monkeypatch.setattr("selectors.DefaultSelector.select", select)
    selector = _TimedSelector()
    for _ in range(30):
        clock.now += 0.0015
        selector.select(0)
    selector.close()
    assert len(clock.pauses) == pauses
