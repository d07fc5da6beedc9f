"""How keys are named: Textual's names, and what people write for them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping

_RENAMED: Mapping[str, str] = {
    "solidus": "slash",
    "reverse_solidus": "backslash",
    "low_line": "underscore",
    "hyphen_minus": "minus",
    "plus_sign": "plus",
    "commercial_at": "at",
}
"""Textual's names of signs that are not their Unicode names."""
_SHORT: Mapping[str, str] = {
    "escape": "esc",
    "pagedown": "PgDn",
    "pageup": "PgUp",
    "home": "Home",
    "end": "End",
    "down": "↓",
    "up": "↑",
    "left": "←",
    "right": "→",
}
_NAMED = frozenset(
    (
        *("enter", "escape", "space", "tab", "backspace", "delete", "insert"),
        *("home", "end", "pageup", "pagedown", "up", "down", "left", "right"),
        *(f"f{number}" for number in range(1, 13)),
    )
)
_ALIASES: Mapping[str, str] = {"esc": "escape", "pgdn": "pagedown", "pgup": "pageup", "return": "enter"}
_MODIFIED = re.compile(r"((?:(?:ctrl|alt|shift)\+)*)(.+)", re.DOTALL)


def key_name(text: str) -> str | None:
    """Textual's name of the key that somebody wrote as `/`, `ctrl+p`, `PgDn` or `slash`; None: no key."""
    match = _MODIFIED.fullmatch(text.strip() or text)
    if match is None:
        return None
    modifiers, base = match.groups()
    if modifiers == "alt+" and base.isupper() and len(base) == 1:
        modifiers, base = "alt+shift+", base.lower()
    name = _base_name(base)
    return None if name is None else f"{modifiers}{name}"


def written(key: str) -> str:
    """A key as people write it: `question_mark` is `?`."""
    modifiers, _, base = key.rpartition("+")
    shown = _SHORT.get(base) or _SIGN_OF.get(base, base)
    return f"{modifiers}+{shown}" if modifiers else shown


def is_unshifted(key: str) -> bool:
    """Whether one finger types the key by accident: no capital letter and nothing held down."""
    return "+" not in key and not (len(key) == 1 and key.isupper())


def _base_name(base: str) -> str | None:
    if len(base) == 1:
        return _sign_name(base)
    lower = base.lower()
    lower = _ALIASES.get(lower, lower)
    return lower if lower in _NAMED or lower in _SIGN_OF else None


def _sign_name(sign: str) -> str | None:
    if sign == " ":
        return "space"
    if not sign.isprintable():
        return None
    if sign.isalnum():
        return sign
    name = unicodedata.name(sign, "").lower().replace("-", "_").replace(" ", "_")
    return _RENAMED.get(name, name) or None


_SIGN_OF: Mapping[str, str] = {
    name: sign
    for sign in map(chr, range(33, 127))
    if not sign.isalnum() and (name := _sign_name(sign)) is not None
}
