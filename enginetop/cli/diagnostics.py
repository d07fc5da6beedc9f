"""Diagnostics: one line each, on stderr, since stdout carries results only."""

from __future__ import annotations

import sys
from contextlib import suppress

from collectors.secrets import without_secrets


def tell(line: str) -> None:
    """Print one diagnostic line, without what looks like a key; nobody reading it is no fault."""
    if sys.stderr is not None:
        with suppress(OSError):
            print(f"enginetop: {plain_line(line)}", file=sys.stderr, flush=True)


def plain_line(text: str) -> str:
    """The text without what looks like a key or what a terminal could obey: it may quote a file or a name."""
    text = without_secrets(text)
    if text.isprintable():
        return text
    from collectors.sanitise import clean_text  # of use to few

    return clean_text(text, len(text))
