"""Fields of foreign JSON: the wanted type, or nothing."""

from __future__ import annotations

import math

from collectors.engines.base import Json
from collectors.sanitise import clean_text
from collectors.secrets import without_secrets
from enginetop.fleet.foreign_json import field_at

MAX_TEXT_CHARACTERS = 512

_PLACEHOLDER_NAMES = frozenset({"", "none", "null", "undefined", "unknown"})


def items(body: Json, *path: str | int) -> list[Json]:
    """The list under `path`, empty when there is none."""
    found = field_at(body, *path)
    return found if isinstance(found, list) else []


def text(body: Json, *path: str | int) -> str | None:
    """A string, cleaned for the terminal, without what looks like a key."""
    found = field_at(body, *path)
    if not isinstance(found, str) or not found:
        return None
    return clean_text(without_secrets(found), MAX_TEXT_CHARACTERS)


def number(body: Json, *path: str | int) -> float | None:
    """A finite number; booleans are none."""
    found = field_at(body, *path)
    if isinstance(found, bool) or not isinstance(found, int | float):
        return None
    try:
        as_float = float(found)
    except OverflowError:
        return None
    return as_float if math.isfinite(as_float) else None


def integer(body: Json, *path: str | int) -> int | None:
    """A whole number."""
    found = number(body, *path)
    return int(found) if found is not None and found == int(found) else None


def flag(body: Json, *path: str | int) -> bool | None:
    """A boolean."""
    found = field_at(body, *path)
    return found if isinstance(found, bool) else None


def model_name(name: str | None) -> str | None:
    """A model's name in full, None for the words that engines put where they have no name."""
    return None if name is None or name.strip().lower() in _PLACEHOLDER_NAMES else name
