"""A server over TLS that says why it refuses a client, as those in C and Go do; asyncio's hangs up."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

FILES = Path(__file__).with_name("tls")
CA = str(FILES / "ca.crt")

_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s"


def pem(name: str) -> str:
    """The path of a certificate with its key, by the name that the folder's README gives it."""
    return str(FILES / f"{name}.pem")


@contextmanager
def tls_server(
    certificate: str,
    body: bytes,
    *,
    clients_of: str | None = None,
    newest: ssl.TLSVersion = ssl.TLSVersion.MAXIMUM_SUPPORTED,
) -> Iterator[int]:
    """A server on a free port of loopback that answers every request with `body`; its port.

    `clients_of`: the file of the CA that has to have signed what a client shows.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem(certificate))
    context.maximum_version = newest
    if clients_of is not None:
        context.load_verify_locations(clients_of)
        context.verify_mode = ssl.CERT_REQUIRED
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_accept, args=(listener, context, body))
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def _accept(listener: socket.socket, context: ssl.SSLContext, body: bytes) -> None:
    while True:
        try:
            plain, _ = listener.accept()
        except OSError:
            return
        with suppress(OSError), plain:
            plain.settimeout(10)
            _answer(plain, context, body)


def _answer(plain: socket.socket, context: ssl.SSLContext, body: bytes) -> None:
    with plain.dup() as behind:
        try:
            with context.wrap_socket(plain, server_side=True) as client:
                asked = b""
                while b"\r\n\r\n" not in asked and (part := client.recv(65_536)):
                    asked += part
                client.sendall(_ANSWER % (len(body), body))
                client.unwrap()
        except ssl.SSLError:
            behind.shutdown(socket.SHUT_WR)
            while behind.recv(65_536):
                pass  # a close with something unread would overtake the reason
