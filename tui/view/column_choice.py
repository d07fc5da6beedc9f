"""The user's own columns: which, in which order. Always a list of keys, empty for the table's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tui.view.cells import Line, Span, fit
from tui.view.columns import BY_KEY
from tui.view.picture import Picture
from tui.view.placing import FIXED
from tui.view.rows import Row, Rows
from tui.view.title import screen_title

Choice = tuple[str, ...]
"""Keys of columns in order, the fixed ones first; empty: all of the table, as far as there is room."""


class ColumnStore(Protocol):
    """Where the choice is kept."""

    def load(self) -> Choice:
        """What was saved; empty where nothing was. ConfigError: it cannot be read, or names no column."""

    def save(self, choice: Choice) -> None:
        """Keep the choice; an empty one is forgotten. EnginetopError: it cannot be written."""


def listed(choice: Choice) -> Choice:
    """All columns as the picker lists them: the chosen ones in their order, the others in their usual places.

    That is after the column that it follows in the table, so that one that is hidden stays where it was.
    """
    found = list(choice or BY_KEY)
    for place, key in enumerate(BY_KEY):
        if key not in found:
            before = tuple(BY_KEY)[place - 1]
            found.insert(found.index(before) + 1, key)
    return tuple(found)


def toggled(choice: Choice, key: str) -> Choice:
    """The choice with a column taken out, or put where the picker lists it. A fixed column stays."""
    shown = choice or tuple(BY_KEY)
    if key in FIXED or key not in BY_KEY:
        return choice
    return tuple(one for one in listed(choice) if (one in shown) != (one == key))


def moved(choice: Choice, key: str, step: int) -> Choice:
    """The choice with a column one place to the right (1) or to the left (-1), never before the fixed."""
    shown = list(choice or tuple(BY_KEY))
    if key not in shown or key in FIXED:
        return choice
    place = shown.index(key)
    other = place + step
    if not len(FIXED) <= other < len(shown):
        return choice
    shown[place], shown[other] = shown[other], shown[place]
    return tuple(shown)


def choice_rows(choice: Choice, on_screen: Sequence[str], width: int) -> Rows[str]:
    """A row for each column, by its key. `on_screen`: those that the grid has now."""
    shown, now = frozenset(choice or BY_KEY), frozenset(on_screen)
    return Rows((Row(_line(key, key in shown, key in now), key, key) for key in listed(choice)), width)


def _line(key: str, chosen: bool, on_screen: bool) -> Line:
    """Whether it is chosen, its title, whether it is on the screen, what it means."""
    column = BY_KEY[key]
    box = "[=]" if key in FIXED else "[x]" if chosen else "[ ]"
    return (
        Span(" "),
        Span(f"{box} ", "key" if chosen else "dim"),
        Span(fit(column.title, 12), "title" if chosen else "dim"),
        Span(f"{'on screen' if on_screen else '':<10}", "dim"),
        Span(column.meaning, "text" if chosen else "dim"),
    )


def choice_title(picture: Picture, choice: Choice, width: int) -> Line:
    """What this list is, and whether it is the user's own."""
    said = f"{len(choice)} of {len(BY_KEY)}, in your order" if choice else "all, as far as there is room"
    return screen_title(picture, "columns", f" · {said}", width)
