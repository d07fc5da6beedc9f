"""The vocabulary of fetching: what a fetcher offers, how a target is reached, how a fault becomes data."""

from __future__ import annotations

import errno
import os
import re
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from collectors.answer import Answer
from collectors.sanitise import clean_text
from collectors.secrets import without_secrets
from enginetop.fleet.observation import FailureKind

MAX_BODY_BYTES = 16 * 1024 * 1024
"""No engine's page is near this; a larger one is a mistake or an attack."""

KEPT_HEADERS: frozenset[str] = frozenset({"content-type", "server", "process-start-time-unix", "retry-after"})
"""The headers of an answer that anybody reads, and the only ones that leave the fetcher or are recorded."""

MAX_DETAIL_CHARACTERS = 200

_SHORTEST_KEY = 8
_KEY_MARK = "[key]"

# Faults of this machine rather than of a target: they must not make a healthy replica look down.
_OWN_FAULTS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})
_ERRNO_IN_TEXT = re.compile(r"\[Errno (\d+)\]")


class Fetcher(Protocol):
    """GETs pages of any number of targets, over one kept connection each."""

    async def fetch(self, url: str, path: str, *, timeout_seconds: float) -> Answer:
        """One GET of `path` (with its query) below the base `url`.

        A fault of the network or of the target comes back as `Answer.error`; it is never raised.
        """

    async def forget(self, url: str) -> None:
        """Close the connection to a target that is asked no more."""

    async def aclose(self) -> None:
        """Close every connection."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """How one target is reached. Secrets are named here and read at use, so that they can be rotated."""

    api_key_env: str | None = None
    api_key_file: str | None = None
    ca_file: str | None = None
    insecure_skip_verify: bool = False

    def bearer(self) -> str | None:
        """The key to send, None when none is configured.

        Raises FetchError(UNAUTHORIZED) when one is configured and cannot be had: a request without it would
        only be refused, with a less helpful reason.
        """
        if self.api_key_env is not None:
            key, source = os.environ.get(self.api_key_env, ""), f"the variable {self.api_key_env}"
        elif self.api_key_file is not None:
            source = f"the file {self.api_key_file}"
            try:
                key = Path(self.api_key_file).read_text(encoding="ascii", errors="replace")
            except OSError as error:
                reason = error.strerror or "not readable"
                raise FetchError(FailureKind.UNAUTHORIZED, f"no API key: {source}: {reason}") from None
        else:
            return None
        key = key.strip()
        if not key:
            raise FetchError(FailureKind.UNAUTHORIZED, f"no API key: {source} is not set or empty")
        if not all("!" <= character <= "~" for character in key):
            raise FetchError(FailureKind.UNAUTHORIZED, f"no API key: {source} holds more than one plain word")
        return key


NO_CREDENTIALS = Credentials()


@dataclass(frozen=True, slots=True, eq=False)
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


def without_key(response: RawResponse, key: str) -> RawResponse:
    """The response without the key that was sent, should the server repeat it: it could end in a recording.

    Words shorter than a real key (`EMPTY` is common) stay: they are no secret, and may be part of a page.
    """
    if len(key) < _SHORTEST_KEY:
        return response
    headers = {name: text.replace(key, _KEY_MARK) for name, text in response.headers.items()}
    return RawResponse(response.status, headers, response.body.replace(key.encode(), _KEY_MARK.encode()))


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
            reason = cause.strerror if isinstance(cause, socket.gaierror) else "not a host name"
            return FetchError(FailureKind.DNS, f"name lookup failed: {reason}")
        if isinstance(cause, ssl.SSLError):
            reason = getattr(cause, "verify_message", "") or cause.reason or "handshake failed"
            return FetchError(FailureKind.TLS, f"TLS: {reason.replace('_', ' ').lower()}")
    network = [cause for cause in chain if isinstance(cause, OSError)]
    if not network:
        raise error
    return _os_fault(next((cause for cause in network if cause.errno is not None), network[0]))


def _os_fault(error: OSError) -> FetchError:
    number = error.errno
    if number is None and (found := _ERRNO_IN_TEXT.search(str(error))):
        number = int(found[1])  # asyncio folds the errors of several addresses into one text
    if number in _OWN_FAULTS:
        raise error
    if isinstance(error, TimeoutError) or number == errno.ETIMEDOUT:
        return FetchError(FailureKind.TIMEOUT, "the connection timed out")
    return FetchError(FailureKind.REFUSED, os.strerror(number).lower() if number else "no connection")


def _chain(error: BaseException) -> list[BaseException]:
    """The error, what it was raised from, and the members of groups among them."""
    found: list[BaseException] = []
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop(0)
        if one is None or one in found:
            continue
        found.append(one)
        waiting += one.exceptions if isinstance(one, BaseExceptionGroup) else ()
        waiting.append(one.__cause__ or one.__context__)
    return found


UNANSWERED = "connected, and closed without an answer"
"""The detail of a connection that was accepted and dropped. The word is `refused`: a proxy or a port forward
with nothing behind it behaves so, and such a target is down."""

CUT_SHORT = "the connection closed in the middle of the answer"
