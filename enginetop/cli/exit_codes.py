"""Exit codes of every command."""

from __future__ import annotations

OK = 0
INTERNAL = 1
"""The UI or a command broke; the reason is on stderr in one line."""
USAGE = 2
"""The command line, a config file or a recording cannot be used."""
INTERRUPTED = 130
"""Ended by ctrl+c (128 + SIGINT)."""
