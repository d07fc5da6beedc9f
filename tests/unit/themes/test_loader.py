"""Themes as data: every file complete, every mistake named."""

from __future__ import annotations

from pathlib import Path

import pytest

from enginetop.fleet.errors import ConfigError
from themes.loader import (
    INKS,
    SURFACES,
    choose_theme,
    few_colours,
    load_theme,
    read_palette,
    theme_names,
)


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


def test_the_themes_that_ship() -> None:
    assert theme_names() == ("ansi", "dark", "deuteranopia", "high-contrast", "light", "tritanopia")


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
        (toml(surfaces__error='"ansi_orange"'), "error must be a colour"),
        (toml(inks__ok='{ color = "ansi_grey50" }'), "ok: color must be a colour"),
        (toml(inks__ok='{ colour = "#ffffff" }'), "ok.colour is not known"),
        (toml(inks__ok='"#ffffff"'), "ok must be a table"),
        (toml(inks__ok="{ bold = 1 }"), "ok: bold must be true or false"),
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


def test_a_users_theme_may_build_upon_another_one(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('base = "light"\n[inks]\ncrit = { color = "#ff0000" }\n')
    mine, light = load_theme("mine", tmp_path), load_theme("light")
    assert mine.name == "mine"
    assert mine.looks["crit"].color == "#ff0000"
    assert mine.looks["warn"] == light.looks["warn"]
    assert (mine.dark, mine.surfaces) == (light.dark, light.surfaces)
    assert theme_names(tmp_path) == tuple(sorted(("mine", *theme_names())))


def test_a_users_theme_outranks_one_that_ships(tmp_path: Path) -> None:
    (tmp_path / "dark.toml").write_text('base = "dark"\ndark = false\n')
    assert not load_theme("dark", tmp_path).dark
    assert load_theme("dark").dark


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b'base = "dark"\n[inks]\nloud = {}\n', r"mine\.toml: loud is not known"),
        (b'base = "mine"\n', r"mine\.toml: base must be one of: ansi, dark"),
        (b"base = 3\n", r"mine\.toml: base must be one of"),
        (b'base = "dark"\ninks = 3\n', r"mine\.toml: surfaces and inks must be tables"),
        (b"dark = true\n", r"mine\.toml: ansi is missing"),
        (b"\xff\xfe", r"mine\.toml: not UTF-8 text; name another theme with --theme"),
        (b"# " + b"x" * 200_000, r"mine\.toml: longer than any theme"),
        (b"[[[", r"mine\.toml: .*TOML"),
    ],
)
def test_a_bad_theme_of_a_user_is_one_line(tmp_path: Path, text: bytes, message: str) -> None:
    (tmp_path / "mine.toml").write_bytes(text)
    with pytest.raises(ConfigError, match=message) as caught:
        load_theme("mine", tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["../mine", "", "mine", "a/b", "."])
def test_a_theme_that_is_not_there_is_told_with_the_choice(tmp_path: Path, name: str) -> None:
    (tmp_path / "own.toml").write_text('base = "dark"\n')
    with pytest.raises(ConfigError, match=r"is not known; choose one of: ansi, dark, .*own"):
        load_theme(name, tmp_path)


@pytest.mark.parametrize(
    ("environ", "few"),
    [
        ({"TERM": "linux"}, True),
        ({"TERM": "xterm"}, True),
        ({"TERM": "screen"}, True),
        ({"TERM": "vt220"}, True),
        ({"TERM": "screen-256color"}, False),
        ({"TERM": "tmux-256color"}, False),
        ({"TERM": "xterm-kitty"}, False),
        ({"TERM": "xterm", "COLORTERM": "truecolor"}, False),
        ({"TERM": "screen", "COLORTERM": "24bit"}, False),
        ({}, False),
    ],
)
def test_terminals_of_sixteen_colours(environ: dict[str, str], few: bool) -> None:
    assert few_colours(environ) is few
    assert (choose_theme(None, environ) == "ansi") is few
