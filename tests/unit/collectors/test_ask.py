"""GETs without a task: they bring what a fetch brings, and say when it takes one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from collectors.answer import Answer
from collectors.fetch import Credentials
from collectors.http import HttpFetcher
from enginetop.fleet.observation import FailureKind
from tests.support.faulty_server import FaultyServer, Reply, Request, page
from tests.unit.collectors.test_http import BAD, GOOD

_LONG_WAY = {"until close", "http 1.0", "gzip unasked", "interim answer", "a compressed bomb", "damaged gzip"}
_LONG_WAY |= {"dropped", "reset", "too large, until close"}
"""Answers that the lean client leaves to others, and ends of a connection before the first byte of one."""


def second(reply: Reply) -> Callable[[Request], Reply]:
    """A good page first, which leaves a connection that stands."""
    return lambda request: reply if request.number else page(b"first 1\n")


async def asked(
    fetcher: HttpFetcher, url: str, path: str = "/metrics", seconds: float = 5.0
) -> Answer | None:
    told: asyncio.Future[Answer | None] = asyncio.get_running_loop().create_future()
    if fetcher.ask(url, path, timeout_seconds=seconds, tell=told.set_result) is None:
        return None
    return await told


def both(
    url: str, seconds: float = 5.0, credentials: Mapping[str, Credentials] | None = None
) -> tuple[Answer | None, Answer]:
    """What asking brings over a connection that stands, and what fetching over another brings."""

    async def run() -> tuple[Answer | None, Answer]:
        fetcher, other = HttpFetcher(credentials or {}), HttpFetcher(credentials or {})
        try:
            assert await asked(fetcher, url) is None  # nothing stands yet
            await fetcher.fetch(url, "/metrics", timeout_seconds=5.0)
            told = await asked(fetcher, url, seconds=seconds)
            return told, await other.fetch(url, "/metrics", timeout_seconds=seconds)
        finally:
            await fetcher.aclose()
            await other.aclose()
            await asyncio.sleep(0)

    return asyncio.run(run())


def what(answer: Answer) -> tuple[object, ...]:
    return answer.path, answer.status, dict(answer.headers), answer.body, answer.error, answer.detail


@pytest.mark.parametrize("name", [*GOOD, *BAD])
def test_it_brings_what_a_fetch_brings(server: FaultyServer, name: str) -> None:
    reply = GOOD[name][0] if name in GOOD else BAD[name][0]
    told, fetched = both(server.replica(second(reply)).url, seconds=0.15 if reply.hang else 5.0)
    if name in _LONG_WAY:
        assert told is None
    else:
        assert told is not None
        assert what(told) == what(fetched)


def test_a_connection_carries_one_request_after_the_other(server: FaultyServer) -> None:
    replica = server.replica(page(b"a 1\n"))

    async def run() -> list[Answer | None]:
        fetcher = HttpFetcher()
        await fetcher.fetch(replica.url, "/metrics", timeout_seconds=5.0)
        found = [await asked(fetcher, replica.url, f"/metrics?turn={turn}") for turn in range(5)]
        await fetcher.aclose()
        await asyncio.sleep(0)
        return found

    assert [answer and (answer.path, answer.body) for answer in asyncio.run(run())] == [
        ("/metrics", b"a 1\n")
    ] * 5
    assert replica.connections == 1
    assert [request.path for request in replica.requests[1:]] == [
        f"/metrics?turn={turn}" for turn in range(5)
    ]


def test_who_is_late_is_dropped_and_the_next_request_takes_another_connection(server: FaultyServer) -> None:
    replica = server.replica(lambda request: Reply(hang=True) if request.number == 1 else page(b"a 1\n"))

    async def run() -> tuple[Answer | None, Answer | None]:
        fetcher = HttpFetcher()
        await fetcher.fetch(replica.url, "/metrics", timeout_seconds=5.0)
        late = await asked(fetcher, replica.url, seconds=0.05)
        then = await asked(fetcher, replica.url)
        await fetcher.aclose()
        await asyncio.sleep(0)
        return late, then

    late, then = asyncio.run(run())
    assert late is not None
    assert (late.error, late.detail) == (FailureKind.TIMEOUT, "no answer within 0.05 s")
    assert late.seconds >= 0.05
    assert then is None  # it takes a fetch


def test_what_is_called_off_is_never_told(server: FaultyServer) -> None:
    replica = server.replica(second(Reply(hang=True)))

    async def run() -> list[Answer | None]:
        told: list[Answer | None] = []
        fetcher = HttpFetcher()
        await fetcher.fetch(replica.url, "/metrics", timeout_seconds=5.0)
        under_way = fetcher.ask(replica.url, "/metrics", timeout_seconds=0.02, tell=told.append)
        assert under_way is not None
        under_way.call_off()
        await asyncio.sleep(0.06)
        await fetcher.aclose()
        await asyncio.sleep(0)
        return told

    assert asyncio.run(run()) == []


def test_a_redirect_is_followed_by_a_fetch_and_remembered(server: FaultyServer) -> None:
    def script(request: Request) -> Reply:
        if request.path == "/metrics" and request.number:
            return page(b"", status=307, extra="location: /moved/metrics\r\n")
        return page(request.path.encode())

    replica = server.replica(script)

    async def run() -> tuple[Answer | None, Answer, Answer | None]:
        fetcher = HttpFetcher()
        await fetcher.fetch(replica.url, "/metrics", timeout_seconds=5.0)
        redirected = await asked(fetcher, replica.url)
        fetched = await fetcher.fetch(replica.url, "/metrics", timeout_seconds=5.0)
        then = await asked(fetcher, replica.url)
        await fetcher.aclose()
        await asyncio.sleep(0)
        return redirected, fetched, then

    redirected, fetched, then = asyncio.run(run())
    assert redirected is None
    assert then is not None
    assert fetched.body == then.body == b"/moved/metrics"


def test_a_key_is_sent_read_anew_and_taken_out_of_what_comes_back(
    server: FaultyServer, tmp_path: Path
) -> None:
    replica = server.replica(lambda request: page(request.headers["authorization"].encode()))
    key = tmp_path / "key"
    key.write_text("first-secret")
    credentials = {replica.url: Credentials(api_key_file=str(key))}

    async def run() -> tuple[Answer | None, Answer | None]:
        fetcher = HttpFetcher(credentials)
        await fetcher.fetch(replica.url, "/metrics", timeout_seconds=5.0)
        key.write_text("second-secret")
        told = await asked(fetcher, replica.url)
        key.unlink()
        missing = await asked(fetcher, replica.url)
        await fetcher.aclose()
        await asyncio.sleep(0)
        return told, missing

    told, missing = asyncio.run(run())
    assert told is not None
    assert b"secret" not in told.body
    assert missing is None
    sent = [request.headers["authorization"] for request in replica.requests]
    assert sent == ["Bearer first-secret", "Bearer second-secret"]


def test_who_asks_right_behind_a_farewell_leaves_no_connection_to_whoever_goes(server: FaultyServer) -> None:
    """A target that discovery describes anew, and a refresh by hand before the former's client has closed."""
    replica = server.replica(page(b"a 1\n"))

    async def run() -> tuple[Answer | None, Answer | None]:
        fetcher = HttpFetcher()
        await fetcher.fetch(replica.url, "/metrics", timeout_seconds=5.0)
        farewell = fetcher.forget(replica.url)
        behind = await asked(fetcher, replica.url)
        await farewell
        await fetcher.fetch(replica.url, "/metrics", timeout_seconds=5.0)
        then = await asked(fetcher, replica.url)
        await fetcher.aclose()
        await asyncio.sleep(0)
        return behind, then

    behind, then = asyncio.run(run())
    assert behind is None  # nothing stands yet: it takes a fetch
    assert then is not None
    assert then.error is None
    assert replica.connections == 2
