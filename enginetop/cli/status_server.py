"""The pages of a running watch, over HTTP: `/metrics` for Prometheus, `/healthz` for probes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from enginetop.cli.listen import Listen
from enginetop.fleet.errors import ConfigError
from enginetop.fleet.frozen import frozen

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
TEXT_TYPE = "text/plain; charset=utf-8"

_PATIENCE_SECONDS = 5.0
"""A client that sends or takes nothing for so long is left."""
_MOST_CLIENTS = 16
_POLL_SECONDS = 0.1


@frozen
class Page:
    """An answer."""

    status: int
    text: str
    content_type: str = TEXT_TYPE


Pages = Mapping[str, Callable[[], Page]]
"""What is answered to a GET, by path; called from threads of the server."""


class StatusServer:
    """Serves `pages` from threads of its own, until `close`. ConfigError when it cannot listen there.

    Nothing is read but the request's head, and nothing is ever changed; at most 16 clients are served at
    once, others are cut off, so that no scraper can take the watch's memory.
    """

    def __init__(self, where: Listen, pages: Pages) -> None:
        try:
            self._server = _server_class(where)((where.host, where.port), _handler(pages))
        except OSError as error:
            reason = (error.strerror or "cannot be listened on").lower()
            raise ConfigError(f"{where}: {reason}; name another address with --listen") from None
        self.address = Listen(where.host, self._server.server_address[1])
        """Where it listens, with the port that was taken."""
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_POLL_SECONDS,), name="enginetop-status", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop listening; answers that are under way are not waited for."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _server_class(where: Listen) -> type[ThreadingHTTPServer]:
    class Server(ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in where.host else socket.AF_INET
        daemon_threads = True
        block_on_close = False

        def __init__(self, *given: object) -> None:
            self._free = threading.BoundedSemaphore(_MOST_CLIENTS)
            super().__init__(*given)  # type: ignore[arg-type]

        def server_bind(self) -> None:
            # the parent's looks the host's name up, which may take seconds
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.socket.bind(self.server_address)
            self.server_address = self.socket.getsockname()

        def process_request(self, request: object, client_address: object) -> None:
            if not self._free.acquire(blocking=False):
                self.shutdown_request(request)  # type: ignore[arg-type]
                return
            try:
                super().process_request(request, client_address)  # type: ignore[arg-type]
            except BaseException:
                self._free.release()  # no thread was to be had, which would have done it
                raise

        def process_request_thread(self, request: object, client_address: object) -> None:
            try:
                super().process_request_thread(request, client_address)  # type: ignore[arg-type]
            finally:
                self._free.release()

        def handle_error(self, request: object, client_address: object) -> None:
            """A client that went away is no news."""

    return Server


def _handler(pages: Pages) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = _PATIENCE_SECONDS

        def do_GET(self) -> None:
            make = pages.get(self.path.partition("?")[0])
            if make is None:
                page = Page(404, f"there are {' and '.join(pages)}\n")
            else:
                try:
                    page = make()
                except Exception as error:  # noqa: BLE001 - a page that fails must not end the server
                    page = Page(500, f"a fault of enginetop itself: {type(error).__name__}\n")
            body = page.text.encode("utf-8", "replace")
            self.send_response(page.status)
            self.send_header("Content-Type", page.content_type)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def do_HEAD(self) -> None:
            self.do_GET()

        def version_string(self) -> str:
            return "enginetop"

        def log_message(self, *_: object) -> None:
            """Requests are not our news."""

    return Handler
