"""The vocabulary of fetching: what a fetcher offers, how a target is reached, how a fault becomes data."""

from __future__ import annotations

import errno
import os
import re
import socket
import ssl
from base64 import b64encode
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from collectors.answer import Answer
from collectors.sanitise import clean_text
from collectors.secrets import bytes_without_these, without_secrets, without_these
from collectors.tls_words import tls_words
from enginetop.fleet.frozen import frozen
from enginetop.fleet.observation import FailureKind
from enginetop.fleet.quickly_made import quickly_made

MAX_BODY_BYTES = 16 * 1024 * 1024
"""No engine's page is near this; a larger one is a mistake or an attack."""

KEPT_HEADERS: frozenset[str] = frozenset({"content-type", "server", "process-start-time-unix", "retry-after"})
"""The headers of an answer that anybody reads, and the only ones that leave the fetcher or are recorded."""

USER_AGENT = "enginetop"
MAX_DETAIL_CHARACTERS = 200

# Faults of this machine rather than of a target: they must not make a healthy replica look down.
_OWN_FAULTS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})
_ERRNO_IN_TEXT = re.compile(r"\[Errno (\d+)\]")


class Fetcher(Protocol):
    """GETs pages of any number of targets, over one kept connection each."""

    async def fetch(self, url: str, path: str, *, timeout_seconds: float) -> Answer:
        """One GET of `path` (with its query) below the base `url`.

        A fault of the network or of the target comes back as `Answer.error`; it is never raised.
        """

    def forget(self, url: str) -> Coroutine[Any, Any, None]:
        """Close the connection to a target that is asked no more.

        Who asks from the call on, before it was waited for, is another one at that address.
        """

    async def aclose(self) -> None:
        """Close every connection."""


class Asked(Protocol):
    """A GET on its way."""

    def call_off(self) -> None:
        """Drop the connection; nothing is told any more."""


@runtime_checkable
class PromptFetcher(Fetcher, Protocol):
    """A fetcher that needs no task where a connection stands: most of what a GET costs beside its page."""

    def ask(
        self, url: str, path: str, *, timeout_seconds: float, tell: Callable[[Answer | None], None]
    ) -> Asked | None:
        """As `fetch`; `tell` is called later, from the event loop. It must not raise.

        None, returned or told: there is no answer this way, it takes a `fetch`.
        """


@frozen
class Credentials:
    """How one target is reached. Secrets are named here and read at use, so that they can be rotated.

    Either a bearer key or a user with a password. `client_cert_file` is what we show of ourselves over TLS,
    its key in the same file or in `client_key_file`.
    """

    api_key_env: str | None = None
    api_key_file: str | None = None
    ca_file: str | None = None
    insecure_skip_verify: bool = False
    username: str | None = None
    password_env: str | None = None
    password_file: str | None = None
    client_cert_file: str | None = None
    client_key_file: str | None = None
    proxy_url: str | None = field(default=None, repr=False)
    """Instead of the environment's; None: that one. It may hold a password."""
    tls_server_name: str | None = None
    """The name that the server's certificate has to be for; None: the host's."""

    def bearer(self) -> str | None:
        """The key to send, None when none is configured.

        Raises FetchError(UNAUTHORIZED) when one is configured and cannot be had: a request without it would
        only be refused, with a less helpful reason.
        """
        named = _named_secret("API key", self.api_key_env, self.api_key_file)
        if named is None:
            return None
        key, source = named
        if not all("!" <= character <= "~" for character in key):
            raise FetchError(FailureKind.UNAUTHORIZED, f"no API key: {source} holds more than one plain word")
        return key

    def authorization(self) -> tuple[str, tuple[str, ...]] | None:
        """The Authorization header and the secrets in it, None when nothing is to be sent.

        Raises as `bearer`.
        """
        if self.username is None:
            key = self.bearer()
            return None if key is None else (f"Bearer {key}", (key,))
        password, _ = _named_secret("password", self.password_env, self.password_file) or ("", "")
        pair = b64encode(f"{self.username}:{password}".encode()).decode("ascii")
        return f"Basic {pair}", (pair, password)


def _named_secret(what: str, variable: str | None, file: str | None) -> tuple[str, str] | None:
    """A secret and where it was read, None when no place is named.

    FetchError(UNAUTHORIZED): it is not there.
    """
    if variable is not None:
        secret, source = os.environ.get(variable, ""), f"the variable {variable}"
    elif file is not None:
        source = f"the file {file}"
        try:
            secret = Path(file).read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            reason = error.strerror or "not readable"
            raise FetchError(FailureKind.UNAUTHORIZED, f"no {what}: {source}: {reason}") from None
    else:
        return None
    secret = secret.strip()
    if not secret:
        raise FetchError(FailureKind.UNAUTHORIZED, f"no {what}: {source} is not set or empty")
    return secret, source


NO_CREDENTIALS = Credentials()


@quickly_made(eq=False)
class RawResponse:
    """A complete response, redirects not followed. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class FetchError(Exception):
    """A request that brought no usable answer. Stays inside the fetchers, which turn it into an `Answer`."""

    def __init__(self, kind: FailureKind, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = one_line(detail)


def one_line(text: str) -> str:
    """`text` as one printable line of bounded length, without what looks like a key."""
    return " ".join(clean_text(without_secrets(text), MAX_DETAIL_CHARACTERS).split())


def client_words(error: Exception) -> str:
    """What an HTTP client says of an error, without the bytes of the server's that it quotes."""
    return one_line(str(error).partition(": bytearray")[0])


def without_keys(response: RawResponse, keys: Sequence[str]) -> RawResponse:
    """The response without the keys that were sent: what a server repeats could end in a recording."""
    headers = response.headers
    together = "\n".join(headers.values())
    if without_these(together, keys) != together:
        headers = {name: without_these(text, keys) for name, text in headers.items()}
    return RawResponse(response.status, headers, bytes_without_these(response.body, keys))


def body_too_large(limit_bytes: int) -> FetchError:
    """The fault of a body beyond the limit."""
    return FetchError(FailureKind.TOO_LARGE, f"a body of more than {limit_bytes / 2**20:g} MiB")


def accept_for(path: str) -> str:
    """The Accept header for a path: the text format for metrics pages, JSON for the others."""
    if path.partition("?")[0].rstrip("/").endswith("metrics"):
        return "text/plain;version=0.0.4"
    return "application/json"


def connection_fault(error: BaseException) -> FetchError:
    """The fault that an exception met while connecting means, its causes included.

    Raises the error itself when it is a fault of this machine (no file descriptors left) or none of the
    network at all.
    """
    chain = list(_chain(error))
    for cause in chain:
        if isinstance(cause, socket.gaierror | UnicodeError):
            return FetchError(FailureKind.DNS, f"name lookup failed: {lookup_words(cause)}")
        if isinstance(cause, ssl.SSLError):
            return FetchError(FailureKind.TLS, tls_words(cause))
    network = [cause for cause in chain if isinstance(cause, OSError)]
    if not network:
        raise error
    return _os_fault(next((cause for cause in network if cause.errno is not None), network[0]))


def lookup_words(error: socket.gaierror | UnicodeError) -> str:
    """Why a name has no address, and after a semicolon what helps."""
    if isinstance(error, UnicodeError):
        return "not a host name; correct it"
    if error.errno == socket.EAI_AGAIN:
        return f"{error.strerror}; the resolver of this machine does not answer"
    return f"{error.strerror}; correct the name, or see why this machine's resolver does not know it"


def _os_fault(error: OSError) -> FetchError:
    from http.client import RemoteDisconnected  # with half of `email`, which nothing else here needs

    number = error.errno
    if number is None and (found := _ERRNO_IN_TEXT.search(str(error))):
        number = int(found[1])  # asyncio folds the errors of several addresses into one text
    if number in _OWN_FAULTS:
        raise error
    if isinstance(error, TimeoutError) or number == errno.ETIMEDOUT:
        return FetchError(FailureKind.TIMEOUT, "the connection timed out")
    if isinstance(error, RemoteDisconnected):
        return FetchError(FailureKind.REFUSED, UNANSWERED)
    return FetchError(FailureKind.REFUSED, os.strerror(number).lower() if number else "no connection")


def _chain(error: BaseException) -> list[BaseException]:
    """The error, what it was raised from or holds (as urllib3's do), and the members of groups among them."""
    found: list[BaseException] = []
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop(0)
        if one is None or one in found:
            continue
        found.append(one)
        waiting += one.exceptions if isinstance(one, BaseExceptionGroup) else ()
        waiting += (held for held in one.args if isinstance(held, BaseException))
        waiting.append(one.__cause__ or one.__context__)
    return found


UNANSWERED = "connected, and closed without an answer"
"""The detail of a connection that was accepted and dropped. The word is `refused`: a proxy or a port forward
with nothing behind it behaves so, and such a target is down."""

CUT_SHORT = "the connection closed in the middle of the answer"
