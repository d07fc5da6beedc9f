"""A small HTTP/1.1 listener of its own: unix socket or TCP, one request a connection, everything bounded."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import json
import logging
import os
import socket
import stat
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from enginetop_companion.board import Answer
from enginetop_companion.door import Door, TokenError, read_token
from enginetop_companion.settings import TOKEN_FILE, Address, Settings

Respond = Callable[[str, str, bytes], Awaitable[Answer]]
"""Method, path and body of a request that was let in."""

LARGEST_HEAD = 8 * 1024
LARGEST_BODY = 16 * 1024
PATIENCE_SECONDS = 5.0
CONNECTIONS = 64
SLOW_ANSWER_SECONDS = 1.0
"""How long a wrong token waits for its answer once there were too many of them."""

_REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    409: "Conflict",
    413: "Content Too Large",
    422: "Unprocessable Content",
    429: "Too Many Requests",
    501: "Not Implemented",
    503: "Service Unavailable",
}


class AddressTakenError(OSError):
    """Somebody else has the address: another API server process of this engine, as a rule."""


class Listener:
    """Serves `respond` at an address to those whom the door lets in."""

    def __init__(self, door: Door, respond: Respond, log: logging.Logger) -> None:
        self._door = door
        self._log = log
        self._respond = respond
        self._open = 0
        self._server: asyncio.Server | None = None
        self._lock: int | None = None
        self._path: Path | None = None

    async def start(self, address: Address) -> None:
        """Bind and serve. Raises AddressTakenError when the address is in use, OSError otherwise."""
        if address.path is None:
            try:
                self._server = await asyncio.start_server(
                    self._serve, address.host, address.port, limit=LARGEST_HEAD
                )
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                raise AddressTakenError(error.errno, error.strerror) from None
            return
        self._lock = _own(address.path)
        self._path = address.path
        self._path.unlink(missing_ok=True)
        own = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        own.bind(str(address.path))
        address.path.chmod(0o600)  # before it listens, so that nobody else was ever let in
        self._server = await asyncio.start_unix_server(self._serve, sock=own, limit=LARGEST_HEAD)

    def stop(self) -> None:
        """Stop listening and give the address back."""
        if self._server is not None:
            self._server.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)
        if self._lock is not None:
            os.close(self._lock)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            if self._open > CONNECTIONS:
                answer = Answer(503, {"error": "too many connections"})
            else:
                answer = await self._one(reader)
            writer.write(_encode(answer))
            await asyncio.wait_for(writer.drain(), PATIENCE_SECONDS)
        except (OSError, TimeoutError):
            pass
        except Exception:  # noqa: BLE001 - logged whole; the listener lives on
            self._log.exception("enginetop companion: a request failed")
        finally:
            self._open -= 1
            writer.close()

    async def _one(self, reader: asyncio.StreamReader) -> Answer:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                method, path, headers = _read_head(head)
                verdict = self._door.check(headers.get("authorization"))
                if verdict != 200:
                    body = b""
                else:
                    length = _length(headers)
                    if length > LARGEST_BODY:
                        return Answer(413, {"error": f"more than {LARGEST_BODY} bytes"})
                    body = await reader.readexactly(length)
        except asyncio.LimitOverrunError:
            return Answer(413, {"error": f"headers of more than {LARGEST_HEAD} bytes"})
        except (asyncio.IncompleteReadError, TimeoutError, ValueError):
            return Answer(400, {"error": "not a complete HTTP/1.1 request with a content-length"})
        if verdict == 200:
            return await self._respond(method, path, body)
        if verdict == 429:
            await asyncio.sleep(SLOW_ANSWER_SECONDS)
            return Answer(429, {"error": "too many wrong tokens", "retry_after_seconds": 60})
        return Answer(401, {"error": "bearer token missing or wrong"})


async def listen(mine: Settings, respond: Respond, log: logging.Logger) -> Listener | None:
    """A listener at work, or None and one line in the log: no token, or another process has the address."""
    if mine.token_file is None:
        log.warning("enginetop companion: no knob API, %s is not set", TOKEN_FILE)
        return None
    listener = Listener(Door(mine.token_file, time.monotonic), respond, log)
    try:
        read_token(mine.token_file)
        await listener.start(mine.address)
    except TokenError as error:
        log.warning("enginetop companion: no knob API, %s", error)
        return None
    except AddressTakenError:
        log.info("enginetop companion: %s is served by another process", mine.address)
        return None
    except OSError as error:
        listener.stop()
        log.warning("enginetop companion: no knob API at %s, %s", mine.address, error.strerror)
        return None
    log.info("enginetop companion: knob API at %s", mine.address)
    if not mine.address.is_local:
        log.warning("enginetop companion: the knob API can be reached from other machines, without TLS")
    return listener


def _own(path: Path) -> int:
    """Hold the lock beside a socket, so that one process has it and a socket left behind can be replaced.

    OSError where others could put a socket of theirs in its place, and be sent the token.
    """
    for folder in (path.parent.parent, path.parent):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if ruled_by_others(folder.stat(), os.getuid()):
            raise PermissionError(errno.EPERM, f"other users can change {folder}")
    lock = os.open(path.with_name(path.name + ".lock"), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        raise AddressTakenError(error.errno, error.strerror) from None
    return lock


def ruled_by_others(folder: os.stat_result, user: int) -> bool:
    """Whether somebody else than `user` and root may replace what is in a folder.

    A group with the number of the folder's owner is his own, as most systems give each user one.
    """
    shared = stat.S_IWOTH if folder.st_gid == folder.st_uid else stat.S_IWOTH | stat.S_IWGRP
    open_to_others = folder.st_mode & shared and not folder.st_mode & stat.S_ISVTX
    return folder.st_uid not in (user, 0) or bool(open_to_others)


def _read_head(head: bytes) -> tuple[str, str, dict[str, str]]:
    """Method, path without query, headers in lower case. Raises ValueError."""
    first, *lines = head.decode("latin-1").split("\r\n")
    method, target, version = first.split(" ")
    if not version.startswith("HTTP/1."):
        raise ValueError("not HTTP/1")
    headers: dict[str, str] = {}
    for line in filter(None, lines):
        name, colon, value = line.partition(":")
        if not colon:
            raise ValueError("a header without a colon")
        headers[name.strip().lower()] = value.strip()
    return method, target.partition("?")[0], headers


def _length(headers: dict[str, str]) -> int:
    """The body's length. Raises ValueError: chunked bodies are not taken."""
    text = headers.get("content-length", "0")
    if "transfer-encoding" in headers or not (text.isascii() and text.isdigit()):
        raise ValueError("length unknown")
    return int(text)


def _encode(answer: Answer) -> bytes:
    body = json.dumps(answer.body).encode()
    lines = [
        f"HTTP/1.1 {answer.status} {_REASONS.get(answer.status, 'Unknown')}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Connection: close",
    ]
    if answer.status == 401:
        lines.append("WWW-Authenticate: Bearer")
    if "retry_after_seconds" in answer.body:
        lines.append(f"Retry-After: {max(1, round(answer.body['retry_after_seconds']))}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
