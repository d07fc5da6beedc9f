"""Lines of a screen as data: spans of plain text with an ink, measured in terminal cells.

Nothing here knows a widget or a colour. Text is never markup. A wide glyph is never split: where only half of
it would fit, a space stands in its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size, split_graphemes

from themes.loader import Ink

ELLIPSIS = "…"
UNKNOWN = "–"


class Span(NamedTuple):
    """A run of text of one meaning."""

    text: str
    ink: Ink = "text"


Line = tuple[Span, ...]
EMPTY_LINE: Line = ()
SEPARATOR = Span(" · ", "dim")


def width_of(text: str) -> int:
    """Terminal cells that `text` takes."""
    return len(text) if text.isascii() else cell_len(text)


def line_width(line: Iterable[Span]) -> int:
    """Terminal cells that a line takes."""
    width = 0
    for text, _ in line:
        width += len(text) if text.isascii() else cell_len(text)
    return width


def line_text(line: Iterable[Span]) -> str:
    """The line without its inks."""
    return "".join(span.text for span in line)


def plain(text: str, ink: Ink = "text") -> Line:
    """A line of one span."""
    return (Span(text, ink),) if text else EMPTY_LINE


def fit(text: str, width: int) -> str:
    """`text` in exactly `width` cells: padded on the right, or cut with an ellipsis."""
    return pad(cut_end(text, width), width)


def pad(text: str, width: int, *, right: bool = False) -> str:
    """Fill `text` with spaces up to `width` cells; `right` puts the text at the right edge."""
    space = " " * (width - width_of(text))
    return space + text if right else text + space


def cut_end(text: str, width: int) -> str:
    """At most `width` cells of `text`; an ellipsis says that the end is missing."""
    if width_of(text) <= width:
        return text
    return _head(text, width - 1) + ELLIPSIS if width > 0 else ""


def cut_start(text: str, width: int) -> str:
    """At most `width` cells of `text`; an ellipsis says that the start is missing."""
    if width_of(text) <= width:
        return text
    return ELLIPSIS + _tail(text, width - 1) if width > 0 else ""


def cut_middle(text: str, width: int) -> str:
    """At most `width` cells of `text`, the middle left out: names differ at their ends."""
    if width_of(text) <= width:
        return text
    if width < 4:
        return cut_end(text, width)
    tail = (width - 1) * 2 // 3
    return _head(text, width - 1 - tail) + ELLIPSIS + _tail(text, tail)


def _head(text: str, width: int) -> str:
    if text.isascii():
        return text[:width]
    return set_cell_size(text, width) if width_of(text) > width else text


def _tail(text: str, width: int) -> str:
    if text.isascii():
        return text[-width:] if width > 0 else ""
    spans, _ = split_graphemes(text)
    start, used = len(text), 0
    for begin, _end, cells in reversed(spans):
        if used + cells > width:
            break
        start, used = begin, used + cells
    return " " * (width - used) + text[start:]


def wrap_text(text: str, width: int) -> list[str]:
    """`text` in lines of at most `width` cells, broken at spaces; a word longer than a line is cut."""
    if width <= 0:
        return []
    lines = [""]
    for word in text.split(" "):
        joined = f"{lines[-1]} {word}" if lines[-1] else word
        if width_of(joined) <= width:
            lines[-1] = joined
        elif lines[-1]:
            lines.append(cut_end(word, width))
        else:
            lines[-1] = cut_end(word, width)
    return lines


def printable(text: str) -> str:
    """`text` with a `?` for every character that a terminal could take as a command."""
    return text if text.isprintable() else "".join(sign if sign.isprintable() else "?" for sign in text)


def clip(line: Iterable[Span], width: int) -> Line:
    """At most `width` cells of a line; an ellipsis says that the end is missing."""
    line = tuple(line)
    if line_width(line) <= width:
        return line
    kept: list[Span] = []
    room = width
    for span in line:
        cells = width_of(span.text)
        if cells >= room:
            # One cell is kept for the ellipsis: the line is known to go on.
            text = cut_end(span.text, room) if cells > room else _head(span.text, room - 1) + ELLIPSIS
            if room > 0:
                kept.append(Span(text, span.ink))
            break
        kept.append(span)
        room -= cells
    return tuple(kept)


def merge(line: Iterable[Span]) -> Line:
    """Join neighbours of one ink: each change of ink costs some forty bytes on the wire."""
    merged: list[Span] = []
    for span in line:
        if not span.text:
            continue
        if merged and merged[-1].ink == span.ink:
            merged[-1] = Span(merged[-1].text + span.text, span.ink)
        else:
            merged.append(span)
    return tuple(merged)


def spread(left: Sequence[Span], right: Sequence[Span], width: int) -> Line:
    """`left` at the left edge and `right` at the right edge; the left one gives way when both do not fit."""
    right_cells = line_width(right)
    if right_cells + 1 >= width:
        return clip(right if right_cells else left, width)
    shown = clip(left, width - right_cells - 1 if right_cells else width)
    gap = width - line_width(shown) - right_cells
    return merge((*shown, Span(" " * gap), *right)) if right_cells else merge(shown)


def join_while_fitting(items: Sequence[Line], width: int) -> Line:
    """The first whole items that fit in `width`, with dots between them; the rest is left out."""
    line: list[Span] = []
    used = 0
    for item in items:
        lead = (SEPARATOR,) if line else ()
        cells = line_width((*lead, *item))
        if used + cells > width:
            break
        line += (*lead, *item)
        used += cells
    return tuple(line)


def wrap_items(items: Sequence[Line], width: int, separator: Span, others: int = 0) -> Line:
    """As many whole items as fit in `width`, joined; what is left out is counted at the end (`+3 more`).

    `others` are left out in any case.
    """
    whole = merge(
        span for number, item in enumerate(items) for span in ((separator, *item) if number else item)
    )
    if not others and line_width(whole) <= width:
        return whole
    used: list[Span] = []
    room = width
    for number, item in enumerate(items):
        left = len(items) + others - number - 1
        lead = (separator,) if number else ()
        more = width_of(f"{separator.text}+{left} more") if left else 0
        if line_width(lead) + line_width(item) + more > room:
            if not used:
                return clip(item, width)
            rest = plain(f"{separator.text}+{left + 1} more", separator.ink)
            return merge(clip((*used, *rest), width))
        used += (*lead, *item)
        room -= line_width(lead) + line_width(item)
    return merge((*used, *plain(f"{separator.text}+{others} more" if others else "", separator.ink)))


ASCII_TWINS = str.maketrans(
    {
        **dict(zip("▁▂▃▄▅▆▇█", "__.-=+*#", strict=True)),
        **dict(zip("▏▎▍▌▋▊▉", "   ++++", strict=True)),
        **dict(zip("●▲✖◌○◆▸▾↓↑←↻≠", "oAX~.!>vv^<R#", strict=True)),
        **dict(zip("–…·≥≤×°µ─→", "-~|><x'u->", strict=True)),
        **dict(zip("┊▴◄∞", "|^<*", strict=True)),
    }
)
"""What stands for each of our glyphs where there is nothing but ASCII; states have letters of their own."""


def to_ascii(line: Line) -> Line:
    """The same line in ASCII, cell for cell, for terminals whose font lacks our glyphs."""
    return tuple(span if span.text.isascii() else Span(_ascii(span.text), span.ink) for span in line)


def _ascii(text: str) -> str:
    text = text.translate(ASCII_TWINS)
    if text.isascii():
        return text
    spans, _ = split_graphemes(text)
    return "".join(
        text[begin:end] if text[begin:end].isascii() else "?" * cells for begin, end, cells in spans
    )
