"""Requests to an engine's own API, and what the answers are worth: a 200 is not success."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from enginetop.fleet.foreign_json import decoded, error_words, field_at
from enginetop.fleet.knobs import KnobTransport
from tuners.control.knob_api import ReplyKind

OPENAPI = "/openapi.json"
"""Where a FastAPI server lists its routes."""

STATUSES: Mapping[ReplyKind, int] = MappingProxyType(
    {
        ReplyKind.UNAUTHORIZED: 401,
        ReplyKind.OUT_OF_BOUNDS: 422,
        ReplyKind.MISSING: 501,
        ReplyKind.NOT_ALL_RANKS: 503,
        ReplyKind.BAD: 502,
        ReplyKind.UNREACHABLE: 504,
    }
)
"""How a failure is told to whoever asks a knob API (contract, section 6)."""

_REFUSED_WORDS = frozenset({"error", "failed", "failure"})


class StockError(Exception):
    """An engine did not do what it was asked; the text is one line, `kind` what that means."""

    def __init__(self, text: str, kind: ReplyKind = ReplyKind.BAD) -> None:
        super().__init__(text)
        self.kind = kind

    @property
    def status(self) -> int:
        """The HTTP status of a knob API that means the same."""
        return STATUSES[self.kind]

    @property
    def answered(self) -> bool:
        """Whether the engine answered at all; without that it may have done, or still do, what was asked."""
        return self.kind is not ReplyKind.UNREACHABLE


def ask(transport: KnobTransport, method: str, path: str, body: object = None) -> Any:
    """One request; the document that the engine answers, None for an empty one.

    StockError when there is no answer, when the status or the body says no, or when the body is not JSON.
    """
    data = raw(transport, method, path, body)
    if not data.strip():
        return None
    where = shown(path)
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        raise StockError(f"{where} answered something that is not JSON") from None
    if refused(document):
        words = error_words(document)
        raise StockError(f"{where} answered 200, and {words or 'that it failed'}", ReplyKind.OUT_OF_BOUNDS)
    return document


def raw(transport: KnobTransport, method: str, path: str, body: object = None) -> bytes:
    """One request; the body of a 2xx as it came. StockError otherwise."""
    answer = transport.request(method, path, None if body is None else json.dumps(body).encode())
    where = shown(path)
    if answer.status is None:
        raise StockError(f"{where}: {answer.detail or 'no answer'}", ReplyKind.UNREACHABLE)
    if not 200 <= answer.status < 300:
        words = error_words(decoded(answer.body))
        said = f"HTTP {answer.status}" + (f" ({words})" if words else "")
        raise StockError(f"{where} answered {said}", _kind(answer.status))
    return answer.body


def refused(document: object) -> bool:
    """Whether a body says that nothing was done, whatever the status said."""
    if not isinstance(document, Mapping):
        return False
    status = document.get("status")
    return (
        bool(document.get("error"))
        or document.get("success") is False
        or (isinstance(status, str) and status.lower() in _REFUSED_WORDS)
    )


def answer_words(value: int | None) -> str:
    """What a write was answered, in words, with the value that the body tells."""
    return "200" if value is None else f"200 with {value}"


def version_at(transport: KnobTransport, path: str, *keys: str) -> str:
    """The version that the document at `path` tells under these keys; empty: it tells none."""
    try:
        found = field_at(ask(transport, "GET", path), *keys)
    except StockError:
        return ""
    return found if isinstance(found, str) else ""


def shown(path: str) -> str:
    """A path without its query."""
    return path.partition("?")[0]


def _kind(status: int) -> ReplyKind:
    if status in (401, 403):
        return ReplyKind.UNAUTHORIZED
    if status in (404, 405, 501):
        return ReplyKind.MISSING
    return ReplyKind.OUT_OF_BOUNDS if 400 <= status < 500 else ReplyKind.BAD
