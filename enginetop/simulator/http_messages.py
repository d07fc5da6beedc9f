"""What a request and its answer are, and which handler a path belongs to."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any

from enginetop.fleet.frozen import frozen

JSON = "application/json"
EVENT_STREAM = "text/event-stream; charset=utf-8"


@frozen
class Request:
    """One request. `path` comes without the query; header names are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes = b""


@frozen
class Reply:
    """An answer that is there at once."""

    body: bytes
    content_type: str = JSON
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()


@frozen
class Deferred:
    """An answer that comes later. Called once; cancelled when the client goes.

    ConnectionAbortedError in place of an answer cuts the connection.
    """

    reply: Callable[[], Awaitable[Reply]]


@frozen
class Streamed:
    """An answer in parts, none of them empty, sent as they come. Called once; closed when the client goes.

    ConnectionAbortedError among the parts cuts the connection.
    """

    parts: Callable[[], AsyncGenerator[bytes, None]]
    content_type: str = EVENT_STREAM


Answer = Reply | Deferred | Streamed
Handler = Callable[[Request], Answer | None]
"""Answers a request; None means that the process is gone: the connection is cut."""


def json_reply(document: Any, status: int = 200, headers: tuple[tuple[str, str], ...] = ()) -> Reply:
    """`document` as JSON, in one line."""
    return Reply(json.dumps(document, separators=(",", ":")).encode(), JSON, status, headers)


def error_reply(status: int, detail: str, headers: tuple[tuple[str, str], ...] = ()) -> Reply:
    """An error in one line of JSON."""
    return json_reply({"detail": detail}, status, headers)


RouteTable = Mapping[str, Mapping[str, Handler]]
"""Handlers by path and method. A path that ends in a slash stands for everything in that folder."""


class Routes:
    """A `Handler` that passes requests on by path and method. HEAD is a GET whose body is not sent."""

    def __init__(self, table: RouteTable) -> None:
        self._table = dict(table)

    def __call__(self, request: Request) -> Answer | None:
        """The answer of the handler in charge, else 404 or 405."""
        path = request.path
        methods = self._table.get(path) or self._table.get(path[: path.rfind("/") + 1])
        if methods is None:
            return error_reply(404, "Not Found")
        handler = methods.get("GET" if request.method == "HEAD" else request.method)
        if handler is None:
            allowed = ", ".join(["HEAD", *methods] if "GET" in methods else methods)
            return error_reply(405, "Method Not Allowed", (("allow", allowed),))
        return handler(request)
