"""Exit codes of every command. What each of them means of which command stands in `enginetop.docs_man`."""

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
"""What `check` finds, as monitoring plugins say it: it does not know where others could not be used or broke,
since `USAGE` would say that a fleet is bad, and `INTERNAL` that it is not well."""
INTERRUPTED = 130
"""Ended by ctrl+c (128 + SIGINT)."""
