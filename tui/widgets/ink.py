"""From a palette (data) to what Textual and Rich draw with."""

from __future__ import annotations

from dataclasses import replace

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.theme import BUILTIN_THEMES, Theme

from themes.loader import Look, Palette
from tui.view.cells import Line, printable, to_ascii

_CUBE = (0x00, 0x5F, 0x87, 0xAF, 0xD7, 0xFF)
"""Levels of red, green and blue in the 256-colour palette."""


def textual_theme(palette: Palette) -> Theme:
    """The palette as a Textual theme, for the widgets that are not drawn by ink."""
    surfaces = palette.surfaces
    # Textual's own styles refer to names that only its ansi themes define.
    variables = dict(BUILTIN_THEMES["ansi-dark"].variables) if palette.ansi else {}
    return Theme(
        name=f"enginetop-{palette.name}",
        dark=palette.dark,
        ansi=palette.ansi,
        primary=surfaces["primary"],
        secondary=surfaces["secondary"],
        accent=surfaces["accent"],
        warning=surfaces["warning"],
        error=surfaces["error"],
        success=surfaces["success"],
        foreground=surfaces["foreground"],
        background=surfaces["background"],
        surface=surfaces["background"],
        panel=surfaces["background"],
        variables=variables,
    )


class Inks:
    """Draws lines as strips. `ascii_only` replaces every glyph beyond ASCII, cell for cell."""

    def __init__(self, palette: Palette, *, ascii_only: bool = False) -> None:
        self._ascii_only = ascii_only
        self.use(palette)

    def use(self, palette: Palette) -> None:
        """Draw with this palette from now on."""
        ground = Style() if palette.ansi else _ground(palette)
        cursor = palette.looks["cursor"]
        self._resting = {ink: ground + _style(look) for ink, look in palette.looks.items()}
        self._selected = {
            ink: ground + _style(cursor) + _style(_without_colors(look) if cursor.reverse else look)
            for ink, look in palette.looks.items()
        }

    def strip(self, line: Line, width: int, *, selected: bool = False) -> Strip:
        """The line as a strip of exactly `width` cells."""
        if self._ascii_only:
            line = to_ascii(line)
        styles = self._selected if selected else self._resting
        # The last gate: some texts come from files that anybody may have written.
        segments = [Segment(printable(span.text), styles[span.ink]) for span in line]
        strip = Strip(segments).adjust_cell_length(width, styles["text"])
        return strip.simplify()


def _ground(palette: Palette) -> Style:
    surfaces = palette.surfaces
    return Style(color=_rich_color(surfaces["foreground"]), bgcolor=_rich_color(surfaces["background"]))


def _without_colors(look: Look) -> Look:
    """Colours under `reverse` would make a patchwork of the cursor's bar."""
    return replace(look, color=None, background=None, dim=False)


def _style(look: Look) -> Style:
    # Attributes that are off stay unset, so that what lies beneath (the cursor) shows through.
    return Style(
        color=_rich_color(look.color),
        bgcolor=_rich_color(look.background),
        bold=look.bold or None,
        dim=look.dim or None,
        italic=look.italic or None,
        underline=look.underline or None,
        reverse=look.reverse or None,
    )


def _rich_color(color: str | None) -> str | None:
    if color is None:
        return None
    if color.startswith("ansi_"):
        return color.removeprefix("ansi_")
    number = cube_number(color)
    return color if number is None else f"color({number})"


def cube_number(color: str) -> int | None:
    """The number in the 256-colour palette of a `#rrggbb` that is exactly in it; None for any other.

    Such a colour takes half the bytes on the wire, and a terminal of 256 colours shows it as it is meant.
    """
    parts = [int(color[at : at + 2], 16) for at in (1, 3, 5)]
    if all(part in _CUBE for part in parts):
        red, green, blue = (_CUBE.index(part) for part in parts)
        return 16 + 36 * red + 6 * green + blue
    grey, rest = divmod(parts[0] - 8, 10)
    return 232 + grey if len(set(parts)) == 1 and not rest and 0 <= grey < 24 else None
