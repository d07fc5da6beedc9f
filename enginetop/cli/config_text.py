"""The settings that a config file comes to, as a document that can be shown and read again."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from collectors.secrets import without_secrets, words_without_secrets
from collectors.ssh.address import SCHEME
from enginetop.cli.settings import Settings
from enginetop.cli.targets import shown_address

Document = Mapping[str, Any]

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_ADDRESSES = ("url", "control_url")
_COMMAND = "command"
"""Keys whose values may hold what no file should: they are shown without it."""


def effective(tables: Document, settings: Settings) -> dict[str, Any]:
    """What the tables of a valid config file say, and the defaults of what they do not say.

    Of secrets there are the names of their variables and files; what looks like one is left out. A table
    that is not there and means something by that (`[control]`, `[prometheus]`) stays away.
    """
    from enginetop.fleet.config import Config
    from enginetop.fleet.strict_tables import filled_in

    told = {**tables, "timeout_seconds": tables.get("timeout_seconds", settings.timeout_seconds)}
    return {key: _shown(key, value) for key, value in filled_in(Config, told).items()}


def _shown(key: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return {without_secrets(name): _shown(name, one) for name, one in value.items()}
    if isinstance(value, list):
        if key == _COMMAND:
            return [*words_without_secrets(map(str, value))]
        return [_shown(key, one) for one in value]
    if not isinstance(value, str):
        return value
    if key in _ADDRESSES:
        # the user of ssh is no secret, and a password is refused
        return value if value.lower().startswith(SCHEME) else without_secrets(shown_address(value))
    return without_secrets(value)


def toml_text(document: Document, *, ascii_only: bool = False) -> str:
    """The document in TOML; `ascii_only` writes other characters as escapes."""
    return "\n".join(_lines(document, (), ascii_only=ascii_only)).lstrip("\n") + "\n"


def _lines(table: Document, path: tuple[str, ...], *, ascii_only: bool) -> Iterator[str]:
    """Plain values first: what stands behind the head of a table belongs to that one."""
    below = {}
    for key, value in table.items():
        if _is_below(value):
            below[key] = value
        else:
            yield f"{_key(key, ascii_only)} = {_value(value, ascii_only)}"
    for key, value in below.items():
        deeper = (*path, key)
        head = ".".join(_key(part, ascii_only) for part in deeper)
        for one in [value] if isinstance(value, Mapping) else value:
            if one is not value or not one or not all(map(_is_below, one.values())):
                yield ""
                yield f"[{head}]" if one is value else f"[[{head}]]"
            yield from _lines(one, deeper, ascii_only=ascii_only)


def _is_below(value: object) -> bool:
    """Whether it is a table, or several."""
    return isinstance(value, Mapping) or (isinstance(value, list) and any(map(_is_below, value)))


def _key(key: str, ascii_only: bool) -> str:
    return key if _BARE.fullmatch(key) else _quoted(key, ascii_only)


def _value(value: Any, ascii_only: bool) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return _quoted(value, ascii_only)
    if isinstance(value, list):
        return f"[{', '.join(_value(one, ascii_only) for one in value)}]"
    return value.isoformat() if isinstance(value, datetime) else repr(value)


def _quoted(text: str, ascii_only: bool) -> str:
    return f'"{"".join(_character(one, ascii_only) for one in text)}"'


def _character(character: str, ascii_only: bool) -> str:
    """Nothing that a terminal could obey is written as it is."""
    if character in '"\\':
        return f"\\{character}"
    if character.isprintable() and (character.isascii() or not ascii_only):
        return character
    code = ord(character)
    return f"\\u{code:04X}" if code <= 0xFFFF else f"\\U{code:08X}"
