"""How an object writes the flags of its engine, and the same flags with other values. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from enum import StrEnum

from enginetop.fleet.model import EngineKind
from tuners.control.flags import FlagError, edited

_SHELL_SIGNS = frozenset("$`;&|<>\n(){}*?#~")
_SHELLS = ("sh", "bash", "dash", "ash")


class Style(StrEnum):
    """`LIST`: one word an item. `SCRIPT`: the last item is a script for a shell. `EVALUATED`: a list whose
    words pass a shell once more (KServe), so that they are quoted inside. `EVALUATED_TEXT`: as one text.
    """

    LIST = "list"
    SCRIPT = "script"
    EVALUATED = "evaluated"
    EVALUATED_TEXT = "evaluated_text"


def style_of(command: Sequence[str], args: Sequence[str]) -> Style:
    """How a plain container writes its flags: by words, or in a script of a shell."""
    words = (*command, *args)
    shell = bool(words) and words[0].rpartition("/")[2] in _SHELLS
    return Style.SCRIPT if shell and "-c" in words else Style.LIST


def words_of(value: Sequence[str] | str, style: Style) -> tuple[str, ...]:
    """The words that the engine is given. FlagError: a script that only a shell can read."""
    if style is Style.LIST:
        return tuple(value)
    script = (
        value if isinstance(value, str) else value[-1] if style is Style.SCRIPT and value else " ".join(value)
    )
    if style is Style.SCRIPT and not _SHELL_SIGNS.isdisjoint(_unquoted(script)):
        raise FlagError("its flags stand in a script that only a shell can read")
    try:
        return tuple(shlex.split(script))
    except ValueError:
        raise FlagError("its flags stand in a text with an open quote") from None


def written(
    value: Sequence[str] | str, style: Style, kind: EngineKind, values: Mapping[str, int | None]
) -> list[str] | str:
    """`value` with these values of knobs, in the same style. FlagError: not possible here."""
    words = edited(words_of(value, style), kind, values)
    if style is Style.LIST:
        return list(words)
    if style is Style.EVALUATED:
        return [shlex.quote(word) for word in words]
    text = shlex.join(words)
    return text if isinstance(value, str) else [*value[:-1], text]


def _unquoted(script: str) -> str:
    """What stands outside of single quotes."""
    return "".join(script.split("'")[::2])
