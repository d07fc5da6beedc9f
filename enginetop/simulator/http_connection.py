"""One HTTP/1.1 connection: requests with a bounded body in, answers at once, later or in parts out."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping

from enginetop.fleet.frozen import frozen
from enginetop.simulator.http_messages import Deferred, Handler, Reply, Request, Streamed, error_reply

_MOST_HEADER_BYTES = 16 * 1024
MOST_BODY_BYTES = 1024 * 1024
_MOST_LENGTH_DIGITS = 12
_PHRASES = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    409: "Conflict",
    411: "Length Required",
    413: "Content Too Large",
    422: "Unprocessable Content",
    429: "Too Many Requests",
    503: "Service Unavailable",
}
_LINE_END = "\r\n"


@frozen
class _Head:
    """The head of a request. `chunks`: the client understands an answer in chunks."""

    method: str
    path: str
    headers: Mapping[str, str]
    body_bytes: int
    keep: bool
    chunks: bool


class HttpConnection(asyncio.Protocol):
    """A connection, kept alive until the client closes it or sends what cannot be understood.

    `greet` and `part` are told when the transport is there and when it is gone.
    """

    def __init__(
        self,
        handler: Handler,
        greet: Callable[[asyncio.Transport], None],
        part: Callable[[asyncio.Transport], None],
    ) -> None:
        self._handler = handler
        self._greet = greet
        self._part = part
        self._transport: asyncio.Transport | None = None
        self._received = b""
        self._head: _Head | None = None
        self._answering: asyncio.Task[None] | None = None
        self._refused = False
        self._writable = asyncio.Event()
        self._writable.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, asyncio.Transport):
            self._transport = transport
            self._greet(transport)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        if self._answering is not None:
            self._answering.cancel()
        if self._transport is not None:
            self._part(self._transport)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        self._received += data
        if len(self._received) > _MOST_HEADER_BYTES + MOST_BODY_BYTES:
            # More is sent ahead than any request that could be waited for.
            self._abort()
            return
        self._read()

    def _read(self) -> None:
        """Answer every request that is complete, one after the other."""
        while self._answering is None and not self._refused and not self._is_closing():
            if self._head is None:
                self._head = self._take_head()
            head = self._head
            if head is None or len(self._received) < head.body_bytes:
                return
            body, self._received = self._received[: head.body_bytes], self._received[head.body_bytes :]
            self._head = None
            self._answer(Request(head.method, head.path, head.headers, body), head)

    def _take_head(self) -> _Head | None:
        """Take the head of the next request; None: it is not there yet, or it was refused."""
        text, end, rest = self._received.partition(b"\r\n\r\n")
        if not end:
            if len(text) > _MOST_HEADER_BYTES:
                self._refuse(400, "the head of the request is too long")
            return None
        self._received = rest
        request_line, *header_lines = text.decode("latin-1").split("\r\n")
        words = request_line.split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            self._refuse(400, "not an HTTP/1 request")
            return None
        headers = {}
        for line in header_lines:
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        length = headers.get("content-length", "0")
        if "transfer-encoding" in headers:
            self._refuse(411, "send the body with its content-length")
        elif not (length.isascii() and length.isdigit()):
            self._refuse(400, "content-length is not a number")
        elif len(length) > _MOST_LENGTH_DIGITS or int(length) > MOST_BODY_BYTES:
            self._refuse(413, f"the body is larger than {MOST_BODY_BYTES} bytes")
        else:
            method, target, version = words
            keep = headers.get("connection", "keep-alive" if version == "HTTP/1.1" else "close")
            return _Head(
                method,
                target.partition("?")[0],
                headers,
                int(length),
                keep=keep.lower() != "close",
                chunks=version == "HTTP/1.1",
            )
        return None

    def _answer(self, request: Request, head: _Head) -> None:
        answer = self._handler(request)
        if answer is None:
            self._abort()
        elif isinstance(answer, Reply):
            self._send(answer, with_body=request.method != "HEAD", keep=head.keep)
        else:
            self._answering = asyncio.get_running_loop().create_task(self._work_on(answer, head))

    async def _work_on(self, answer: Deferred | Streamed, head: _Head) -> None:
        try:
            if isinstance(answer, Deferred):
                await self._send_later(answer, head)
            else:
                await self._stream(answer, head)
        except ConnectionAbortedError:
            self._abort()

    async def _send_later(self, answer: Deferred, head: _Head) -> None:
        reply = await answer.reply()
        self._answering = None
        self._send(reply, with_body=True, keep=head.keep)
        self._read()

    async def _stream(self, answer: Streamed, head: _Head) -> None:
        keep = head.keep and head.chunks
        self._write(
            "HTTP/1.1 200 OK\r\n"
            f"content-type: {answer.content_type}\r\n"
            f"{'transfer-encoding: chunked' + _LINE_END if head.chunks else ''}"
            f"connection: {'keep-alive' if keep else 'close'}\r\n\r\n".encode("latin-1")
        )
        async with contextlib.aclosing(answer.parts()) as parts:
            async for part in parts:
                self._write(b"%x\r\n%b\r\n" % (len(part), part) if head.chunks else part)
                await self._writable.wait()
        if head.chunks:
            self._write(b"0\r\n\r\n")
        self._answering = None
        if keep:
            self._read()
        elif self._transport is not None:
            self._transport.close()

    def _refuse(self, status: int, detail: str) -> None:
        """Answer what cannot be understood. What still comes is thrown away until the client closes: to close
        first would cut off the answer.
        """
        self._refused = True
        self._received = b""
        error = error_reply(status, detail)
        self._write(_head_of(error, keep=False) + error.body)
        if self._transport is not None:
            self._transport.write_eof()

    def _send(self, reply: Reply, *, with_body: bool, keep: bool) -> None:
        head = _head_of(reply, keep)
        self._write(head + reply.body if with_body else head)
        if not keep and self._transport is not None:
            self._transport.close()

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def _is_closing(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def _abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


def _head_of(reply: Reply, keep: bool) -> bytes:
    return (
        f"HTTP/1.1 {reply.status} {_PHRASES[reply.status]}\r\n"
        f"content-type: {reply.content_type}\r\n"
        f"content-length: {len(reply.body)}\r\n"
        f"{''.join(f'{name}: {value}{_LINE_END}' for name, value in reply.headers)}"
        f"connection: {'keep-alive' if keep else 'close'}\r\n\r\n"
    ).encode("latin-1")
