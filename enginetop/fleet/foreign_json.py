"""JSON that somebody else wrote: read without trust in what it holds. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

Fields = Mapping[str, Any]
"""An object, or a part of one."""

_NO_NAMES = frozenset({"", "none", "null", "undefined", "unknown"})
LONGEST_WORDS = 200
"""Characters that are shown of what somebody else's server says."""


def decoded(text: str | bytes) -> Any:
    """The JSON value; None where it is none: broken, not UTF-8, or nested deeper than can be read."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def field_at(value: Any, *path: str | int) -> Any:
    """The value under keys and list positions; None where the path ends early."""
    for step in path:
        if isinstance(step, str) and isinstance(value, dict):
            value = value.get(step)
        elif isinstance(step, int) and isinstance(value, list) and -len(value) <= step < len(value):
            value = value[step]
        else:
            return None
    return value


def objects_at(value: Any, *path: str | int) -> list[Fields]:
    """The objects of the list there; empty where there is none."""
    found = field_at(value, *path)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def whole(value: Any) -> int | None:
    """A whole number; None: it is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def texts(value: Any) -> tuple[str, ...]:
    """The texts of a list; empty when it is none."""
    return tuple(word for word in value if isinstance(word, str)) if isinstance(value, list) else ()


def model_name(name: str | None) -> str | None:
    """A model's name in full, None for the words that stand where there is no name."""
    return None if name is None or name.strip().lower() in _NO_NAMES else name


def error_words(document: object) -> str:
    """What a body says of its error, in one clean line of at most 200 characters; empty: nothing."""
    if not isinstance(document, Mapping):
        return ""
    for key in ("error", "detail", "message"):
        found = document.get(key)
        if isinstance(found, Mapping):
            found = found.get("message")
        if isinstance(found, str) and (words := clean_words(found)):
            return words
    return ""


def clean_words(words: str) -> str:
    """What somebody else's server said, as one short printable line."""
    return " ".join("".join(c if c.isprintable() else " " for c in words[:LONGEST_WORDS]).split())
