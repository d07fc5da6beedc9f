"""What stands in the place of the grid's rows when there are none, and the line of the filter."""

from __future__ import annotations

from tui.view.cells import Line, Span, clip, plain, spread
from tui.view.picture import Picture


def waiting_lines(picture: Picture, width: int) -> list[Line]:
    """The body of the screen before the first snapshot: what will be asked."""
    if picture.snapshot is not None:
        return []
    return [
        clip(
            (Span(f"  {target.name}"), Span("" if target.name in target.url else f"  {target.url}", "dim")),
            width,
        )
        for target in picture.targets
    ]


def no_rows_line(width: int, *, filtered: bool) -> Line:
    """Why the grid is empty."""
    said = " no replica matches the filter; esc clears it" if filtered else " no replicas"
    return clip(plain(said, "dim"), width)


def search_line(text: str, found: str, width: int) -> Line:
    """What is searched or filtered for, and how much of what there is it leaves: `3 of 12`."""
    return spread((Span(" / ", "key"), Span(text)), plain(f"{found} · esc clears ", "dim"), width)


def mistake_line(mistake: str, width: int) -> Line:
    """Why what is typed filters nothing."""
    return clip(plain(f" / {mistake}", "warn"), width)
