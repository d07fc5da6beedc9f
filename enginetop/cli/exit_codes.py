"""Exit codes of every command."""

from __future__ import annotations

OK = 0
INTERNAL = 1
"""The UI or a command broke; the reason is on stderr in one line."""
USAGE = 2
"""The command line, a config file or a recording cannot be used."""
REFUSED = 2
"""A plan that does not fit, or a change that nobody approved: nothing was written."""
HELD = 3
"""The canary was inconclusive; its value went back, and a person decides."""
ROLLED_BACK = 4
ROLLBACK_FAILED = 5
"""A value may still be in force; what to do by hand is on stderr and in the audit."""
WARNING = 1
CRITICAL = 2
UNKNOWN = 3
"""What `check` finds, as monitoring plugins say it."""
INTERRUPTED = 130
"""Ended by ctrl+c (128 + SIGINT)."""
