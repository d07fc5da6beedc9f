"""From a palette (data) to what Textual and Rich draw with."""

from __future__ import annotations

from collections.abc import Mapping

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.theme import Theme

from themes.loader import Ink, Look, Palette
from tui.view.cells import Line, line_width, to_ascii


def textual_theme(palette: Palette) -> Theme:
    """The palette as a Textual theme, for the widgets that are not drawn by ink."""
    surfaces = palette.surfaces
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
    )


class Inks:
    """Draws lines as strips. `ascii_only` replaces every glyph beyond ASCII, cell for cell."""

    def __init__(self, palette: Palette, *, ascii_only: bool = False) -> None:
        self._styles: Mapping[Ink, Style] = {ink: _style(look) for ink, look in palette.looks.items()}
        self._ascii_only = ascii_only

    def strip(self, line: Line, width: int, *, selected: bool = False) -> Strip:
        """The line as a strip of exactly `width` cells."""
        if self._ascii_only:
            line = to_ascii(line)
        strip = Strip([Segment(span.text, self._styles[span.ink]) for span in line], line_width(line))
        strip = strip.adjust_cell_length(width)
        if selected:
            strip = strip.apply_style(self._styles["cursor"])
        return strip.simplify()


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
    if color is None or not color.startswith("ansi_"):
        return color
    return color.removeprefix("ansi_")
