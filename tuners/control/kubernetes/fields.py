"""Objects of the API as they come: read without trust in what they hold. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Fields = Mapping[str, Any]
"""An object, or a part of one."""


def field_at(value: Any, *path: str | int) -> Any:
    """The value under keys and list positions; None where the path ends early."""
    for step in path:
        if isinstance(value, dict) and isinstance(step, str):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and 0 <= step < len(value):
            value = value[step]
        else:
            return None
    return value


def objects_at(value: Any, *path: str | int) -> list[Fields]:
    """The objects of the list there; empty where there is none."""
    found = field_at(value, *path)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def texts(value: Any) -> tuple[str, ...]:
    """The texts of a list; empty when it is none."""
    return tuple(word for word in value if isinstance(word, str)) if isinstance(value, list) else ()
