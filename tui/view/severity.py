"""How loud something is, and what is said about a replica: one word, one severity, one reason."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from enginetop.fleet.frozen import frozen
from themes.loader import Ink


class Severity(IntEnum):
    """How loud a condition is; `WARN` and above "need you"."""

    OK = 0
    QUIET = 1
    INFO = 2
    WARN = 3
    CRIT = 4


INK_OF: Mapping[Severity, Ink] = {
    Severity.OK: "ok",
    Severity.QUIET: "dim",
    Severity.INFO: "info",
    Severity.WARN: "warn",
    Severity.CRIT: "crit",
}

GLYPH_OF: Mapping[Severity, str] = {
    Severity.OK: "●",
    Severity.QUIET: "○",
    Severity.INFO: "◌",
    Severity.WARN: "▲",
    Severity.CRIT: "✖",
}


@frozen
class Condition:
    """What leads: `word` for the state column, `short` for the verdict, `because` for a line of its own.

    `handled`: that somebody has acknowledged or silenced its alert. It is still shown, and leads nothing.
    """

    severity: Severity
    word: str
    short: str
    because: str = ""
    handled: str = ""

    @property
    def needs_you(self) -> bool:
        """Whether somebody should look who does not yet."""
        return self.severity >= Severity.WARN and not self.handled

    @property
    def ink(self) -> Ink:
        """The ink of its severity; that of an aside where it is handled."""
        return "dim" if self.handled else INK_OF[self.severity]


_SAID: Mapping[str, str] = {
    "stalled": "no progress",
    "no metric": "no engine metrics",
    "backends": "backends not healthy",
    "late": "page late",
    "undone": "change undone",
    "undo fail": "change not undone",
}
"""Words as a sentence has them, where the column is too narrow."""


def in_a_sentence(word: str) -> str:
    """The word of a condition as running text has it."""
    return _SAID.get(word, word)
