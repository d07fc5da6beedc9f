"""Tokens, limits and sockets: real ones, in a folder of the test."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from enginetop_companion.board import Answer
from enginetop_companion.door import FAILURES, Door, TokenError, read_token
from enginetop_companion.listener import (
    LARGEST_BODY,
    AddressTakenError,
    Listener,
    listen,
    ruled_by_others,
)
from enginetop_companion.settings import Address, Objective, Settings

LOG = logging.getLogger("tests.companion")
TOKEN = "s3cret-token"


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text(f"  {TOKEN}\n")
    return file


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_only_the_token_opens(token_file: Path) -> None:
    door = Door(token_file, Clock())
    assert door.check(f"Bearer {TOKEN}") == 200
    for wrong in (
        None,
        "",
        "Bearer",
        "Bearer ",
        TOKEN,
        f"bearer {TOKEN}",
        f"Bearer {TOKEN}x",
        "Bearer \u00e9\udc80",
    ):
        assert Door(token_file, Clock()).check(wrong) == 401


def test_a_replaced_token_counts_at_once_and_a_lost_one_closes(token_file: Path) -> None:
    door = Door(token_file, Clock())
    token_file.write_text("other")
    assert door.check(f"Bearer {TOKEN}") == 401
    assert door.check("Bearer other") == 200
    token_file.write_text(" \n")
    assert door.check("Bearer ") == 401
    token_file.unlink()
    assert door.check("Bearer other") == 401


def test_guessing_is_slowed_down_but_the_owner_comes_in(token_file: Path) -> None:
    clock = Clock()
    door = Door(token_file, clock)
    assert [door.check("Bearer x") for _ in range(FAILURES)] == [401] * FAILURES
    assert door.check("Bearer x") == 429
    assert door.check(f"Bearer {TOKEN}") == 200
    clock.now = 61.0
    assert door.check("Bearer x") == 401


def test_no_token_says_why(tmp_path: Path) -> None:
    with pytest.raises(TokenError, match="cannot be read"):
        read_token(tmp_path / "missing")
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(TokenError, match="empty"):
        read_token(tmp_path / "empty")


async def echo(method: str, path: str, body: bytes) -> Answer:
    return Answer(200, {"method": method, "path": path, "body": body.decode()})


Scene = Callable[[Listener, Address], Awaitable[None]]


def with_listener(token_file: Path, path: Path, scene: Scene) -> None:
    async def run() -> None:
        listener = Listener(Door(token_file, Clock()), echo, LOG)
        address = Address(path=path)
        await listener.start(address)
        try:
            await scene(listener, address)
        finally:
            listener.stop()

    asyncio.run(run())


async def talk(path: Path, raw: bytes) -> tuple[int, dict[str, str], dict[str, object]]:
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(raw)
    if writer.can_write_eof():
        writer.write_eof()
    data = await reader.read()
    writer.close()
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    return int(first.split(" ")[1]), headers, json.loads(body)


def message(method: str, path: str, body: bytes = b"", token: str = TOKEN, extra: str = "") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n{extra}"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def test_a_request_over_a_unix_socket(token_file: Path, tmp_path: Path) -> None:
    async def scene(listener: Listener, address: Address) -> None:
        path = address.path
        assert path is not None
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        status, headers, body = await talk(path, message("PATCH", "/a?b=c", b"xyz"))
        assert (status, body) == (200, {"method": "PATCH", "path": "/a", "body": "xyz"})
        assert headers["Connection"] == "close"
        status, headers, body = await talk(path, message("GET", "/a", token="wrong"))
        assert (status, headers["WWW-Authenticate"]) == (401, "Bearer")
        assert TOKEN not in json.dumps(body)
        for _ in range(FAILURES - 1):
            await talk(path, message("GET", "/a", token="wrong"))
        status, headers, _ = await talk(path, message("GET", "/a", token="wrong"))
        assert (status, headers["Retry-After"]) == (429, "60")
        assert (await talk(path, message("GET", "/a")))[0] == 200

    with_listener(token_file, tmp_path / "run" / "knobs.sock", scene)


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"", 400),
        (b"GET\r\n\r\n", 400),
        (b"GET / SPDY/3\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\n", 400),
        (b"GET / HTTP/1.1\r\nX: " + b"y" * 20000 + b"\r\n\r\n", 413),
        (message("PATCH", "/", b"abc")[:-1], 400),
        (message("PATCH", "/", extra="Transfer-Encoding: chunked\r\n"), 400),
        (message("PATCH", "/", b"x" * (LARGEST_BODY + 1)), 413),
        (message("PATCH", "/", b"x" * LARGEST_BODY), 200),
        (message("PATCH", "/").replace(b"Content-Length: 0", b"Content-Length: -1"), 400),
        (message("PATCH", "/").replace(b"Content-Length: 0", "Content-Length: \u0661".encode()), 400),
    ],
)
def test_whatever_is_sent_is_answered(token_file: Path, tmp_path: Path, raw: bytes, status: int) -> None:
    async def scene(listener: Listener, address: Address) -> None:
        assert address.path is not None
        assert (await talk(address.path, raw))[0] == status
        assert (await talk(address.path, message("GET", "/")))[0] == 200

    with_listener(token_file, tmp_path / "s", scene)


def test_one_process_has_the_socket_and_one_left_behind_is_replaced(token_file: Path, tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))  # as after a kill: the file is there, nobody listens

    async def scene(listener: Listener, address: Address) -> None:
        second = Listener(Door(token_file, Clock()), echo, LOG)
        with pytest.raises(AddressTakenError):
            await second.start(address)
        assert (await talk(path, message("GET", "/")))[0] == 200

    with_listener(token_file, path, scene)
    with_listener(token_file, path, scene)  # the lock went with its owner


@pytest.mark.parametrize("open_folder", ["a", "a/enginetop"])
def test_no_socket_where_others_could_put_theirs(token_file: Path, tmp_path: Path, open_folder: str) -> None:
    (tmp_path / "a/enginetop").mkdir(parents=True)
    (tmp_path / open_folder).chmod(0o777)
    path = tmp_path / "a/enginetop/vllm-8000.sock"
    with pytest.raises(OSError, match=f"other users can change {tmp_path / open_folder}"):
        asyncio.run(Listener(Door(token_file, Clock()), echo, LOG).start(Address(path=path)))
    assert not path.exists()


@pytest.mark.parametrize(
    ("mode", "owner", "group", "theirs"),
    [
        (0o700, 7, 50, False),
        (0o775, 7, 7, False),  # a group of his own, as most systems give each user
        (0o775, 7, 50, True),
        (0o1775, 7, 50, False),
        (0o755, 0, 0, False),
        (0o1777, 0, 0, False),
        (0o700, 8, 8, True),
        (0o1777, 8, 8, True),
        (0o777, 7, 7, True),
    ],
)
def test_whose_folder_it_is(mode: int, owner: int, group: int, theirs: bool) -> None:
    found = os.stat_result((stat.S_IFDIR | mode, 0, 0, 1, owner, group, 0, 0, 0, 0))
    assert ruled_by_others(found, 7) is theirs


def test_a_taken_port(token_file: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = Address(host="127.0.0.1", port=other.getsockname()[1])
        with pytest.raises(AddressTakenError):
            asyncio.run(Listener(Door(token_file, Clock()), echo, LOG).start(address))


def test_an_address_of_another_machine_is_not_said_to_be_taken(
    token_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    elsewhere = Address(host="192.0.2.1", port=9400)  # of no machine: RFC 5737
    found = asyncio.run(listen(Settings(elsewhere, token_file, Objective()), echo, LOG))
    assert found is None
    (told,) = caplog.records
    assert told.levelno == logging.WARNING
    assert told.getMessage().startswith("enginetop companion: no knob API at 192.0.2.1:9400, ")
