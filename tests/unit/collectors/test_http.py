"""Fetching over real sockets: the same answers and the same error words from the lean and the full client."""

from __future__ import annotations

import asyncio
import gc
import gzip
import socket
import ssl
import tracemalloc
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import urlsplit

import pytest

from collectors.answer import Answer
from collectors.fetch import Credentials, RawResponse
from collectors.full_http import FullClient, proxy_for, tls_context
from collectors.http import HttpFetcher
from enginetop.fleet.observation import FailureKind
from tests.support.faulty_server import DROP, HANG, RESET, FaultyServer, Reply, Request, chunked, page, raw

TLS = Path(__file__).parents[2] / "support" / "tls"
BODY = b"vllm:num_requests_running 3\n" * 40
HEAD = b"HTTP/1.1 200 OK\r\nserver: uvicorn\r\n"
both_clients = pytest.mark.parametrize("fast_path", [True, False], ids=["fast", "full"])


def fetch(
    url: str,
    *paths: str,
    fast_path: bool = True,
    timeout_seconds: float = 5.0,
    max_body_bytes: int = 1 << 20,
    credentials: Mapping[str, Credentials] | None = None,
) -> list[Answer]:
    async def ask() -> list[Answer]:
        fetcher = HttpFetcher(
            credentials or {}, fast_path=fast_path, max_body_bytes=max_body_bytes, clock=lambda: 1000.0
        )
        try:
            return [
                await fetcher.fetch(url, path, timeout_seconds=timeout_seconds)
                for path in (paths or ("/metrics",))
            ]
        finally:
            await fetcher.aclose()
            await asyncio.sleep(0)

    return asyncio.run(ask())


def length(body: bytes, declared: int | None = None) -> bytes:
    return HEAD + b"content-length: %d\r\n\r\n" % (len(body) if declared is None else declared) + body


GOOD: dict[str, tuple[Reply, bytes]] = {
    "length": (raw(length(BODY), close=False), BODY),
    "in pieces": (raw(*(bytes([b]) for b in length(b"abc")), close=False), b"abc"),
    "chunked": (chunked(BODY), BODY),
    "many chunks": (chunked(b"a", b"bc", BODY), b"abc" + BODY),
    "chunk extension": (
        raw(HEAD + b"transfer-encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\n\r\n", close=False),
        b"abc",
    ),
    "trailer": (
        raw(HEAD + b"transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nx: y\r\n\r\n", close=False),
        b"abc",
    ),
    "empty": (raw(length(b""), close=False), b""),
    "until close": (raw(HEAD + b"\r\n" + BODY), BODY),
    "http 1.0": (raw(b"HTTP/1.0 200 OK\r\n\r\n" + BODY), BODY),
    "gzip unasked": (
        raw(
            HEAD
            + b"content-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(gzip.compress(BODY, mtime=0))
            + gzip.compress(BODY, mtime=0)
        ),
        BODY,
    ),
    "interim answer": (raw(b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n" + length(BODY)), BODY),
    "length twice": (raw(HEAD + b"content-length: 3\r\ncontent-length: 3\r\n\r\nabc"), b"abc"),
}


@both_clients
@pytest.mark.parametrize("name", GOOD)
def test_every_legal_form_of_an_answer_is_read(server: FaultyServer, name: str, fast_path: bool) -> None:
    reply, body = GOOD[name]
    (answer,) = fetch(server.replica(reply).url, fast_path=fast_path)
    assert (answer.error, answer.status, answer.body) == (None, 200, body), answer.detail
    assert (answer.path, answer.at) == ("/metrics", 1000.0)


BAD: dict[str, tuple[Reply, FailureKind]] = {
    "silence": (HANG, FailureKind.TIMEOUT),
    "stalled head": (Reply((HEAD,), hang=True), FailureKind.TIMEOUT),
    "stalled body": (Reply((length(BODY, 9999),), hang=True), FailureKind.TIMEOUT),
    "dropped": (DROP, FailureKind.REFUSED),
    "reset": (RESET, FailureKind.REFUSED),
    "short body": (raw(length(BODY, len(BODY) + 1)), FailureKind.TRUNCATED),
    "chunks cut": (Reply((*chunked(BODY, end=b"").parts,), close=True), FailureKind.TRUNCATED),
    "chunk cut in the middle": (
        raw(HEAD + b"transfer-encoding: chunked\r\n\r\nff\r\nabc"),
        FailureKind.TRUNCATED,
    ),
    "last chunk without its end": (
        raw(HEAD + b"transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n"),
        FailureKind.TRUNCATED,
    ),
    "too large, announced": (raw(length(b"", 1 << 30)), FailureKind.TOO_LARGE),
    "too large, in chunks": (chunked(*([b"x" * 65536] * 17)), FailureKind.TOO_LARGE),
    "too large, until close": (raw(HEAD + b"\r\n" + b"x" * (1 << 20) + b"x"), FailureKind.TOO_LARGE),
    "a compressed bomb": (
        raw(HEAD + b"content-encoding: gzip\r\n\r\n" + gzip.compress(b"\0" * (1 << 22), mtime=0)),
        FailureKind.TOO_LARGE,
    ),
    "not HTTP": (raw(b"SSH-2.0-OpenSSH_9.6\r\n\r\n"), FailureKind.PROTOCOL),
    "binary": (raw(b"\x15\x03\x01\x00\x02\x02\x46"), FailureKind.PROTOCOL),
    "bad status line": (raw(b"HTTP/1.1 OK 200\r\n\r\n"), FailureKind.PROTOCOL),
    "two lengths": (
        raw(HEAD + b"content-length: 3\r\ncontent-length: 4\r\n\r\nabcd"),
        FailureKind.PROTOCOL,
    ),
    "length is a word": (raw(HEAD + b"content-length: many\r\n\r\nabc"), FailureKind.PROTOCOL),
    "chunk size is a word": (
        raw(HEAD + b"transfer-encoding: chunked\r\n\r\nxyz\r\nabc\r\n"),
        FailureKind.PROTOCOL,
    ),
    "damaged gzip": (
        raw(HEAD + b"content-encoding: gzip\r\ncontent-length: 3\r\n\r\nabc"),
        FailureKind.PROTOCOL,
    ),
}


@both_clients
@pytest.mark.parametrize("name", BAD)
def test_every_fault_is_an_error_word_with_one_clean_line(
    server: FaultyServer, name: str, fast_path: bool
) -> None:
    reply, word = BAD[name]
    seconds = 0.15 if word is FailureKind.TIMEOUT else 5.0
    (answer,) = fetch(server.replica(reply).url, fast_path=fast_path, timeout_seconds=seconds)
    assert answer.error is word, answer.detail
    assert answer.detail
    assert answer.detail.isprintable()
    assert answer.body == b""


@both_clients
def test_endless_headers_are_given_up(server: FaultyServer, fast_path: bool) -> None:
    reply = raw(HEAD, *([b"x-filler: " + b"y" * 4000 + b"\r\n"] * 40), b"\r\n")
    (answer,) = fetch(server.replica(reply).url, fast_path=fast_path)
    assert answer.error in (FailureKind.TOO_LARGE, FailureKind.PROTOCOL)


@both_clients
def test_a_port_without_a_listener_is_refused(server: FaultyServer, fast_path: bool) -> None:
    (answer,) = fetch("http://127.0.0.1:1", fast_path=fast_path)
    assert (answer.error, answer.detail) == (FailureKind.REFUSED, "connection refused")


@both_clients
@pytest.mark.parametrize("host", ["no-such-host.invalid", "a" * 70 + ".example"])
def test_an_unknown_name_is_dns(host: str, fast_path: bool) -> None:
    (answer,) = fetch(f"http://{host}:8000", fast_path=fast_path)
    assert answer.error is FailureKind.DNS


@pytest.mark.parametrize("status", [401, 404, 500, 503])
def test_error_pages_are_answers(server: FaultyServer, status: int) -> None:
    (answer,) = fetch(server.replica(page(b"why", status=status)).url)
    assert (answer.error, answer.status, answer.body) == (None, status, b"why")


@pytest.mark.parametrize("status", [204, 304])
def test_an_answer_without_a_body_leaves_the_connection_usable(server: FaultyServer, status: int) -> None:
    bodiless = raw(f"HTTP/1.1 {status} X\r\ncontent-length: 5\r\n\r\n".encode(), close=False)
    replica = server.replica(lambda request: bodiless if request.number == 0 else page(BODY))
    first, second = fetch(replica.url, "/metrics", "/metrics")
    assert (first.status, first.body, second.body) == (status, b"", BODY)
    assert replica.connections == 1


@both_clients
def test_one_connection_serves_many_requests(server: FaultyServer, fast_path: bool) -> None:
    replica = server.replica(page(BODY))
    answers = fetch(replica.url, *["/metrics"] * 5, fast_path=fast_path)
    assert [answer.body for answer in answers] == [BODY] * 5
    assert (len(replica.requests), replica.connections) == (5, 1)


@both_clients
def test_a_connection_that_the_server_closes_is_not_reused(server: FaultyServer, fast_path: bool) -> None:
    replica = server.replica(page(BODY, extra="connection: close\r\n"))
    answers = fetch(replica.url, *["/metrics"] * 3, fast_path=fast_path)
    assert [answer.error for answer in answers] == [None] * 3
    assert replica.connections == 3


@both_clients
def test_a_kept_connection_that_was_dropped_is_replaced_once(server: FaultyServer, fast_path: bool) -> None:
    def script(request: Request) -> Reply:
        return page(BODY) if request.number in (0, 2) else DROP

    replica = server.replica(script)
    first, second, third = fetch(replica.url, *["/metrics"] * 3, fast_path=fast_path)
    assert (first.error, second.error) == (None, None)
    assert third.error is FailureKind.REFUSED
    # the third fetch lost its kept connection and one fresh one, and did not try for ever
    assert len(replica.requests) == 5


def test_a_fresh_connection_that_is_dropped_is_not_tried_again(server: FaultyServer) -> None:
    replica = server.replica(DROP)
    fetch(replica.url)
    assert len(replica.requests) == 1


def test_bytes_beyond_the_answer_end_the_connection(server: FaultyServer) -> None:
    smuggled = length(b"abc") + length(b"not yours")
    replica = server.replica(lambda r: raw(smuggled, close=False) if r.number == 0 else page(BODY))
    first, second = fetch(replica.url, "/metrics", "/metrics")
    assert (first.body, second.body, replica.connections) == (b"abc", BODY, 2)


def test_a_timeout_does_not_poison_the_next_answer(server: FaultyServer) -> None:
    late = Reply((HEAD + b"content-length: 9\r\n\r\nold",), hang=True)
    replica = server.replica(lambda r: late if r.number == 0 else page(BODY))
    first, second = fetch(replica.url, "/metrics", "/metrics", timeout_seconds=0.3)
    assert (first.error, second.body) == (FailureKind.TIMEOUT, BODY)


def test_an_odd_server_is_asked_twice_only_once(server: FaultyServer) -> None:
    replica = server.replica(raw(b"HTTP/1.0 200 OK\r\n\r\n" + BODY))
    answers = fetch(replica.url, *["/metrics"] * 3)
    assert [answer.body for answer in answers] == [BODY] * 3
    assert len(replica.requests) == 4


@both_clients
def test_what_a_request_says(server: FaultyServer, fast_path: bool) -> None:
    replica = server.replica(page(BODY))
    url = replica.url + "/base"
    asked = fetch(url, "/metrics", "/slots?x=1", fast_path=fast_path)
    metrics, slots = replica.requests
    assert (metrics.path, slots.path) == ("/base/metrics", "/base/slots?x=1")
    assert [answer.path for answer in asked] == ["/metrics", "/slots"]
    assert metrics.headers["accept"] == "text/plain;version=0.0.4"
    assert slots.headers["accept"] == "application/json"
    assert metrics.headers["accept-encoding"] == "identity"
    assert metrics.headers["host"] == urlsplit(replica.url).netloc
    assert "authorization" not in metrics.headers


def test_a_path_cannot_add_headers(server: FaultyServer) -> None:
    replica = server.replica(page(BODY))
    fetch(replica.url, "/metrics\r\nx-evil: 1\r\n é")
    assert replica.requests[0].path == "/metrics%0D%0Ax-evil:%201%0D%0A%20%C3%A9"
    assert "x-evil" not in replica.requests[0].headers


def test_only_harmless_headers_leave_the_fetcher(server: FaultyServer) -> None:
    (answer,) = fetch(server.replica(page(BODY, extra="Set-Cookie: session=secret\r\nServer: x\r\n")).url)
    assert dict(answer.headers) == {"content-type": "text/plain; version=0.0.4", "server": "x"}


def test_an_ipv6_address(server: FaultyServer) -> None:
    try:
        six = server.replica(page(BODY), host="::1")
    except OSError:
        pytest.skip("no IPv6 loopback here")
    (answer,) = fetch(six.url)
    assert (answer.body, six.requests[0].headers["host"]) == (BODY, urlsplit(six.url).netloc)


@pytest.fixture
def rooted_localhost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A resolver that knows `localhost.`, as not every machine's does."""
    look_up = socket.getaddrinfo

    def answer(host: str | bytes | None, *args: Any, **named: Any) -> Any:
        return look_up("127.0.0.1" if host in ("localhost.", b"localhost.") else host, *args, **named)

    monkeypatch.setattr(socket, "getaddrinfo", answer)


@both_clients
@pytest.mark.usefixtures("rooted_localhost")
def test_the_final_dot_is_for_the_resolver_alone(server: FaultyServer, fast_path: bool) -> None:
    replica = server.replica(page(BODY))
    (answer,) = fetch(replica.url.replace("127.0.0.1", "localhost."), fast_path=fast_path)
    assert answer.body == BODY, answer.detail
    port = urlsplit(replica.url).port
    assert replica.requests[0].headers["host"] == f"localhost:{port}"


# Redirects


def moved(location: str, status: int = 307) -> Reply:
    return page(b"", status=status, extra=f"location: {location}\r\n")


@both_clients
def test_a_key_that_the_server_repeats_does_not_come_back(
    server: FaultyServer, fast_path: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_KEY", "sk-s3cret-0")

    def echo(request: Request) -> Reply:
        told = request.headers["authorization"]
        return page(b"# " + told.encode() + b"\n" + BODY, status=500, extra=f"server: {told}\r\n")

    replica = server.replica(echo)
    keys = {replica.url: Credentials(api_key_env="TEST_KEY")}
    (answer,) = fetch(replica.url, fast_path=fast_path, credentials=keys)
    assert answer.body == b"# Bearer [key]\n" + BODY
    assert answer.headers["server"] == "Bearer [key]"


@both_clients
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_within_the_origin_is_followed_and_remembered(
    server: FaultyServer, status: int, fast_path: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_KEY", "s3cret")
    replica = server.replica(lambda r: page(BODY) if r.path == "/metrics/" else moved("/metrics/", status))
    keys = {replica.url: Credentials(api_key_env="TEST_KEY")}
    answers = fetch(replica.url, "/metrics", "/metrics", fast_path=fast_path, credentials=keys)
    assert [(answer.path, answer.body) for answer in answers] == [("/metrics", BODY)] * 2
    assert [request.path for request in replica.requests] == ["/metrics", "/metrics/", "/metrics/"]
    assert {request.headers["authorization"] for request in replica.requests} == {"Bearer s3cret"}


def test_a_remembered_redirect_is_forgotten_when_it_fails(server: FaultyServer) -> None:
    def script(request: Request) -> Reply:
        if request.path == "/new":
            return page(BODY) if request.number < 2 else page(b"", status=404)
        return moved("/new") if request.number == 0 else page(BODY)

    replica = server.replica(script)
    answers = fetch(replica.url, *["/metrics"] * 3)
    assert [answer.status for answer in answers] == [200, 404, 200]
    assert [request.path for request in replica.requests] == ["/metrics", "/new", "/new", "/metrics"]


@both_clients
@pytest.mark.parametrize(
    "other", ["{other}/metrics", "//evil.invalid/metrics", "https://127.0.0.1/", "http://[::"]
)
def test_no_key_goes_to_another_origin(
    server: FaultyServer, other: str, fast_path: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_KEY", "s3cret")
    elsewhere = server.replica(page(BODY))
    replica = server.replica(moved(other.format(other=elsewhere.url)))
    keys = {replica.url: Credentials(api_key_env="TEST_KEY")}
    (answer,) = fetch(replica.url, fast_path=fast_path, credentials=keys)
    assert answer.error is FailureKind.PROTOCOL
    assert "redirected" in answer.detail or "location" in answer.detail
    assert elsewhere.requests == []


def test_a_redirect_loop_ends(server: FaultyServer) -> None:
    replica = server.replica(moved("/metrics"))
    (answer,) = fetch(replica.url)
    assert answer.error is FailureKind.PROTOCOL
    assert len(replica.requests) == 4


def test_credentials_in_a_location_are_not_shown(server: FaultyServer) -> None:
    replica = server.replica(moved("http://user:hunter2@elsewhere.invalid/x?token=hunter2"))
    (answer,) = fetch(replica.url)
    assert "hunter2" not in answer.detail
    assert "elsewhere.invalid" in answer.detail


# Keys


def test_the_key_is_read_anew_each_time(
    server: FaultyServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "key"
    replica = server.replica(
        lambda request: (file.write_text("second\n"), page(BODY))[1]  # rotated while we run
    )
    file.write_text("first\n")
    fetch(replica.url, "/metrics", "/metrics", credentials={replica.url: Credentials(api_key_file=str(file))})
    assert [r.headers["authorization"] for r in replica.requests] == ["Bearer first", "Bearer second"]


@pytest.mark.parametrize(
    ("credentials", "said"),
    [
        (Credentials(api_key_env="TEST_KEY_UNSET"), "TEST_KEY_UNSET is not set"),
        (Credentials(api_key_env="TEST_KEY_TWO_LINES"), "TEST_KEY_TWO_LINES holds more than one"),
        (Credentials(api_key_file="/no/such/key"), "/no/such/key: No such file"),
    ],
)
def test_a_key_that_cannot_be_had_is_unauthorized_and_nothing_is_sent(
    server: FaultyServer, credentials: Credentials, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_KEY_TWO_LINES", "s3cret\r\nx-evil: 1")
    replica = server.replica(page(BODY))
    (answer,) = fetch(replica.url, credentials={replica.url: credentials})
    assert answer.error is FailureKind.UNAUTHORIZED
    assert said in answer.detail
    assert "s3cret" not in answer.detail + repr(answer) + repr(credentials)
    assert replica.requests == []


# TLS


def tls_server(server: FaultyServer, reply: Reply) -> str:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "server.crt", TLS / "server.key")
    return server.replica(reply, tls=context).url


@both_clients
def test_a_private_ca_needs_its_file(server: FaultyServer, fast_path: bool) -> None:
    url = tls_server(server, page(BODY))
    (unknown,) = fetch(url, fast_path=fast_path)
    told = "TLS: self-signed certificate; name its CA with ca_file"
    assert (unknown.error, unknown.detail) == (FailureKind.TLS, told)
    known = {url: Credentials(ca_file=str(TLS / "server.crt"))}
    assert [
        answer.body for answer in fetch(url, "/metrics", "/metrics", credentials=known, fast_path=fast_path)
    ] == [BODY] * 2
    (skipped,) = fetch(url, credentials={url: Credentials(insecure_skip_verify=True)}, fast_path=fast_path)
    assert skipped.body == BODY


@both_clients
def test_a_certificate_for_another_name_is_tls(server: FaultyServer, fast_path: bool) -> None:
    url = tls_server(server, page(BODY)).replace("127.0.0.1", "127.0.0.2")
    (answer,) = fetch(
        url, credentials={url: Credentials(ca_file=str(TLS / "server.crt"))}, fast_path=fast_path
    )
    assert answer.error in (FailureKind.TLS, FailureKind.REFUSED)


@pytest.mark.usefixtures("rooted_localhost")
def test_the_final_dot_is_no_part_of_the_certificate_name(server: FaultyServer) -> None:
    url = tls_server(server, page(BODY)).replace("127.0.0.1", "localhost.")
    (answer,) = fetch(url, credentials={url: Credentials(ca_file=str(TLS / "server.crt"))})
    assert answer.body == BODY, answer.detail


@both_clients
def test_plain_and_tls_confused(server: FaultyServer, fast_path: bool) -> None:
    (plain,) = fetch(tls_server(server, page(BODY)).replace("https", "http"), fast_path=fast_path)
    assert plain.error in (FailureKind.PROTOCOL, FailureKind.REFUSED)
    (tls,) = fetch(
        server.replica(page(BODY)).url.replace("http", "https"), timeout_seconds=1.0, fast_path=fast_path
    )
    assert tls.error is FailureKind.TLS or tls.error is FailureKind.TIMEOUT


@pytest.mark.parametrize("how", GOOD)
def test_every_form_of_a_good_answer_over_tls(server: FaultyServer, how: str) -> None:
    reply, body = GOOD[how]
    url = tls_server(server, reply)
    known = {url: Credentials(ca_file=str(TLS / "server.crt"))}
    (answer,) = fetch(url, credentials=known)
    assert (answer.error, answer.status, answer.body) == (None, 200, body)


def test_https_needs_no_second_client_and_one_connection(
    server: FaultyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise AssertionError("the complete client was asked")

    monkeypatch.setattr(FullClient, "get", refused)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "server.crt", TLS / "server.key")
    replica = server.replica(page(BODY), tls=context)
    known = {replica.url: Credentials(ca_file=str(TLS / "server.crt"))}
    answers = fetch(replica.url, *["/metrics"] * 5, credentials=known)
    assert [answer.body for answer in answers] == [BODY] * 5
    assert replica.connections == 1


def test_targets_that_are_reached_alike_share_what_tls_needs(server: FaultyServer) -> None:
    urls = [tls_server(server, page(BODY)) for _ in range(3)]
    credentials = {url: Credentials(ca_file=str(TLS / "server.crt")) for url in urls}

    async def ask() -> list[bytes]:
        fetcher = HttpFetcher(credentials)
        answers = [await fetcher.fetch(url, "/metrics", timeout_seconds=10.0) for url in urls]
        await fetcher.aclose()
        return [answer.body for answer in answers]

    with patch("collectors.lean_tls.tls_context", wraps=tls_context) as made:
        assert asyncio.run(ask()) == [BODY] * 3
    assert made.call_count == 1


def test_files_are_read_again_after_a_failure_of_tls(server: FaultyServer, tmp_path: Path) -> None:
    url = tls_server(server, page(BODY))
    ca_file = tmp_path / "ca.crt"
    ca_file.write_bytes((TLS / "ca.crt").read_bytes())

    async def ask() -> list[FailureKind | None]:
        fetcher = HttpFetcher({url: Credentials(ca_file=str(ca_file))})
        first = await fetcher.fetch(url, "/metrics", timeout_seconds=10.0)
        ca_file.write_bytes((TLS / "server.crt").read_bytes())
        second = await fetcher.fetch(url, "/metrics", timeout_seconds=10.0)
        await fetcher.aclose()
        return [first.error, second.error]

    assert asyncio.run(ask()) == [FailureKind.TLS, None]


@pytest.mark.parametrize("ca_file", ["/no/such/ca.pem", __file__])
def test_a_ca_file_that_cannot_be_used_is_named(server: FaultyServer, ca_file: str) -> None:
    url = tls_server(server, page(BODY))
    (answer,) = fetch(url, credentials={url: Credentials(ca_file=ca_file)})
    assert answer.error is FailureKind.TLS
    assert Path(ca_file).name in answer.detail


# Proxies


@pytest.mark.parametrize(
    ("host", "proxied"),
    [
        ("localhost", False),
        ("127.0.0.1", False),
        ("127.8.9.1", False),
        ("::1", False),
        ("10.1.2.3", False),
        ("11.1.2.3", True),
        ("engine.internal", False),
        ("engine.example", True),
    ],
)
def test_which_hosts_go_through_the_proxy(host: str, proxied: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("no_proxy", "NO_PROXY", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    assert proxy_for("http", host) is None
    monkeypatch.setenv("http_proxy", "http://proxy.invalid:3128")
    monkeypatch.setenv("no_proxy", "10.0.0.0/8,.internal")
    assert (proxy_for("http", host) is not None) is proxied


def test_a_proxied_target_is_asked_through_the_proxy(
    server: FaultyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = server.replica(page(BODY))
    monkeypatch.setenv("http_proxy", proxy.url)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    (answer,) = fetch("http://engine.example:8000")
    assert answer.body == BODY
    assert proxy.requests[0].path == "http://engine.example:8000/metrics"


@both_clients
def test_handshakes_that_hang_leak_no_connection(server: FaultyServer, fast_path: bool) -> None:
    url = server.replica(HANG).url.replace("http", "https")

    async def ask() -> list[int]:
        fetcher = HttpFetcher(fast_path=fast_path)
        counts = []
        for _ in range(4):
            answer = await fetcher.fetch(url, "/metrics", timeout_seconds=0.1)
            assert answer.error is FailureKind.TIMEOUT
            counts.append(len(list(Path("/proc/self/fd").iterdir())))
        await fetcher.aclose()
        return counts

    counts = asyncio.run(ask())
    assert counts[-1] <= counts[0] + 1  # the server's end of a closed connection may linger once


@both_clients
def test_answers_that_nobody_keeps_do_not_pile_up(server: FaultyServer, fast_path: bool) -> None:
    replica = server.replica(page(BODY))

    async def bodies_alive() -> int:
        fetcher = HttpFetcher({}, fast_path=fast_path, clock=lambda: 1000.0)
        try:
            for _ in range(20):
                assert (await fetcher.fetch(replica.url, "/metrics", timeout_seconds=5.0)).body == BODY
            await asyncio.sleep(0)  # what woke this task still holds the last answer
            holders = [one for one in gc.get_objects() if isinstance(one, RawResponse | Answer)]
            return sum(one.body == BODY for one in holders)
        finally:
            await fetcher.aclose()
            await asyncio.sleep(0)

    gc.collect()
    gc.disable()
    try:
        assert asyncio.run(bodies_alive()) == 0
    finally:
        gc.enable()


LARGE = b"x" * 4_000_000
FAILING = {
    "too large": page(LARGE),
    "too large, in chunks": chunked(*[LARGE[:500_000]] * 8),
    "cut short": raw(length(LARGE[:1_900_000], declared=1_950_000)),
    "cut short in a chunk": chunked(*[LARGE[:500_000]] * 3, end=b"300000\r\nabc"),
    "a chunk without a size": chunked(*[LARGE[:500_000]] * 3, end=b"what?\r\n"),
}


@both_clients
@pytest.mark.parametrize("reply", FAILING.values(), ids=FAILING)
def test_what_was_read_of_a_bad_answer_is_let_go(server: FaultyServer, reply: Reply, fast_path: bool) -> None:
    url = server.replica(Reply(reply.parts, close=True)).url

    async def kept() -> int:
        fetcher = HttpFetcher({}, fast_path=fast_path, max_body_bytes=2_000_000, clock=lambda: 1000.0)
        try:
            for turn in range(6):
                if turn == 1:  # what is made once has been made
                    tracemalloc.start()
                assert (await fetcher.fetch(url, "/metrics", timeout_seconds=5.0)).error is not None
            await asyncio.sleep(0)
            return sum(trace.size for trace in tracemalloc.take_snapshot().traces)
        finally:
            tracemalloc.stop()
            await fetcher.aclose()
            await asyncio.sleep(0)

    gc.collect()
    gc.disable()
    try:
        assert asyncio.run(kept()) < 1_500_000  # five of them: httpx holds on to a chunk or two of each
    finally:
        gc.enable()
