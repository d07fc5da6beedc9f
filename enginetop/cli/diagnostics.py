"""Diagnostics: one line each, on stderr, since stdout carries results only."""

from __future__ import annotations

import sys
from contextlib import suppress

from collectors.secrets import without_secrets


def tell(line: str) -> None:
    """Print one diagnostic line, without what looks like a key; nobody reading it is no fault."""
    if sys.stderr is not None:
        with suppress(OSError):
            print(f"enginetop: {without_secrets(line)}", file=sys.stderr, flush=True)
