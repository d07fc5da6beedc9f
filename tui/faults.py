"""Faults of the program itself: one line for the screen, the rest in a file."""

from __future__ import annotations

import os
import time
import traceback
from contextlib import suppress
from pathlib import Path

from tui.view.cells import printable

_MOST_BYTES = 1_000_000
"""A log that has grown so long is begun anew."""
_MOST_TEXT = 300


def failure_line(where: str, error: Exception) -> str:
    """What went wrong where, in one line of plain text."""
    return printable(" ".join(f"{where}: {type(error).__name__}: {error}".split()))[:_MOST_TEXT]


def write_fault(path: Path, where: str, error: Exception, at: float) -> None:
    """Append where a fault came from to a file that only the user can read.

    Places in the code and the line of `failure_line`, no values of variables. A file that cannot be written
    is no further fault.
    """
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
    frames = traceback.extract_tb(error.__traceback__)
    places = "".join(f"    {frame.filename}:{frame.lineno} in {frame.name}\n" for frame in frames)
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        anew = path.exists() and path.stat().st_size > _MOST_BYTES
        flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if anew else os.O_APPEND)
        with os.fdopen(os.open(path, flags, 0o600), "w", encoding="utf-8") as file:
            file.write(f"{when} {failure_line(where, error)}\n{places}")
