"""Which columns a terminal has room for, in which order, and how wide they become."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from enginetop.fleet.errors import ConfigError
from enginetop.fleet.frozen import frozen
from tui.view.column import Column, Relevant
from tui.view.columns import BY_KEY, COLUMNS

MARKER_WIDTH = 1
FIXED = ("name", "state")
"""Columns that every choice begins with: without them no row can be told from another."""

_WIDE = 100
"""Beyond this width a name takes more cells than it needs to be told from others."""

_WHOLE_NAME_CELLS = 16
"""So long a name is shown whole on the narrowest terminal: an address, a short host."""


@frozen
class Placed:
    """A column with the width it got."""

    column: Column
    width: int


def read_choice(keys: Iterable[str], origin: str) -> tuple[str, ...]:
    """A user's columns, in order. ConfigError, one line with `origin`: one of them is not known, or twice."""
    chosen = tuple(keys)
    for position, key in enumerate(chosen):
        if key not in BY_KEY:
            raise ConfigError(f"{origin}: no column is called {key!r}; there are: {' '.join(BY_KEY)}")
        if key in chosen[:position]:
            raise ConfigError(f"{origin}: column {key!r} is named twice")
    return (*FIXED, *(key for key in chosen if key not in FIXED))


def place_columns(
    width: int,
    relevant: frozenset[Relevant],
    name_width: int,
    *,
    flat: bool,
    keep: str | None = None,
    choice: Sequence[str] = (),
) -> tuple[Placed, ...]:
    """The columns that fit in `width` cells, in screen order.

    `choice`: the user's own columns and their order, all of the table when empty; those that no replica has
    anything for (`relevant`) take no room in either case. `keep`, the sorted column, stays. Names have their
    room (`name_width`, see `room_of_names`) first: no figure is of help where names look alike. What is left
    over goes to columns that can use it.
    A terminal too narrow for name and state shows what part of them fits.
    """
    order = [BY_KEY[key] for key in choice] if choice else list(COLUMNS)
    wanted = [
        column
        for column in order
        if (flat or not column.flat_only) and (column.relevant is None or column.relevant in relevant)
    ]
    chosen: list[Column] = []
    room = width - MARKER_WIDTH
    ranked = sorted(wanted, key=lambda column: (column.priority > 0, column.key != keep, column.priority))
    reserve = _reserve(name_width)
    for column in ranked:
        needed = column.width + (1 if chosen else 0) + (reserve if column.key == "name" else 0)
        if needed > room:
            if column.priority == 0 and not chosen:
                return (Placed(column, max(room, 0)),)
            break
        chosen.append(column)
        room -= needed
    widths = _grown(chosen, name_width, room + reserve)
    return tuple(Placed(column, widths[column.key]) for column in wanted if column in chosen)


def room_of_names(width: int) -> tuple[int, int]:
    """Least and most cells of the column of names in a grid of `width` cells."""
    most = BY_KEY["name"].most
    return (most if width > _WIDE else _WHOLE_NAME_CELLS), most


def _reserve(name_width: int) -> int:
    """Cells beyond its minimum that the name takes before columns of low priority are placed."""
    name = BY_KEY["name"]
    return max(0, min(name_width, name.most) - name.width)


def _grown(chosen: Sequence[Column], name_width: int, spare: int) -> dict[str, int]:
    """Widths by key: the columns that can use more share what is left over, in order of their priority."""
    widths = {column.key: column.width for column in chosen}
    for column in chosen:
        most = min(column.most, name_width) if column.key == "name" else column.most
        extra = max(0, min(spare, most - column.width))
        widths[column.key] += extra
        spare -= extra
    return widths
