"""Which columns a terminal has room for, in which order, and how wide they become."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from enginetop.fleet.errors import ConfigError
from tui.view.column import Column, Relevant
from tui.view.columns import BY_KEY, COLUMNS

MARKER_WIDTH = 1
FIXED = ("name", "state")
"""Columns that every choice begins with: without them no row can be told from another."""

_NAMES_FIRST_WIDTH = 100
"""From this width on, long names take their room before columns of low priority do."""


@dataclass(frozen=True, slots=True)
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
    anything for (`relevant`) take no room in either case. `keep`, the sorted column, stays. What is left over
    goes to columns that can use it, the name (`name_width` is the longest) first.
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
    reserve = _reserve(width, name_width)
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


def _reserve(width: int, name_width: int) -> int:
    """Cells beyond its minimum that a long name takes before columns of low priority are placed."""
    name = BY_KEY["name"]
    return max(0, min(name_width, name.most) - name.width) if width > _NAMES_FIRST_WIDTH else 0


def _grown(chosen: Sequence[Column], name_width: int, spare: int) -> dict[str, int]:
    """Widths by key: the columns that can use more share what is left over, in order of their priority."""
    widths = {column.key: column.width for column in chosen}
    for column in chosen:
        most = min(column.most, name_width) if column.key == "name" else column.most
        extra = max(0, min(spare, most - column.width))
        widths[column.key] += extra
        spare -= extra
    return widths
