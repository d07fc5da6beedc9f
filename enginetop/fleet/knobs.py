"""The knob API's vocabulary (schema `enginetop.knobs/1`): what an engine's companion says of its knobs.

Spoken by the companions and by the simulator, read by the control room. Times are seconds, versions count the
changes of one knob since the engine started.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

KNOBS_PATH = "/enginetop/v1/knobs"
SLO_PATH = "/enginetop/v1/slo"
KNOBS_SCHEMA = "enginetop.knobs/1"


class KnobSheetError(ValueError):
    """A document is no knob sheet; the text says which key is wrong."""


@dataclass(frozen=True, slots=True)
class KnobRow:
    """One knob. `start` is the value that the engine was started with, `min` and `max` what is accepted live.

    `expires_in_seconds` counts down to the moment when the engine goes back to the former value by itself;
    None: the value stays. `value` None: the engine sets no value (no default thinking budget, say).
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


@dataclass(frozen=True, slots=True)
class KnobSheet:
    """All knobs of one engine instance. `instance` changes at every restart of the engine.

    `applied` of `total` ranks or server processes confirm the values.
    """

    engine: str
    engine_version: str
    instance: str
    applied: int
    total: int
    knobs: tuple[KnobRow, ...]

    def knob(self, name: str) -> KnobRow | None:
        """The row of the knob `name`; None when the engine has none of that name."""
        return next((row for row in self.knobs if row.name == name), None)


@dataclass(frozen=True, slots=True, eq=False)
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
    return {
        "schema": KNOBS_SCHEMA,
        "engine": sheet.engine,
        "engine_version": sheet.engine_version,
        "instance": sheet.instance,
        "applied": sheet.applied,
        "total": sheet.total,
        "knobs": [row_document(row) for row in sheet.knobs],
    }


def row_document(row: KnobRow) -> dict[str, Any]:
    """One knob's row in the contract's form."""
    return {
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
    )


def parse_row(document: object) -> KnobRow:
    """Read one knob's row. KnobSheetError as in `parse_sheet`."""
    if not isinstance(document, Mapping):
        raise KnobSheetError("a knob is not an object")
    expires = document.get("expires_in_seconds")
    if expires is not None and not _is_number(expires):
        raise KnobSheetError("expires_in_seconds: not a number")
    return KnobRow(
        name=_text(document, "name"),
        value=_whole_or_none(document, "value"),
        start=_whole_or_none(document, "start"),
        min=_whole(document, "min"),
        max=_whole(document, "max"),
        unit=_text(document, "unit"),
        version=_whole(document, "version"),
        expires_in_seconds=None if expires is None else float(expires),
        note=document["note"] if isinstance(document.get("note"), str) else "",
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _text(document: Mapping[str, Any], key: str) -> str:
    value = document.get(key)
    if not isinstance(value, str):
        raise KnobSheetError(f"{key}: not a text")
    return value


def _whole(document: Mapping[str, Any], key: str) -> int:
    value = document.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        raise KnobSheetError(f"{key}: not a whole number")
    return value


def _whole_or_none(document: Mapping[str, Any], key: str) -> int | None:
    return None if document.get(key) is None else _whole(document, key)
