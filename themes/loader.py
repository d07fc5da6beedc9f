"""Themes as data: TOML files of semantic names and colours, read into a `Palette`.

No other module names a colour. A screen asks for an ink ("crit", "dim"); the palette says how it looks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
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

_MANY_COLOURS = ("256color", "direct", "truecolor", "kitty")
_MOST_CHARACTERS = 100_000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_COLOUR = re.compile(
    r"#[0-9a-f]{6}|ansi_(?:default|(?:bright_)?(?:black|red|green|yellow|blue|magenta|cyan|white))"
)
_ATTRIBUTES = ("bold", "dim", "italic", "underline", "reverse")


@dataclass(frozen=True, slots=True)
class Look:
    """How an ink looks. Colours are `#rrggbb`, or one of the terminal's own sixteen (`ansi_red`,
    `ansi_bright_red`) or its default; None keeps what lies beneath.
    """

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


def theme_names(folder: Path | None = None) -> tuple[str, ...]:
    """Names of the themes that ship with enginetop and of those in the user's `folder`, sorted."""
    files = [*resources.files("themes").iterdir(), *(folder.glob("*.toml") if folder is not None else ())]
    return tuple(sorted({file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml")}))


def choose_theme(requested: str | None, environ: Mapping[str, str]) -> str:
    """The theme to start with.

    `NO_COLOR` (when not empty) outranks a requested theme, since its user wants no colour at all; a terminal
    that knows only 16 colours gets the 16-colour theme unless another one was asked for.
    """
    if environ.get("NO_COLOR"):
        return ANSI_THEME
    if requested is not None:
        return requested
    return ANSI_THEME if few_colours(environ) else DEFAULT_THEME


def few_colours(environ: Mapping[str, str]) -> bool:
    """Whether the terminal calls itself one of no more than 16 colours (`linux`, `xterm`, `screen`)."""
    if environ.get("COLORTERM", "").lower() in ("truecolor", "24bit"):
        return False
    term = environ.get("TERM", "")
    return bool(term) and not term.endswith(_MANY_COLOURS)


def load_theme(name: str, folder: Path | None = None) -> Palette:
    """Read the theme `name`; one in the user's `folder` outranks one that ships.

    ConfigError: there is none of this name, or its file is not a theme.
    """
    own = folder / f"{name}.toml" if folder is not None and _NAME.fullmatch(name) else None
    if own is not None and own.is_file():
        return read_palette(name, _read(own), str(own), base=_shipped)
    return _shipped(name, theme_names(folder))


def _shipped(name: str, names: Iterable[str] | None = None) -> Palette:
    """A theme that comes with enginetop; `names` are those to choose from."""
    if name not in theme_names():
        choice = ", ".join(theme_names() if names is None else names)
        raise ConfigError(f"theme {name!r} is not known; choose one of: {choice}")
    file = resources.files("themes").joinpath(f"{name}.toml")
    return read_palette(name, file.read_text(encoding="utf-8"), f"themes/{name}.toml")


def _read(path: Path) -> str:
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(_MOST_CHARACTERS + 1)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise ConfigError(f"{path}: {reason}; name another theme with --theme") from error
    if len(text) > _MOST_CHARACTERS:
        raise ConfigError(f"{path}: longer than any theme; name another one with --theme")
    return text


def read_palette(name: str, text: str, origin: str, base: Callable[[str], Palette] | None = None) -> Palette:
    """Read a theme's TOML text. ConfigError names the key that is missing, unknown or of the wrong kind.

    With `base`, a key `base = "dark"` takes from that theme what the text leaves out.
    """
    data = dict(parse_toml(text, origin))
    beneath = _beneath(data, origin, base) if base is not None else None
    required = () if beneath is not None else ("dark", "ansi", "surfaces", "inks")
    _check_keys(data, ("dark", "ansi", "surfaces", "inks"), origin, required)
    surfaces, inks = data.get("surfaces", {}), data.get("inks", {})
    for table, wanted in ((surfaces, SURFACES), (inks, INKS)):
        if not isinstance(table, dict):
            raise ConfigError(f"{origin}: surfaces and inks must be tables")
        _check_keys(table, wanted, origin, () if beneath is not None else wanted)
    own_surfaces = {key: _color(surfaces, key, origin) for key in SURFACES if key in surfaces}
    own_looks = {ink: _look(inks[ink], ink, origin) for ink in INKS if ink in inks}
    return Palette(
        name=name,
        dark=beneath.dark if beneath and "dark" not in data else _flag(data, "dark", origin),
        ansi=beneath.ansi if beneath and "ansi" not in data else _flag(data, "ansi", origin),
        surfaces=MappingProxyType({**(beneath.surfaces if beneath else {}), **own_surfaces}),
        looks=MappingProxyType({**(beneath.looks if beneath else {}), **own_looks}),
    )


def _beneath(data: dict[str, Any], origin: str, base: Callable[[str], Palette]) -> Palette | None:
    if "base" not in data:
        return None
    name = data.pop("base")
    if not isinstance(name, str) or name not in theme_names():
        raise ConfigError(f"{origin}: base must be one of: {', '.join(theme_names())}")
    return base(name)


def _check_keys(
    table: Mapping[str, Any], wanted: Iterable[str], origin: str, required: Iterable[str]
) -> None:
    for key in sorted(set(required) - table.keys()):
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
    where = f"{origin}: {ink}"
    return Look(
        color=_color(table, "color", where) if "color" in table else None,
        background=_color(table, "background", where) if "background" in table else None,
        **{key: _flag(table, key, where) for key in _ATTRIBUTES if key in table},
    )
