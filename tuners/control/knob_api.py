"""The client of an engine's knob API: requests in, replies as data out."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable
from urllib.parse import quote

from enginetop.fleet.admin_surface import AdminFacts
from enginetop.fleet.foreign_json import decoded, error_words, whole
from enginetop.fleet.frozen import frozen
from enginetop.fleet.knobs import (
    BY_HAND,
    KNOBS_PATH,
    KnobAnswer,
    KnobRow,
    KnobSheet,
    KnobSheetError,
    KnobTransport,
    parse_row,
    parse_sheet,
)


class ReplyKind(StrEnum):
    """What a reply means for the one who asked."""

    OK = "ok"
    CONFLICT = "conflict"  # 409: the value is at another version
    OUT_OF_BOUNDS = "out_of_bounds"  # 422
    TOO_SOON = "too_soon"  # 429: again later
    NOT_ALL_RANKS = "not_all_ranks"  # 503: not every rank could apply, so none has
    UNAUTHORIZED = "unauthorized"  # 401, 403
    MISSING = "missing"  # 404, 405, 501: no knob API here
    UNREACHABLE = "unreachable"  # no answer: whether it was done is not known
    BAD = "bad"  # an answer that cannot be understood


_MEANINGS: Mapping[int, ReplyKind] = {
    401: ReplyKind.UNAUTHORIZED,
    403: ReplyKind.UNAUTHORIZED,
    404: ReplyKind.MISSING,
    405: ReplyKind.MISSING,
    409: ReplyKind.CONFLICT,
    422: ReplyKind.OUT_OF_BOUNDS,
    429: ReplyKind.TOO_SOON,
    501: ReplyKind.MISSING,
    503: ReplyKind.NOT_ALL_RANKS,
}

REFUSALS: frozenset[ReplyKind] = frozenset(
    {ReplyKind.CONFLICT, ReplyKind.OUT_OF_BOUNDS, ReplyKind.UNAUTHORIZED, ReplyKind.MISSING}
)
"""Replies to a write that say for certain that nothing was changed, and that asking again will not help."""


@frozen(eq=False)
class KnobReply:
    """A reply. `sheet` answers a read, `row` a write or a conflict (with the row as it stands), if given.

    `applied` of `total` ranks or processes confirmed a write; None: the engine does not say. `admin` is what
    can be told of who else may change the engine; None: nobody looked. `problems` and `notes` are what a path
    found out about the change that is planned, before it begins.
    """

    kind: ReplyKind
    detail: str = ""
    sheet: KnobSheet | None = None
    row: KnobRow | None = None
    applied: int | None = None
    total: int | None = None
    admin: AdminFacts | None = None
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class KnobClient(Protocol):
    """The knobs of one engine."""

    def read(self) -> KnobReply:
        """All knobs as they stand."""

    def examine(self) -> KnobReply:
        """All knobs as they stand, and who else may change the engine."""

    def write(
        self,
        knob: str,
        value: int,
        *,
        if_version: int | None,
        ttl_seconds: float | None,
        change: str,
        reason: str,
    ) -> KnobReply:
        """Set one knob, if it is still at `if_version`; it goes back by itself after `ttl_seconds`."""

    def reset(self, knob: str) -> KnobReply:
        """Set one knob back to its start value."""


class PassingClient:
    """A `KnobClient` that passes everything on to another one; who derives from it changes what differs."""

    def __init__(self, client: KnobClient) -> None:
        self.passes_to = client

    def read(self) -> KnobReply:
        """See `KnobClient`."""
        return self.passes_to.read()

    def examine(self) -> KnobReply:
        """See `KnobClient`."""
        return self.passes_to.examine()

    def write(
        self,
        knob: str,
        value: int,
        *,
        if_version: int | None,
        ttl_seconds: float | None,
        change: str,
        reason: str,
    ) -> KnobReply:
        """See `KnobClient`."""
        return self.passes_to.write(
            knob, value, if_version=if_version, ttl_seconds=ttl_seconds, change=change, reason=reason
        )

    def reset(self, knob: str) -> KnobReply:
        """See `KnobClient`."""
        return self.passes_to.reset(knob)


@runtime_checkable
class SeveralPaths(Protocol):
    """A `KnobClient` of a target whose knobs have more than one path."""

    def by(self, via: str) -> KnobClient:
        """The knobs by this path alone."""


def by_path(client: KnobClient, via: str) -> KnobClient:
    """The knobs of a client by the path `via`."""
    return client.by(via) if isinstance(client, SeveralPaths) else client


class HttpKnobClient:
    """A `KnobClient` that speaks the contract over a transport.

    `others` tells, by the engine's kind as the sheet names it, who else may change it; None: nobody asks.
    `commands` False: no command that a person should run is taken from it; it is somebody else's server.
    """

    def __init__(
        self,
        transport: KnobTransport,
        others: Callable[[str], AdminFacts] | None = None,
        *,
        commands: bool = True,
    ) -> None:
        self._transport = transport
        self._others = others
        self._commands = commands

    def read(self) -> KnobReply:
        """See `KnobClient`."""
        document, failure = _understood(self._transport.request("GET", KNOBS_PATH))
        if failure is not None:
            return failure
        try:
            sheet = parse_sheet(document)
        except KnobSheetError as error:
            return KnobReply(ReplyKind.BAD, str(error))
        if not self._commands:
            rows = (replace(row, note=row.note.replace(BY_HAND, ": ")) for row in sheet.knobs)
            sheet = replace(sheet, knobs=tuple(rows))
        return KnobReply(ReplyKind.OK, sheet=sheet)

    def examine(self) -> KnobReply:
        """See `KnobClient`."""
        reply = self.read()
        if reply.sheet is None or self._others is None:
            return reply
        return replace(reply, admin=self._others(reply.sheet.engine))

    def write(
        self,
        knob: str,
        value: int,
        *,
        if_version: int | None,
        ttl_seconds: float | None,
        change: str,
        reason: str,
    ) -> KnobReply:
        """See `KnobClient`."""
        body: dict[str, Any] = {
            "knob": knob,
            "value": value,
            "ttl_seconds": ttl_seconds,
            "change": change,
            "reason": reason,
        }
        if if_version is not None:
            body["if_version"] = if_version
        return _row_reply(self._transport.request("PATCH", KNOBS_PATH, json.dumps(body).encode()))

    def reset(self, knob: str) -> KnobReply:
        """See `KnobClient`."""
        return _row_reply(self._transport.request("DELETE", f"{KNOBS_PATH}/{quote(knob, safe='')}"))


def _row_reply(answer: KnobAnswer) -> KnobReply:
    document, failure = _understood(answer)
    if failure is not None:
        return failure
    try:
        row = parse_row(document)
    except KnobSheetError as error:
        return KnobReply(ReplyKind.BAD, str(error))
    return KnobReply(
        ReplyKind.OK, row=row, applied=whole(document.get("applied")), total=whole(document.get("total"))
    )


def _understood(answer: KnobAnswer) -> tuple[Any, KnobReply | None]:
    """The document of a 200, or what the answer means instead."""
    if answer.status is None:
        return None, KnobReply(ReplyKind.UNREACHABLE, answer.detail or "no answer")
    document = decoded(answer.body)
    if answer.status == 200:
        if document is None:
            return None, KnobReply(ReplyKind.BAD, "an answer that is not JSON")
        return document, None
    kind = _MEANINGS.get(answer.status, ReplyKind.BAD)
    words = error_words(document)
    return None, KnobReply(kind, f"HTTP {answer.status}: {words}" if words else f"HTTP {answer.status}")
