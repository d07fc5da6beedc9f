"""Answers that come later or in parts, over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable

import pytest

from enginetop.simulator.http_messages import Answer, Deferred, Reply, Request, Streamed
from enginetop.simulator.http_server import HttpServer, Port

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[bytes]]


def served(handler: Callable[[Request], Answer | None], talk: Talk) -> bytes:
    """What `talk` brings back from a server that answers by `handler`."""

    async def scenario() -> bytes:
        port = Port()
        server = HttpServer(port, handler)
        server.open()
        reader, writer = await asyncio.open_connection("127.0.0.1", port.number)
        try:
            return await asyncio.wait_for(talk(reader, writer), 20)
        finally:
            writer.close()
            server.close()
            await server.wait_closed()
            port.close()

    return asyncio.run(scenario())


def sends(*requests: bytes) -> Talk:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        for request in requests:
            writer.write(request)
        return await reader.read()

    return talk


async def three() -> AsyncGenerator[bytes, None]:
    for part in (b"one", b"two" * 10, b"3"):
        await asyncio.sleep(0)
        yield part


def parts_of_three(request: Request) -> Answer:
    return Streamed(three, "text/plain") if request.path == "/stream" else Reply(b"next")


def test_a_stream_in_chunks_and_the_request_after_it() -> None:
    received = served(
        parts_of_three,
        sends(b"GET /stream HTTP/1.1\r\n\r\nGET /x HTTP/1.1\r\nconnection: close\r\n\r\n"),
    )
    head, _, rest = received.partition(b"\r\n\r\n")
    assert b"\r\ntransfer-encoding: chunked\r\n" in head
    assert b"\r\ncontent-type: text/plain\r\n" in head
    assert head.endswith(b"connection: keep-alive")
    chunks, _, after = rest.partition(b"0\r\n\r\n")
    assert chunks == b"3\r\none\r\n1e\r\n" + b"two" * 10 + b"\r\n1\r\n3\r\n"
    assert after.startswith(b"HTTP/1.1 200 OK\r\n")
    assert after.endswith(b"\r\n\r\nnext")


@pytest.mark.parametrize("request_", [b"GET /stream HTTP/1.0\r\n\r\n"])
def test_a_stream_to_an_old_client_ends_with_the_connection(request_: bytes) -> None:
    received = served(parts_of_three, sends(request_))
    head, _, body = received.partition(b"\r\n\r\n")
    assert b"chunked" not in head
    assert body == b"one" + b"two" * 10 + b"3"


def test_a_later_answer_and_those_behind_it_keep_their_order() -> None:
    async def later() -> Reply:
        for _ in range(5):
            await asyncio.sleep(0)
        return Reply(b"later")

    def handler(request: Request) -> Answer:
        return Deferred(later) if request.path == "/later" else Reply(b"at once")

    received = served(
        handler,
        sends(b"GET /later HTTP/1.1\r\n\r\n", b"GET /now HTTP/1.1\r\nconnection: close\r\n\r\n"),
    )
    bodies = [part.rpartition(b"\r\n\r\n")[2] for part in received.split(b"HTTP/1.1 200 OK")[1:]]
    assert bodies == [b"later", b"at once"]


@pytest.mark.parametrize("kind", ["stream", "later"])
def test_a_client_that_goes_ends_the_work_for_it(kind: str) -> None:
    async def scenario() -> str:
        begun, ended = asyncio.Event(), asyncio.Event()

        async def endless() -> AsyncGenerator[bytes, None]:
            try:
                while True:
                    yield b"token"
                    begun.set()
                    await asyncio.sleep(0.001)
            finally:
                ended.set()

        async def never() -> Reply:
            try:
                begun.set()
                await asyncio.get_running_loop().create_future()
            finally:
                ended.set()
            raise AssertionError

        port = Port()
        server = HttpServer(port, lambda _: Streamed(endless) if kind == "stream" else Deferred(never))
        server.open()
        _, writer = await asyncio.open_connection("127.0.0.1", port.number)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        await begun.wait()
        writer.close()
        await asyncio.wait_for(ended.wait(), 20)
        server.close()
        port.close()
        return "ended"

    assert asyncio.run(scenario()) == "ended"


def test_a_client_that_does_not_read_holds_the_stream_up() -> None:
    sent = 0

    async def flood() -> AsyncGenerator[bytes, None]:
        nonlocal sent
        while sent < 4000:
            sent += 1
            yield b"x" * 65536

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(b"GET / HTTP/1.1\r\nconnection: close\r\n\r\n")
        await reader.readexactly(100)
        before = -1
        while before != sent:
            before = sent
            for _ in range(50):
                await asyncio.sleep(0)
        assert sent < 1000, "at most what the sockets' buffers take"
        rest = await reader.read()
        while not reader.at_eof():
            rest = await reader.read()
        return rest[-1:]

    served(lambda _: Streamed(flood), talk)
    assert sent == 4000


def test_what_is_sent_ahead_is_bounded() -> None:
    async def never() -> Reply:
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        try:
            for _ in range(40):
                writer.write(b"x" * 65536)
                await writer.drain()
            return await reader.read()
        except ConnectionError:
            return b""

    assert served(lambda _: Deferred(never), talk) == b""
