"""Diagnostics: one line each, on stderr, since stdout carries results only."""

from __future__ import annotations

import sys
from contextlib import suppress


def tell(line: str) -> None:
    """Print one diagnostic line; nobody reading it is no fault."""
    if sys.stderr is not None:
        with suppress(OSError):
            print(f"enginetop: {line}", file=sys.stderr, flush=True)
