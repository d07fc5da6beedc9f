"""TLS of one connection without I/O: what the wire brought in, what the wire gets out, all buffers shared.

A large fleet over https would otherwise hold buffers of a quarter of a megabyte for every connection.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

from collectors.fetch import Credentials, FetchError
from collectors.full_http import perhaps_unwanted, tls_context
from enginetop.fleet.observation import FailureKind

_PIECE_BYTES = 8 * 1024
"""The wire is handed to OpenSSL in pieces, since what it was handed at once it keeps room for."""


class TlsContexts:
    """The contexts of one fetcher: one for all targets that are reached alike, roots are read once."""

    def __init__(self) -> None:
        self._contexts: dict[tuple[object, ...], tuple[ssl.SSLContext, _Stamps]] = {}
        self._doubted: set[tuple[object, ...]] = set()

    def of(self, credentials: Credentials) -> ssl.SSLContext:
        """The context; FetchError(TLS) when a file of the credentials cannot be used."""
        key = _key(credentials)
        if key in self._doubted and self._contexts[key][1] != _stamps(credentials):
            self._doubted.remove(key)
            del self._contexts[key]
        if key not in self._contexts:
            stamps = _stamps(credentials)  # first: who is changed while it is read has changed since
            self._contexts[key] = tls_context(credentials), stamps
        return self._contexts[key][0]

    def doubt(self, credentials: Credentials) -> None:
        """A handshake failed: files are read again once they have changed.

        And only then: the system's roots take 25 ms, and a fleet of an unknown CA fails every handshake.
        """
        key = _key(credentials)
        if key in self._contexts:
            self._doubted.add(key)


_Stamps = list[tuple[int, int, int] | None]


def _stamps(credentials: Credentials) -> _Stamps:
    """What tells that a file is another one, of each that a context is made of; None: it cannot be read."""
    roots = ssl.get_default_verify_paths()
    trusted = [roots.cafile, roots.capath] if credentials.ca_file is None else [credentials.ca_file]
    shown = [credentials.client_cert_file, credentials.client_key_file]
    return [_stamp(file) for file in (*trusted, *shown) if file is not None]


def _stamp(file: str) -> tuple[int, int, int] | None:
    try:
        found = Path(file).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _key(credentials: Credentials) -> tuple[object, ...]:
    return (
        credentials.ca_file,
        credentials.insecure_skip_verify,
        credentials.client_cert_file,
        credentials.client_key_file,
    )


class Tls:
    """How one target is reached over TLS, and what its failures may mean."""

    def __init__(self, contexts: TlsContexts, credentials: Credentials, server_name: str) -> None:
        """`server_name`: the name that the certificate has to be for."""
        self._contexts = contexts
        self._credentials = credentials
        self._server_name = server_name
        self._answered = False

    def layer(self) -> TlsLayer:
        """The TLS of a new connection. FetchError(TLS): a file or the name cannot be used."""
        context = self._contexts.of(self._credentials)
        try:
            return TlsLayer(context, self._server_name)
        except ValueError:
            raise FetchError(FailureKind.TLS, "no certificate can be for a name like this") from None

    def note_answer(self) -> None:
        """A request was answered: who hangs up from now on means something else by it."""
        self._answered = True

    def told(self, fault: FetchError) -> FetchError:
        """A fault of a connection, with what may lie behind it."""
        if fault.kind is FailureKind.TLS:
            self._contexts.doubt(self._credentials)
        return fault if self._answered else perhaps_unwanted(fault, self._credentials)


class TlsLayer:
    """One connection's TLS. What it raises is ssl.SSLError: a certificate that does not fit, an alert."""

    __slots__ = ("_incoming", "_object", "_outgoing", "ended", "ready")

    def __init__(self, context: ssl.SSLContext, server_name: str) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_name)
        self.ready = False
        """The handshake is over."""
        self.ended = False
        """The other end has closed its side, in good order."""

    def begin(self) -> None:
        """Begin the handshake; `to_send` has its first words."""
        self._shake()

    def to_send(self) -> bytes:
        """What the wire gets now; it may be empty. To be asked after every call, also one that raised."""
        return self._outgoing.read()

    def write(self, data: bytes) -> None:
        """Say something, once `ready`."""
        self._object.write(data)

    def read(self, wire: memoryview, into: memoryview) -> Iterator[int]:
        """Take what the wire brought; each number is how many bytes of what was said stand in `into` now.

        What was said before an alert comes before its error.
        """
        count = 0
        try:
            for start in range(0, len(wire), _PIECE_BYTES):
                self._incoming.write(wire[start : start + _PIECE_BYTES])
                if not self.ready:
                    self._shake()
                while self.ready and (size := self._read(into[count:])):
                    count += size
                    if count == len(into):
                        yield count
                        count = 0
        except ssl.SSLError:
            if count:
                yield count
            raise
        if count:
            yield count

    def _shake(self) -> None:
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return
        self.ready = True

    def _read(self, into: memoryview) -> int:
        try:
            size = int(self._object.read(len(into), into))  # with a buffer: a size
        except ssl.SSLWantReadError:
            return 0
        self.ended = size == 0
        return size
