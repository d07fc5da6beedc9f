"""Where an alert's runbook is: a command that prints it, wherever enginetop is."""

from __future__ import annotations

from enginetop.alerts.builtin import BUILTIN_NAMES

_KNOWN = frozenset(BUILTIN_NAMES)


def runbook_command(rule: str) -> str | None:
    """The command that prints what to do about a rule; None for a rule of the config file."""
    return f"enginetop runbook {rule}" if rule in _KNOWN else None
