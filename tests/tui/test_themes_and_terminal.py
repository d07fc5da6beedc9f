"""Themes on the app, and what is settled before Textual is imported."""

from __future__ import annotations

import ast
import asyncio
from pathlib import Path

import pytest

import tui
from tests.tui.running import running
from tests.tui.snapshots import FakeSource, down_replica, fleet, replica
from themes.loader import theme_names
from tui.app import FleetApp
from tui.terminal import prepare, wants_ascii
from tui.view.cells import ASCII_TWINS, Span, line_text, to_ascii
from tui.view.severity import GLYPH_OF
from tui.widgets.ink import cube_number


@pytest.mark.parametrize("theme", theme_names())
def test_every_theme_draws_the_first_screen(theme: str) -> None:
    async def run() -> None:
        app = FleetApp(FakeSource(fleet([replica("a1"), down_replica("c0")])), theme=theme)
        async with running(app):
            assert app.current_theme.name == f"enginetop-{theme}"
        assert app.failures == []

    asyncio.run(run())


def test_no_color_sends_no_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    async def run() -> None:
        app = FleetApp(FakeSource(fleet([replica("a1"), down_replica("c0")])), theme="dark")
        async with running(app):
            colours = {
                color.name
                for strip in app.screen._compositor.render_strips()
                for segment in strip
                if segment.style is not None
                for color in (segment.style.color, segment.style.bgcolor)
                if color is not None
            }
            assert colours == {"default"}

    asyncio.run(run())


def test_settings_of_the_user_are_kept() -> None:
    environ = {"TEXTUAL_FPS": "30", "NO_COLOR": ""}
    prepare(environ)
    assert environ["TEXTUAL_FPS"] == "30"
    assert environ["TEXTUAL_ANIMATIONS"] == "none"
    assert "NO_COLOR" not in environ


def test_terminals_without_our_glyphs() -> None:
    assert wants_ascii({"TERM": "linux", "LANG": "en_US.UTF-8"})
    assert wants_ascii({"LANG": "C"})
    assert not wants_ascii({"TERM": "xterm-256color", "LANG": "C.UTF-8"})
    assert not wants_ascii({"LC_ALL": "de_DE.UTF-8", "LANG": "C"})
    assert not wants_ascii({"LANG": "de_DE.utf8@euro"})
    assert wants_ascii({"LANG": "de_DE.ISO-8859-1"})
    assert wants_ascii({"LC_CTYPE": "POSIX", "LANG": "de_DE.UTF-8"})
    assert wants_ascii({"TERM": "vt220"})
    assert not wants_ascii({"TERM": "screen"})


def test_every_glyph_has_a_twin_in_ascii() -> None:
    """All glyphs in texts of the screens; docstrings are left out."""
    without = {}
    for path in Path(tui.__path__[0]).rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
                for glyph in node.value:
                    if not glyph.isascii() and ord(glyph) not in ASCII_TWINS:
                        without[glyph] = path.name
    assert without == {}


def test_states_are_told_apart_in_ascii() -> None:
    twins = {line_text(to_ascii((Span(glyph),))) for glyph in GLYPH_OF.values()}
    assert len(twins) == len(GLYPH_OF)
    assert all(twin.isascii() and twin.strip() and twin != "?" for twin in twins)


@pytest.mark.parametrize(
    ("colour", "number"),
    [
        ("#000000", 16), ("#ffffff", 231), ("#5f87af", 67), ("#ff5f5f", 203), ("#d7af5f", 179),
        ("#080808", 232), ("#949494", 246), ("#eeeeee", 255), ("#949495", None), ("#f8f8f8", None),
        ("#1d2a36", None),
    ],
)  # fmt: skip
def test_colours_of_the_palette_of_256(colour: str, number: int | None) -> None:
    """Numbers from the xterm palette: a cube of six levels from 16 on, a ramp of greys from 232 on."""
    assert cube_number(colour) == number
