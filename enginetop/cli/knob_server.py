"""A knob API on a unix socket: for this user and root alone, whatever the folder lets in."""

from __future__ import annotations

import os
import socket
import socketserver
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from enginetop.simulator.http_messages import Reply, Request, error_reply
from enginetop.simulator.knob_api import MOST_BODY_BYTES

_IDLE_SECONDS = 10.0
_OWNERS_ONLY = 0o600

Handler = Callable[[Request], object]


@contextmanager
def serving(path: Path, handler: Handler) -> Iterator[None]:
    """Answer requests on the socket `path`, in threads, while the block runs.

    OSError when it cannot be made.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.unlink(missing_ok=True)
    before = os.umask(0o177)
    try:
        server = _Server(str(path), _Connection)
    finally:
        os.umask(before)
    path.chmod(_OWNERS_ONLY)
    server.answer = handler
    thread = threading.Thread(target=server.serve_forever, args=(0.1,), name="enginetop-knobs", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
        path.unlink(missing_ok=True)


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 64
    """A unix socket turns away whom it has no room for at once; a busy machine accepts late."""
    answer: Handler

    def verify_request(self, request: object, client_address: object) -> bool:  # noqa: ARG002
        """Whether the other side is this user or root, where the system tells."""
        option = getattr(socket, "SO_PEERCRED", None)
        if option is None or not isinstance(request, socket.socket):
            return True
        size = struct.calcsize("3i")
        _, user, _ = struct.unpack("3i", request.getsockopt(socket.SOL_SOCKET, option, size))
        return user in (os.getuid(), 0)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away is no fault of ours."""


class _Connection(BaseHTTPRequestHandler):
    """One request a connection, as in HTTP/1.0."""

    server: _Server
    timeout = _IDLE_SECONDS

    def _answer(self) -> None:
        length = self.headers.get("content-length") or "0"
        if not length.isdecimal() or int(length) > MOST_BODY_BYTES:
            self._send(error_reply(413, f"the body is larger than {MOST_BODY_BYTES} bytes"))
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        path = self.path.partition("?")[0]
        reply = self.server.answer(Request(self.command, path, headers, self.rfile.read(int(length))))
        self._send(reply if isinstance(reply, Reply) else error_reply(501, "not here"))

    do_GET = do_PATCH = do_DELETE = do_PUT = _answer  # noqa: N815 - names of the base class's protocol

    def _send(self, reply: Reply) -> None:
        self.send_response(reply.status)
        self.send_header("content-type", reply.content_type)
        self.send_header("content-length", str(len(reply.body)))
        for name, value in reply.headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(reply.body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Requests are the audit's matter."""

    def address_string(self) -> str:
        """Whoever it is has no address."""
        return "unix"
