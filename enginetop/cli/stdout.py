"""Standard output: whether there is one, and what can be written to it."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from typing import Any, TextIO

from enginetop.fleet.errors import ConfigError


def open_stdout(what: str) -> TextIO:
    """Standard output. ConfigError when it is closed, and `what` could not be printed."""
    if sys.stdout is None:
        raise ConfigError(f"standard output is closed; there is nowhere to print {what}")
    return sys.stdout


def escape_what_is_not_encoded() -> None:
    """Let stdout write as an escape what its encoding does not have, as stderr does: a name in other letters
    than those of the locale ends no command.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def takes_unicode(stream: TextIO) -> bool:
    """Whether every character can be written to it as it is."""
    return "utf" in (stream.encoding or "").lower()


def print_utf8(text: str, what: str) -> None:
    """Print a text whose format asks for UTF-8, whatever the locale says. ConfigError: no stdout."""
    stdout = open_stdout(what)
    if isinstance(stdout, io.TextIOWrapper):
        stdout.reconfigure(encoding="utf-8")
    print(text, end="")


def print_document(document: Any, what: str, default: Callable[[Any], Any] | None = None) -> None:
    """Print JSON: a line, or indented on a terminal. `default` as in `json.dumps`; ConfigError: no stdout."""
    indent = 2 if open_stdout(what).isatty() else None
    print(json.dumps(document, allow_nan=False, default=default, indent=indent))
