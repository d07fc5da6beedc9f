"""Themes as data: TOML files of semantic names and colours, read into a `Palette`.

No other module names a colour. A screen asks for an ink ("crit", "dim"); the palette says how it looks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from types import MappingProxyType
from typing import Any, Literal, get_args

from enginetop.fleet.errors import ConfigError
from enginetop.fleet.toml_text import parse_toml

Ink = Literal[
    "text",
    "dim",
    "title",
    "head",
    "group",
    "ok",
    "info",
    "warn",
    "crit",
    "badge",
    "key",
    "bar",
    "spark",
    "cursor",
]
"""What a piece of text means; every theme says how each of them looks."""

INKS: tuple[Ink, ...] = get_args(Ink)

SURFACES = ("background", "foreground", "primary", "secondary", "accent", "warning", "error", "success")
"""Colours of the screen itself, for the widgets that are not drawn by ink."""

DEFAULT_THEME = "dark"
ANSI_THEME = "ansi"
"""The theme for `NO_COLOR` and for terminals of 16 colours."""

_COLOUR = re.compile(r"#[0-9a-f]{6}|ansi_[a-z_]+")
_ATTRIBUTES = ("bold", "dim", "italic", "underline", "reverse")


@dataclass(frozen=True, slots=True)
class Look:
    """How an ink looks. Colours are `#rrggbb` or `ansi_<name>`; None keeps what lies beneath."""

    color: str | None = None
    background: str | None = None
    bold: bool = False
    dim: bool = False
    italic: bool = False
    underline: bool = False
    reverse: bool = False


@dataclass(frozen=True, slots=True)
class Palette:
    """One theme. `ansi`: its colours are the terminal's own sixteen; `dark`: light text on a dark ground."""

    name: str
    dark: bool
    ansi: bool
    surfaces: Mapping[str, str]
    looks: Mapping[Ink, Look]


def theme_names() -> tuple[str, ...]:
    """Names of the themes that ship with enginetop, sorted."""
    files = resources.files("themes").iterdir()
    return tuple(sorted(file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml")))


def choose_theme(requested: str | None, environ: Mapping[str, str]) -> str:
    """The theme to start with.

    `NO_COLOR` (when not empty) outranks a requested theme, since its user wants no colour at all; a terminal
    that knows only 16 colours (`TERM=linux`) gets the 16-colour theme unless another one was asked for.
    """
    if environ.get("NO_COLOR"):
        return ANSI_THEME
    if requested is not None:
        return requested
    return ANSI_THEME if environ.get("TERM") == "linux" else DEFAULT_THEME


def load_theme(name: str) -> Palette:
    """Read the theme `name`. ConfigError: there is none, or its file is not a theme."""
    names = theme_names()
    if name not in names:
        raise ConfigError(f"theme {name!r} is not known; choose one of: {', '.join(names)}")
    file = resources.files("themes").joinpath(f"{name}.toml")
    return read_palette(name, file.read_text(encoding="utf-8"), f"themes/{name}.toml")


def read_palette(name: str, text: str, origin: str) -> Palette:
    """Read a theme's TOML text. ConfigError names the key that is missing, unknown or of the wrong kind."""
    data = parse_toml(text, origin)
    _check_keys(data, ("dark", "ansi", "surfaces", "inks"), origin)
    surfaces, inks = data["surfaces"], data["inks"]
    for table, wanted in ((surfaces, SURFACES), (inks, INKS)):
        if not isinstance(table, dict):
            raise ConfigError(f"{origin}: surfaces and inks must be tables")
        _check_keys(table, wanted, origin)
    return Palette(
        name=name,
        dark=_flag(data, "dark", origin),
        ansi=_flag(data, "ansi", origin),
        surfaces=MappingProxyType({key: _color(surfaces, key, origin) for key in SURFACES}),
        looks=MappingProxyType({ink: _look(inks[ink], ink, origin) for ink in INKS}),
    )


def _check_keys(table: Mapping[str, Any], wanted: Iterable[str], origin: str) -> None:
    for key in sorted(set(wanted) - table.keys()):
        raise ConfigError(f"{origin}: {key} is missing")
    for key in sorted(table.keys() - set(wanted)):
        raise ConfigError(f"{origin}: {key} is not known")


def _flag(table: Mapping[str, Any], key: str, origin: str) -> bool:
    value = table[key]
    if not isinstance(value, bool):
        raise ConfigError(f"{origin}: {key} must be true or false")
    return value


def _color(table: Mapping[str, Any], key: str, origin: str) -> str:
    value = table[key]
    if not isinstance(value, str) or not _COLOUR.fullmatch(value):
        raise ConfigError(f"{origin}: {key} must be a colour such as #1a2b3c or ansi_red")
    return value


def _look(table: object, ink: str, origin: str) -> Look:
    if not isinstance(table, dict):
        raise ConfigError(f"{origin}: {ink} must be a table such as {{ color = '#1a2b3c', bold = true }}")
    for key in sorted(table.keys() - {"color", "background", *_ATTRIBUTES}):
        raise ConfigError(f"{origin}: {ink}.{key} is not known")
    return Look(
        color=_color(table, "color", origin) if "color" in table else None,
        background=_color(table, "background", origin) if "background" in table else None,
        **{key: _flag(table, key, origin) for key in _ATTRIBUTES if key in table},
    )
