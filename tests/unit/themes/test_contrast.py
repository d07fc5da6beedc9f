"""Every text of every theme can be read, and no state is told from another by hue alone."""

from __future__ import annotations

from itertools import combinations

import pytest

from tests.support.colour import contrast, difference
from themes.loader import Ink, Palette, load_theme, theme_names

TEXT, GRAPHICS = 4.5, 3.0
"""WCAG 2.2, success criteria 1.4.3 and 1.4.11."""
TOLD_APART = 20.0
DARK_GROUNDS = ("#000000", "#1e1e1e", "#002b36")
LIGHT_GROUNDS = ("#ffffff", "#fdf6e3", "#eee8d5")
"""Grounds of common terminals, where a theme leaves it to the terminal."""

PLOTS = frozenset({"bar", "spark"})
STATES: tuple[Ink, ...] = ("ok", "info", "warn", "crit")
COLOURED = tuple(name for name in theme_names() if name != "ansi")


def grounds(palette: Palette) -> tuple[str, ...]:
    own = palette.surfaces["background"]
    if own.startswith("#"):
        return (own,)
    return DARK_GROUNDS if palette.dark else LIGHT_GROUNDS


def colour_of(palette: Palette, ink: Ink) -> str | None:
    look = palette.looks[ink]
    if look.color is None and palette.surfaces["foreground"].startswith("#"):
        return palette.surfaces["foreground"]
    return look.color


def test_the_measure_itself() -> None:
    """Black on white is 21; #767676 is the lightest grey that WCAG lets stand on white."""
    assert contrast("#000000", "#ffffff") == pytest.approx(21.0)
    assert contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.005)
    # Green seen by a red-blind eye is close to yellow; blue stays far from both.
    assert difference("#00a000", "#a08000", "protanopia") < difference("#00a000", "#a08000", "normal")
    assert difference("#ffffff", "#000000", "tritanopia") == pytest.approx(100.0, abs=0.1)


@pytest.mark.parametrize("name", COLOURED)
def test_every_ink_can_be_read_on_its_ground_and_under_the_cursor(name: str) -> None:
    palette = load_theme(name)
    cursor = palette.looks["cursor"].background
    assert cursor is not None
    for ink, look in palette.looks.items():
        colour = colour_of(palette, ink)
        if colour is None or ink == "cursor":
            continue
        least = GRAPHICS if ink in PLOTS else TEXT
        own = (look.background,) if look.background is not None else (*grounds(palette), cursor)
        for ground in own:
            assert contrast(colour, ground) >= least, (ink, colour, ground)


def test_high_contrast_is_high() -> None:
    palette = load_theme("high-contrast")
    for ink, look in palette.looks.items():
        colour = colour_of(palette, ink)
        if colour is not None and ink != "cursor":
            assert contrast(colour, look.background or palette.surfaces["background"]) >= 7.0, ink


@pytest.mark.parametrize(
    ("name", "eyes"),
    [
        ("deuteranopia", ("deuteranopia", "protanopia", "normal")),
        ("tritanopia", ("tritanopia", "normal")),
    ],
)
def test_states_are_told_apart_by_the_eyes_that_a_theme_is_for(name: str, eyes: tuple[str, ...]) -> None:
    palette = load_theme(name)
    for eye in eyes:
        for one, other in combinations(STATES, 2):
            first, second = colour_of(palette, one), colour_of(palette, other)
            assert first is not None
            assert second is not None
            assert difference(first, second, eye) >= TOLD_APART, (eye, one, other)


def test_without_colour_the_loud_inks_still_stand_out() -> None:
    """`NO_COLOR` takes the colours of the 16-colour theme; bold, dim, underline and reverse are left."""

    def attributes(ink: Ink) -> tuple[bool, ...]:
        look = load_theme("ansi").looks[ink]
        return (look.bold, look.dim, look.underline, look.reverse)

    plain = attributes("text")
    for ink in ("warn", "crit", "badge", "cursor", "title", "head", "dim", "key"):
        assert attributes(ink) != plain, ink
