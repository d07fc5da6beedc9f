"""An incremental parser of plain HTTP/1.1 responses: bytes in, one bounded response out. No I/O.

It reads what metrics pages really look like: a status, headers and a body of known length or in chunks. All
else (interim answers, HTTP/1.0, compression, bodies that end with the connection) raises `NeedsFullClient`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from types import MappingProxyType

from collectors.fetch import CUT_SHORT, UNANSWERED, FetchError, RawResponse, body_too_large
from enginetop.fleet.observation import FailureKind

MAX_HEAD_BYTES = 64 * 1024
_USUAL_HEAD_BYTES = 2048
_MAX_LINE_BYTES = 1024
_USUAL_LINE_BYTES = 128
"""Of a header line that is no longer it is remembered what it says: a fleet repeats a few."""
_STATUS_LINE = re.compile(rb"HTTP/(\d\.\d) (\d{3})(?: |$)")
_HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;|$)")
_LENGTH = re.compile(r"\d{1,18}")
_NO_RESPONSE = RawResponse(0, MappingProxyType({}), b"")
_BODILESS = frozenset({204, 304})
NOT_HTTP = "what answers does not speak HTTP"
"""The detail of an answer that is none, or of one that came before anybody asked."""


@lru_cache(maxsize=512)
def _header(line: bytes) -> tuple[str, str]:
    """The lower-case name and the text of a header line; no name: it is none."""
    name, colon, value = line.decode("latin-1").partition(":")
    if not colon or not _HEADER_NAME.fullmatch(name):
        return "", ""
    return name.lower(), value.strip(" \t")


class NeedsFullClient(Exception):  # noqa: N818 - not an error: the other client takes over
    """The response is in a form that this parser leaves to a complete HTTP client."""


class ResponseParser:
    """Feeds on the bytes of one response.

    Once it is `complete`, `response` holds it and `reusable` says whether the connection may carry
    another request. Raises FetchError for what is no acceptable response.
    """

    __slots__ = ("_buffer", "_headers", "_max_body_bytes", "_parts", "_phase", "_received", "_remaining",
                 "_status", "complete", "response", "reusable")  # fmt: skip

    def __init__(self, max_body_bytes: int) -> None:
        self.response = _NO_RESPONSE
        self.complete = False
        self.reusable = False
        self._max_body_bytes = max_body_bytes
        self._buffer = bytearray()
        self._parts: list[bytes] = []
        self._received = 0
        self._remaining = 0
        # A plain function: a bound method would tie the parser to itself, and the body with it would live on
        # until the next garbage collection.
        self._phase: _Phase = ResponseParser._head
        self._status = 0
        self._headers: dict[str, str] = {}

    @property
    def started(self) -> bool:
        """Whether any byte has arrived."""
        return self._phase is not ResponseParser._head or bool(self._buffer)

    def feed(self, data: bytes | memoryview) -> bool:
        """Take more bytes; True when the response is complete. `data` may be used again afterwards."""
        rest = memoryview(data) if self.complete else self._past_the_buffer(memoryview(data))
        if rest:
            self._buffer += rest
            if not self.complete:
                self._go_on()
        if self.complete and self._buffer:
            self.reusable = False  # bytes that nobody asked for: the stream is out of step
        return self.complete

    def _go_on(self) -> None:
        while self._phase(self):
            pass

    def _past_the_buffer(self, data: memoryview) -> memoryview:
        """Take what needs no buffer, nearly all of a page: a body of known length, copied once."""
        if self._phase is ResponseParser._head and not self._buffer:
            start = bytes(data[:_USUAL_HEAD_BYTES])
            end = start.find(b"\r\n\r\n")
            if end < 0:
                return data
            self._buffer += start[: end + 4]
            self._go_on()
            data = data[end + 4 :]
        if self._phase is ResponseParser._sized_body and not self._buffer and not self.complete:
            part = bytes(data[: self._remaining])
            self._add(part)
            if not self._remaining:
                self._finish()
            data = data[len(part) :]
        return data

    def end_of_stream(self) -> FetchError:
        """The fault that the end of the connection means before the response is complete."""
        if not self.started:
            return FetchError(FailureKind.REFUSED, UNANSWERED)
        return FetchError(FailureKind.TRUNCATED, CUT_SHORT)

    def _head(self) -> bool:
        buffer = self._buffer
        if buffer[:5] != b"HTTP/"[: len(buffer)]:
            raise FetchError(FailureKind.PROTOCOL, NOT_HTTP)
        end = buffer.find(b"\r\n\r\n", 0, MAX_HEAD_BYTES)
        if end < 0:
            if len(buffer) >= MAX_HEAD_BYTES:
                raise FetchError(FailureKind.TOO_LARGE, f"headers of more than {MAX_HEAD_BYTES} bytes")
            if b"\n\n" in buffer:
                raise NeedsFullClient
            return False
        version = self._read_head(bytes(buffer[:end]))
        del buffer[: end + 4]
        self._choose_body(version)
        return not self.complete

    def _read_head(self, head: bytes) -> bytes:
        lines = head.split(b"\r\n")
        status_line = _STATUS_LINE.match(lines[0])
        if status_line is None:
            raise FetchError(FailureKind.PROTOCOL, "the status line is malformed")
        self._status = int(status_line[2])
        for line in lines[1:]:
            name, value = _header(line) if len(line) <= _USUAL_LINE_BYTES else _header.__wrapped__(line)
            if not name:
                raise NeedsFullClient  # folded or odd header lines
            known = self._headers.get(name)
            if name == "content-length" and known is not None and known != value:
                raise FetchError(FailureKind.PROTOCOL, "two lengths for one body")
            self._headers[name] = value if known is None or known == value else f"{known}, {value}"
        return status_line[1]

    def _choose_body(self, version: bytes) -> None:
        headers = self._headers
        if (
            version != b"1.1"
            or self._status < 200
            or headers.get("content-encoding", "identity") != "identity"
        ):
            raise NeedsFullClient
        tokens = {token.strip().lower() for token in headers.get("connection", "").split(",")}
        self.reusable = not tokens & {"close", "upgrade"}
        transfer, length = headers.get("transfer-encoding"), headers.get("content-length")
        if self._status in _BODILESS:
            self._finish()
        elif transfer is not None:
            if transfer.lower() != "chunked" or length is not None:
                raise NeedsFullClient
            self._phase = ResponseParser._chunk_line
        elif length is None:
            raise NeedsFullClient  # the body ends with the connection
        else:
            if not _LENGTH.fullmatch(length):
                raise FetchError(FailureKind.PROTOCOL, "the length of the body is no number")
            self._remaining = int(length)
            self._bound(self._remaining)
            self._phase = ResponseParser._sized_body

    def _bound(self, size: int) -> None:
        if size > self._max_body_bytes:
            raise body_too_large(self._max_body_bytes)

    def _take(self) -> bool:
        """Move what has arrived of the present piece to the body; True when the piece is complete."""
        part = bytes(self._buffer[: self._remaining])
        self._add(part)
        del self._buffer[: len(part)]
        return self._remaining == 0

    def _add(self, part: bytes) -> None:
        if part:
            self._parts.append(part)
            self._remaining -= len(part)
            self._received += len(part)

    def _sized_body(self) -> bool:
        if self._take():
            self._finish()
        return False

    def _line(self) -> bytes | None:
        end = self._buffer.find(b"\r\n", 0, _MAX_LINE_BYTES)
        if end < 0:
            if len(self._buffer) >= _MAX_LINE_BYTES:
                raise FetchError(FailureKind.PROTOCOL, "a chunk of the body is malformed")
            return None
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 2]
        return line

    def _chunk_line(self) -> bool:
        line = self._line()
        if line is None:
            return False
        size = _CHUNK_SIZE.match(line)
        if size is None:
            raise FetchError(FailureKind.PROTOCOL, "a chunk of the body is malformed")
        self._remaining = int(size[1], 16)
        self._bound(self._received + self._remaining)
        self._phase = ResponseParser._chunk if self._remaining else ResponseParser._trailer
        return True

    def _chunk(self) -> bool:
        if not self._take():
            return False
        self._phase = ResponseParser._chunk_end
        return True

    def _chunk_end(self) -> bool:
        if len(self._buffer) < 2:
            return False
        if self._buffer[:2] != b"\r\n":
            raise FetchError(FailureKind.PROTOCOL, "a chunk of the body is malformed")
        del self._buffer[:2]
        self._phase = ResponseParser._chunk_line
        return True

    def _trailer(self) -> bool:
        line = self._line()
        if line is None:
            return False
        if not line:
            self._finish()
        return not self.complete

    def _finish(self) -> None:
        self.response = RawResponse(self._status, self._headers, b"".join(self._parts))
        self.complete = True


_Phase = Callable[[ResponseParser], bool]
