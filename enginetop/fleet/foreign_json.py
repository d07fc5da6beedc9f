"""JSON that somebody else wrote: a value or nothing, and what it says of an error."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

LONGEST_WORDS = 200
"""Characters that are shown of what somebody else's server says."""


def decoded(text: str | bytes) -> Any:
    """The JSON value; None where it is none: broken, not UTF-8, or nested deeper than can be read."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


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
