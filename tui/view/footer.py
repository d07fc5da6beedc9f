"""The last line of every screen: the keys of the place, and what part of it is in sight."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from enginetop.fleet.frozen import frozen
from tui.actions import ACTIONS, Action, Place, actions_at
from tui.view.cells import Line, Span, line_width, plain, spread
from tui.view.picture import Picture


@frozen
class KeyHint:
    """A key as it is written, and in a word what it does."""

    key: str
    label: str


def actions_now(picture: Picture) -> Sequence[Action]:
    """The actions; while a picture stands still the way back to the live one comes first."""
    if picture.paused_seconds is None:
        return picture.actions
    return [
        replace(action, label="live", footer=0) if action.name == "pause" else action
        for action in picture.actions
    ]


def footer_hints(
    place: Place,
    suggestions: int = 0,
    offers: Callable[[Action], bool] = lambda action: not action.dangerous,
    actions: Sequence[Action] = ACTIONS,
) -> list[KeyHint]:
    """The footer's hints for one screen, most useful first, of what it `offers` at present.

    The key of the tuners tells how many suggestions there are.
    """
    ranked = sorted(
        (action for action in actions_at(place, actions) if action.footer is not None and offers(action)),
        key=lambda action: (action.footer or 0, action.name),
    )
    count = f"·{suggestions}" if suggestions else ""
    return [
        KeyHint(action.key_text, action.label + (count if action.name == "tuners" else ""))
        for action in ranked
    ]


def sight_text(in_sight: range, lines: int) -> str:
    """Which lines of so many are in sight: `1–17 of 64`; nothing when all are."""
    return "" if len(in_sight) >= lines else f"{in_sight.start + 1}–{in_sight.stop} of {lines}"


def footer_line(hints: Sequence[KeyHint], right: str, width: int) -> Line:
    """Keys with what they do, as many as fit; `right` (where one is in the list) at the right edge."""
    items = [(Span(hint.key, "key"), Span(f" {hint.label}", "dim")) for hint in hints]
    room = width - len(right) - 2
    left = _footer_items(items, room)
    return spread((Span(" "), *left), plain(f"{right} ", "dim") if right else (), width)


def _footer_items(items: Sequence[Line], room: int) -> Line:
    line: list[Span] = []
    used = 1
    for item in items:
        cells = line_width(item) + 2
        if used + cells > room:
            break
        line += (*item, Span("  "))
        used += cells
    return tuple(line)
