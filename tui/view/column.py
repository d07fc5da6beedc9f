"""What a column of the fleet grid is, and what its cells are drawn from."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from enginetop.fleet.frozen import frozen
from enginetop.fleet.model import Quality
from enginetop.fleet.snapshot import ReplicaSnapshot
from themes.loader import Ink
from tui.view.cells import Line, plain, width_of
from tui.view.severity import Condition

Value = float | str | None
"""What is sorted and filtered by, in base units; None: not known."""
Read = Callable[[ReplicaSnapshot], Value]
Draw = Callable[["GridRow", int], Line]
"""Draws a cell of so many terminal cells."""
Relevant = Callable[[ReplicaSnapshot], bool]
"""Whether a replica has anything for a column."""

TREND_STEP_SECONDS = 10.0
"""Time that one cell of a trend column stands for."""


@frozen
class GridRow:
    """What a cell is drawn from.

    `at`: Unix time of the picture. `name`: as much of it as is shown, with `marks` beside it (it restarted,
    it is set up unlike its pool). `old`: whether its numbers are. `tops`: where the scale of a trend ends, by
    signal, in the signal's unit.
    """

    replica: ReplicaSnapshot
    condition: Condition
    name: str
    at: float
    old: bool
    tops: Mapping[str, float]
    marks: str = ""


@frozen
class Column:
    """One column.

    `priority`: columns with a larger number go first when the terminal is narrow. `most`: the width up to
    which it takes what is left over; 0: its own. `read` is the value to sort and filter by, in base units
    (None sorts last). `descending`: the direction that an operator wants first. `relevant` None: always; else
    the column exists only when some replica passes. `flat_only`: group headers say it already.
    """

    key: str
    title: str
    width: int
    priority: int
    meaning: str
    draw: Draw
    read: Read
    right: bool = True
    descending: bool = True
    sortable: bool = True
    flat_only: bool = False
    relevant: Relevant | None = None
    most: int = 0


def is_old(replica: ReplicaSnapshot, at: float, interval_seconds: float) -> bool:
    """Whether the numbers are older than two of the target's own intervals, or a look since has failed."""
    seen = replica.scraped_at
    spacing = max(interval_seconds, replica.spacing_seconds or 0.0)
    return seen is not None and (replica.in_doubt or at - seen > 2 * spacing)


def no_value(_replica: ReplicaSnapshot) -> Value:
    """For columns that nobody sorts by."""
    return None


def stale_ink(row: GridRow, quality: Quality, ink: Ink) -> Ink:
    """Old numbers are dim, whatever they say."""
    return "dim" if quality is Quality.STALE or row.old else ink


def figure(row: GridRow, name: str, text: str, width: int, ink: Ink) -> Line:
    """A number, with an arrow before it where it stands out from its like (`name` as in `Outlier.signal`)."""
    for outlier in row.replica.outliers:
        if outlier.signal == name:
            return plain(_pointed("↑" if outlier.value > outlier.median else "↓", text, width), _odd(ink))
    return plain(text, ink)


def _pointed(arrow: str, text: str, width: int) -> str:
    if width_of(text) >= width:
        whole, _, rest = text.partition(".")
        text = whole + rest.lstrip("0123456789")
    return arrow + text if width_of(text) < width else text


def _odd(ink: Ink) -> Ink:
    return "info" if ink == "text" else ink
