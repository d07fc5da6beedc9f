"""Themes as data: every file complete, every mistake named."""

from __future__ import annotations

import pytest

from enginetop.fleet.errors import ConfigError
from themes.loader import INKS, SURFACES, choose_theme, load_theme, read_palette, theme_names


def toml(**changes: str) -> str:
    """A theme that is right but for the changes (dotted key with `__`)."""
    values = {"dark": "true", "ansi": "false"}
    values |= {f"surfaces.{key}": '"#101010"' for key in SURFACES}
    values |= {f"inks.{key}": '{ color = "#202020" }' for key in INKS}
    for key, value in changes.items():
        values[key.replace("__", ".")] = value
    return "\n".join(f"{key} = {value}" for key, value in values.items() if value)


@pytest.mark.parametrize("name", theme_names())
def test_every_theme_file_is_complete(name: str) -> None:
    palette = load_theme(name)
    assert palette.looks.keys() == set(INKS)
    assert palette.looks["crit"] != palette.looks["text"]


def test_the_three_themes_ship() -> None:
    assert {"dark", "light", "ansi"} <= set(theme_names())


def test_a_theme_reads_back() -> None:
    palette = read_palette("mine", toml(inks__crit='{ color = "#ff0000", bold = true }'), "mine.toml")
    assert palette.looks["crit"].color == "#ff0000"
    assert palette.looks["crit"].bold
    assert palette.surfaces["background"] == "#101010"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (toml(dark=""), "dark is missing"),
        (toml(inks__warn=""), "warn is missing"),
        (toml(inks__loud="{}"), "loud is not known"),
        (toml(dark='"yes"'), "dark must be true or false"),
        (toml(surfaces__error='"red"'), "error must be a colour"),
        (toml(inks__ok='{ colour = "#ffffff" }'), "ok.colour is not known"),
        (toml(inks__ok='"#ffffff"'), "ok must be a table"),
        (toml(inks__ok="{ bold = 1 }"), "bold must be true or false"),
        ("= 3", "not valid TOML"),
    ],
)
def test_mistakes_are_named(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_palette("mine", text, "mine.toml")


@pytest.mark.parametrize(
    ("requested", "environ", "chosen"),
    [
        (None, {}, "dark"),
        ("light", {}, "light"),
        ("light", {"NO_COLOR": "1"}, "ansi"),
        ("light", {"NO_COLOR": ""}, "light"),
        (None, {"TERM": "linux"}, "ansi"),
        ("dark", {"TERM": "linux"}, "dark"),
    ],
)
def test_the_theme_to_start_with(requested: str | None, environ: dict[str, str], chosen: str) -> None:
    assert choose_theme(requested, environ) == chosen
