"""The incremental parser: how the bytes are cut changes nothing, and no bytes break it."""

from __future__ import annotations

import gc

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from collectors.fetch import FetchError
from collectors.http_response import MAX_HEAD_BYTES, NeedsFullClient, ResponseParser
from enginetop.fleet.observation import FailureKind

LIMIT = 1 << 16
moderate = settings(max_examples=80, deadline=None)


def sized(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nServer: x\r\n\r\n%b" % (len(body), body)


def chunked(chunks: list[bytes]) -> bytes:
    coded = b"".join(b"%X\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks if chunk)
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%b0\r\n\r\n" % coded


def feed(parser: ResponseParser, wire: bytes, cuts: list[int]) -> bool:
    complete = False
    ends = sorted({min(cut, len(wire)) for cut in cuts} | {len(wire)})
    start = 0
    for end in ends:
        if end > start:
            complete = parser.feed(wire[start:end])
        start = end
    return complete


def feed_all(parser: ResponseParser, pieces: list[bytes]) -> None:
    for piece in pieces:
        parser.feed(piece)


NO_CONTENT = b"HTTP/1.1 204 No Content\r\n\r\n"
cuts = st.lists(st.integers(1, 400), max_size=12)


@moderate
@given(st.binary(max_size=300), cuts)
def test_a_sized_body_however_it_arrives(body: bytes, cuts: list[int]) -> None:
    parser = ResponseParser(LIMIT)
    assert feed(parser, sized(body), cuts)
    assert (parser.response.status, parser.response.body, parser.reusable) == (200, body, True)
    assert parser.response.headers["server"] == "x"


@moderate
@given(st.lists(st.binary(max_size=90), max_size=6), cuts)
def test_a_chunked_body_however_it_arrives(chunks: list[bytes], cuts: list[int]) -> None:
    parser = ResponseParser(LIMIT)
    assert feed(parser, chunked(chunks), cuts)
    assert (parser.response.body, parser.reusable) == (b"".join(chunks), True)


@moderate
@given(st.lists(st.binary(min_size=1, max_size=90), min_size=1, max_size=4), st.data())
def test_every_proper_beginning_is_incomplete(chunks: list[bytes], data: st.DataObject) -> None:
    wire = data.draw(st.sampled_from([sized(b"".join(chunks)), chunked(chunks)]))
    cut = data.draw(st.integers(0, len(wire) - 1))
    parser = ResponseParser(LIMIT)
    assert not parser.feed(wire[:cut])
    fault = parser.end_of_stream()
    assert fault.kind is (FailureKind.TRUNCATED if cut else FailureKind.REFUSED)


@moderate
@given(st.binary(max_size=200), st.booleans(), cuts)
@example(b"HTTP/1.1 200\r\n\r\n", False, [])
@example(b"Content-Length: 1\r\nContent-Length: 01\r\n\r\nx", True, [])
@example(b"Transfer-Encoding: chunked\r\n\r\n-1\r\n", True, [])
@example(b"Transfer-Encoding: chunked\r\n\r\n0x3\r\nabc", True, [])
@example(b"Transfer-Encoding: gzip, chunked\r\n\r\n", True, [])
@example(b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", True, [])
def test_hostile_bytes_end_in_a_fault_or_wait(noise: bytes, headed: bool, cuts: list[int]) -> None:
    parser = ResponseParser(LIMIT)
    try:
        feed(parser, (b"HTTP/1.1 200 OK\r\n" if headed else b"") + noise, cuts)
    except (FetchError, NeedsFullClient):
        return
    assert len(parser.response.body) <= LIMIT


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\n",
        b"HTTP/2.0 200 OK\r\nContent-Length: 1\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 1\r\n\r\n",
        b"HTTP/1.1 200 OK\nContent-Length: 1\n\n",
        b"HTTP/1.1 200 OK\r\nX: a\r\n folded\r\nContent-Length: 1\r\n\r\n",
    ],
)
def test_what_is_left_to_the_full_client(head: bytes) -> None:
    with pytest.raises(NeedsFullClient):
        ResponseParser(LIMIT).feed(head + b"x")


@pytest.mark.parametrize("connection", [b"close", b"Close", b"keep-alive, CLOSE", b"upgrade"])
def test_when_a_connection_is_not_kept(connection: bytes) -> None:
    parser = ResponseParser(LIMIT)
    assert parser.feed(b"HTTP/1.1 200 OK\r\nConnection: %b\r\nContent-Length: 1\r\n\r\nx" % connection)
    assert not parser.reusable


@pytest.mark.parametrize(
    "pieces",
    [
        [sized(b"x" * (LIMIT + 1))],
        [chunked([b"x" * LIMIT, b"y"])],
        [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n"],
        [b"HTTP/1.1 200 OK\r\nX: ", *[b"y" * 1000] * (MAX_HEAD_BYTES // 1000 + 1)],
    ],
    ids=["length", "chunks", "one chunk", "head"],
)
def test_nothing_grows_without_bound(pieces: list[bytes]) -> None:
    parser = ResponseParser(LIMIT)
    with pytest.raises(FetchError) as caught:
        feed_all(parser, pieces)
    assert caught.value.kind is FailureKind.TOO_LARGE


@pytest.mark.parametrize(
    "first", [sized(b"abc"), chunked([b"abc"]), NO_CONTENT], ids=["sized", "chunked", "bare"]
)
@pytest.mark.parametrize("then", [sized(b"other"), NO_CONTENT, b"HTTP/1.1 2", b"HTTP/1.1 no\r\n\r\n", b"x"])
@pytest.mark.parametrize("together", [True, False])
def test_two_answers_to_one_request_leave_no_connection_that_is_kept(
    first: bytes, then: bytes, together: bool
) -> None:
    """It would answer the next request with the rest of this one."""
    parser = ResponseParser(LIMIT)
    feed_all(parser, [first + then] if together else [first, then])
    assert parser.response.body == (b"" if first is NO_CONTENT else b"abc")
    assert not parser.reusable


def test_an_endless_chunk_line_is_malformed() -> None:
    parser = ResponseParser(LIMIT)
    parser.feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    with pytest.raises(FetchError) as caught:
        feed_all(parser, [b"1;" + b"x" * 100] * 50)
    assert caught.value.kind is FailureKind.PROTOCOL


@pytest.mark.parametrize(
    "wire",
    [sized(b"abc"), chunked([b"abc", b"d"]), sized(b"abc")[:-1], chunked([b"abc"])[:-3], b"HTTP/1.1 2", b""],
    ids=["sized", "chunked", "sized, cut", "chunked, cut", "head, cut", "nothing"],
)
def test_a_parser_that_is_let_go_is_gone_at_once_with_its_body(wire: bytes) -> None:
    gc.collect()
    gc.disable()
    try:
        for _ in range(5):
            ResponseParser(LIMIT).feed(wire)
        assert gc.collect() == 0
    finally:
        gc.enable()
