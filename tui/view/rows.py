"""Lists: lines of which some are rows that the cursor may stand on, each of them standing for something."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from enginetop.fleet.frozen import frozen
from tui.view.cells import Line, Span, clip, merge

Subject = TypeVar("Subject", covariant=True)
"""What the rows of a list stand for."""


@frozen
class Row(Generic[Subject]):
    """One line. `key` is that of the row it belongs to, None for a heading; `about` what the row stands for.

    `line` may be a call that makes it, once it comes into sight; its first cell is left blank for the cursor.
    `more`: a further line of the row above, which the cursor passes over. Keys outlast the picture.
    """

    line: Line | Callable[[], Line]
    key: str | None = None
    about: Subject | None = None
    more: bool = False


class Rows(Generic[Subject]):
    """Rows for one width, as a list draws them. The marker of the cursor takes each line's first cell."""

    def __init__(self, rows: Iterable[Row[Subject]], width: int) -> None:
        self._rows = tuple(rows)
        self._width = width
        self._positions = {row.key: place for place, row in enumerate(self._rows) if row.key and not row.more}

    def __len__(self) -> int:
        return len(self._rows)

    def line(self, index: int, *, selected: bool = False) -> Line:
        """The line at `index`."""
        made = self._rows[index].line
        line = made() if callable(made) else made
        if selected and line and line[0].text.startswith(" "):
            first = line[0]
            line = (Span("▸", "title"), Span(first.text[1:], first.ink), *line[1:])
        return merge(clip(line, self._width))

    def key(self, index: int) -> str | None:
        """The key of the row that the line belongs to; None for a heading."""
        return self._rows[index].key

    def position(self, key: str) -> int | None:
        """The line of the row with this key; None when there is none."""
        return self._positions.get(key)

    def is_row(self, index: int) -> bool:
        """Whether the cursor may stand on the line."""
        row = self._rows[index]
        return row.key is not None and not row.more

    def about(self, key: str) -> Subject | None:
        """What the row with this key stands for; None where it stands for nothing, or there is none."""
        position = self._positions.get(key)
        return None if position is None else self._rows[position].about
