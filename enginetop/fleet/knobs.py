"""The knob API's vocabulary (schema `enginetop.knobs/1`): what an engine's companion says of its knobs.

Spoken by the companions and by the simulator, read by the control room. Times are seconds, versions count the
changes of one knob since the engine started.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from enginetop.fleet.frozen import frozen

KNOBS_PATH = "/enginetop/v1/knobs"
SLO_PATH = "/enginetop/v1/slo"
KNOBS_SCHEMA = "enginetop.knobs/1"
KNOB_API = "knob_api"
"""The path of a companion inside of the engine: knobs change while it runs."""
_LONGEST_TEXT = 4096
_LARGEST = 1 << 53
"""Floats hold whole numbers exactly up to this; JSON itself has no end."""
FAILED, STUCK = "failed", "stuck"
BY_HAND = "; by hand: "
"""What stands between the reason of a failure and the exact command for a person, which ends the text."""
VALUE = "{value}"
"""What stands for the value in the command of `KnobRow.by_hand`."""


def split_command(text: str) -> tuple[str, str]:
    """The reason of a failure and the command for a person, which ends the text; empty: it has none."""
    why, found, command = text.rpartition(BY_HAND)
    return (why, command) if found else (text, "")


class KnobSheetError(ValueError):
    """A document is no knob sheet; the text says which key is wrong."""


@frozen
class KnobRow:
    """One knob. `start` is the value that the engine was started with, `min` and `max` what is accepted live.

    `expires_in_seconds` counts down to the moment when the engine goes back to the former value by itself;
    None: the value stays. `value` None: the engine sets no value (no default thinking budget, say).

    A knob that needs a restart says so: `apply` is then `restart`, `takes_seconds` the longest time until a
    new value is in force (draining, restart and a failed start's way back included), and while that goes on
    `value` is the one that comes and `phase` names what is under way: `draining`, `restarting` or
    `going_back`. `failed`: the engine could not be brought back; `note` then holds what a person has to do.
    `stuck`: it does not come up with the new value, as `note` tells, and waits for the former one.
    """

    name: str
    value: int | None
    start: int | None
    min: int
    max: int
    unit: str
    version: int
    expires_in_seconds: float | None = None
    note: str = ""
    apply: str = "live"
    phase: str = ""
    takes_seconds: float = 0.0
    by_hand: str = ""
    """The command with which a person sets it, where its path has one; `VALUE` stands for the value. Of this
    machine's configuration: no document brings it.
    """
    via: str = ""
    """The path that it is changed by, whose are `instance` and `reaches`; empty: that of its sheet."""
    instance: str = ""
    reaches: tuple[str, ...] = ()
    """The targets that one change of it reaches at once; empty: its own."""

    @property
    def moves(self) -> bool:
        """Whether a restart is under way."""
        return self.phase not in ("", FAILED, STUCK)

    def command(self, value: int) -> str:
        """The command with which a person sets it to `value`; empty: its path has none."""
        return self.by_hand.replace(VALUE, str(value), 1)


@frozen
class KnobSheet:
    """All knobs of one engine instance. `instance` changes at every restart of the engine.

    `applied` of `total` ranks or server processes confirm the values. `writer` names the path that the knobs
    are changed by, as a plan does. `canary`: a value is tried on an engine that is made for it beside this
    one, and this is its target; empty: on this one.
    """

    engine: str
    engine_version: str
    instance: str
    applied: int
    total: int
    knobs: tuple[KnobRow, ...]
    writer: str = KNOB_API
    canary: str = ""

    def knob(self, name: str) -> KnobRow | None:
        """The row of the knob `name`; None when the engine has none of that name."""
        return next((row for row in self.knobs if row.name == name), None)

    def writer_of(self, name: str) -> str:
        """The path that the knob `name` is changed by."""
        row = self.knob(name)
        return row.via if row is not None and row.via else self.writer

    def instance_of(self, name: str) -> str:
        """Whose knob `name` is: the engine's instance, or what its own path names."""
        row = self.knob(name)
        return row.instance if row is not None and row.via else self.instance


@frozen
class Outcome:
    """What became of a request, as an HTTP status: 200 done (or nothing to do), 404 no such knob, 409 another
    version, 422 out of bounds, 429 too soon, 503 not every rank could apply, so none has.

    `row` is the knob as it stands afterwards (None: no such knob), `applied` how many ranks took the value.
    """

    status: int
    row: KnobRow | None
    applied: int
    detail: str = ""
    retry_after_seconds: float | None = None


def unknown_knob(name: str, known: Iterable[str]) -> Outcome:
    """The outcome of a request for a knob that is not there; it names those that are."""
    return Outcome(404, None, 0, f"no knob {name[:64]!r} here; there are: {', '.join(known)}")


class KnobBoard(Protocol):
    """The knobs of one engine behind a knob API. `now` is the board's own time in seconds."""

    ranks: int
    """How many have to confirm a value."""

    def sheet(self, now: float) -> KnobSheet:
        """All knobs at `now`."""

    def patch(
        self,
        name: str,
        value: int,
        *,
        if_version: int | None,
        ttl_seconds: float | None,
        change: str,
        now: float,
    ) -> Outcome:
        """Set a knob, if it still is at `if_version` (None: whatever it is at)."""

    def delete(self, name: str, now: float) -> Outcome:
        """Set a knob to its start value, to stay."""


@frozen(eq=False)
class KnobAnswer:
    """What one request to a knob API brought, before it is understood.

    `status` None: no answer; `detail` then says why in one clean line.
    """

    status: int | None
    body: bytes = b""
    detail: str = ""


class KnobTransport(Protocol):
    """Carries requests to one engine's knob API. Knows its address and its token; faults are data."""

    def request(self, method: str, path: str, body: bytes | None = None) -> KnobAnswer:
        """One request; returns within a deadline of its own."""


def sheet_document(sheet: KnobSheet) -> dict[str, Any]:
    """The sheet in the contract's form."""
    document = {
        "schema": KNOBS_SCHEMA,
        "engine": sheet.engine,
        "engine_version": sheet.engine_version,
        "instance": sheet.instance,
        "applied": sheet.applied,
        "total": sheet.total,
        "knobs": [row_document(row) for row in sheet.knobs],
    }
    if sheet.canary:
        document["canary"] = sheet.canary
    return document if sheet.writer == KNOB_API else {**document, "writer": sheet.writer}


def row_document(row: KnobRow) -> dict[str, Any]:
    """One knob's row in the contract's form."""
    document = {
        "name": row.name,
        "value": row.value,
        "start": row.start,
        "min": row.min,
        "max": row.max,
        "unit": row.unit,
        "version": row.version,
        "expires_in_seconds": row.expires_in_seconds,
        "note": row.note,
    }
    if row.apply == "live":
        return document
    return {**document, "apply": row.apply, "phase": row.phase, "takes_seconds": row.takes_seconds}


def parse_sheet(document: object) -> KnobSheet:
    """Read a sheet. KnobSheetError names the first key that is missing or of the wrong kind."""
    if not isinstance(document, Mapping) or document.get("schema") != KNOBS_SCHEMA:
        raise KnobSheetError(f"not a knob sheet (schema {KNOBS_SCHEMA})")
    rows = document.get("knobs")
    if not isinstance(rows, list):
        raise KnobSheetError("knobs: not a list")
    return KnobSheet(
        engine=_text(document, "engine"),
        engine_version=_text(document, "engine_version"),
        instance=_text(document, "instance"),
        applied=_whole(document, "applied"),
        total=_whole(document, "total"),
        knobs=tuple(parse_row(row) for row in rows),
        writer=_text(document, "writer") if "writer" in document else KNOB_API,
        canary=_text(document, "canary") if "canary" in document else "",
    )


def parse_row(document: object) -> KnobRow:
    """Read one knob's row. KnobSheetError as in `parse_sheet`."""
    if not isinstance(document, Mapping):
        raise KnobSheetError("a knob is not an object")
    expires = document.get("expires_in_seconds")
    if expires is not None and not _is_number(expires):
        raise KnobSheetError("expires_in_seconds: not a number")
    takes = document.get("takes_seconds", 0.0)
    if not _is_number(takes) or takes < 0:
        raise KnobSheetError("takes_seconds: not a number of seconds")
    return KnobRow(
        name=_text(document, "name"),
        value=_whole_or_none(document, "value"),
        start=_whole_or_none(document, "start"),
        min=_whole(document, "min"),
        max=_whole(document, "max"),
        unit=_text(document, "unit"),
        version=_whole(document, "version"),
        expires_in_seconds=None if expires is None else float(expires),
        note=_plain(document["note"]) if isinstance(document.get("note"), str) else "",
        apply=_text(document, "apply") if "apply" in document else "live",
        phase=_text(document, "phase") if "phase" in document else "",
        takes_seconds=float(takes),
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _LARGEST


def _text(document: Mapping[str, Any], key: str) -> str:
    value = document.get(key)
    if not isinstance(value, str):
        raise KnobSheetError(f"{key}: not a text")
    return _plain(value)


def _plain(text: str) -> str:
    """Somebody else's text as a part of a line, without anything that a terminal could obey."""
    text = text[:_LONGEST_TEXT]
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)


def _whole(document: Mapping[str, Any], key: str) -> int:
    value = document.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > _LARGEST:
        raise KnobSheetError(f"{key}: not a whole number")
    return value


def _whole_or_none(document: Mapping[str, Any], key: str) -> int | None:
    return None if document.get(key) is None else _whole(document, key)
