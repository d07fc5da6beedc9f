"""Fields of foreign JSON: the wanted type, or nothing."""

from __future__ import annotations

import math
from typing import Any

from collectors.sanitise import clean_text
from collectors.secrets import without_secrets
from enginetop.fleet.foreign_json import field_at

MAX_TEXT_CHARACTERS = 512


def items(body: Any, *path: str | int) -> list[Any]:
    """The list under `path`, empty when there is none."""
    found = field_at(body, *path)
    return found if isinstance(found, list) else []


def text(body: Any, *path: str | int) -> str | None:
    """A string, cleaned for the terminal, without what looks like a key."""
    found = verbatim(body, *path)
    return None if found is None else clean_text(without_secrets(found), MAX_TEXT_CHARACTERS)


def verbatim(body: Any, *path: str | int) -> str | None:
    """A text as it stands, for what is used and not shown; None where it is empty."""
    found = field_at(body, *path)
    return found if isinstance(found, str) and found else None


def number(body: Any, *path: str | int) -> float | None:
    """A finite number; booleans are none."""
    found = field_at(body, *path)
    if isinstance(found, bool) or not isinstance(found, int | float):
        return None
    try:
        as_float = float(found)
    except OverflowError:
        return None
    return as_float if math.isfinite(as_float) else None


def integer(body: Any, *path: str | int) -> int | None:
    """A whole number."""
    found = number(body, *path)
    return int(found) if found is not None and found == int(found) else None


def flag(body: Any, *path: str | int) -> bool | None:
    """A boolean."""
    found = field_at(body, *path)
    return found if isinstance(found, bool) else None
