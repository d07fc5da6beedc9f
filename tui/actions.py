"""The one table of what a user can do. Keys, footer and help are all read from it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum


class Place(StrEnum):
    """The screens that actions belong to. `ANYWHERE` holds on all of them."""

    ANYWHERE = "anywhere"
    FLEET = "fleet"
    REPLICA = "replica"
    HELP = "help"


@dataclass(frozen=True, slots=True)
class Action:
    """One thing a user can do.

    `name` is the Textual action (`action_<name>` on the screen or the app). The first of `keys` is the one
    that is shown; `shown` overrides how it is written. `footer`: rank among the hints at the foot of the
    screen, None to leave it to the help. `at_once`: done before the next key is read, for what moves the
    focus and must not lose keys that are typed ahead.
    """

    name: str
    keys: tuple[str, ...]
    label: str
    meaning: str
    places: tuple[Place, ...]
    footer: int | None = None
    shown: str = ""
    at_once: bool = False

    @property
    def key_text(self) -> str:
        """How the footer and the help write the key."""
        return self.shown or self.keys[0]


_ANYWHERE = (Place.ANYWHERE,)
_FLEET = (Place.FLEET,)
_REPLICA = (Place.REPLICA,)
_READING = (Place.REPLICA, Place.HELP)
_DOWN, _UP = ("down", "j"), ("up", "k")
_PAGE_DOWN, _PAGE_UP = ("pagedown", "ctrl+d"), ("pageup", "ctrl+u")
_HOME, _END = ("g", "home"), ("G", "end")

ACTIONS: tuple[Action, ...] = (
    Action("open", ("enter",), "detail", "all about the selected replica", _FLEET, 1),
    Action("filter", ("slash",), "filter", "show only what matches", _FLEET, 2, "/", True),
    Action("sort_next", ("s",), "sort", "sort by the next column, in the end trouble first again", _FLEET, 3),
    Action("sort_turn", ("S",), "turn", "turn the order around", _FLEET, 7),
    Action("back", ("escape",), "clear", "clear the filter; with none, the sorting", _FLEET, shown="esc"),
    Action("back", ("escape",), "back", "one screen back", _READING, 1, "esc"),
    Action("cursor(1)", _DOWN, "down", "next replica", _FLEET, shown="↓ j"),
    Action("cursor(-1)", _UP, "up", "previous replica", _FLEET, shown="↑ k"),
    Action("cursor_page(1)", _PAGE_DOWN, "page down", "one page down", _FLEET, shown="PgDn ctrl+d"),
    Action("cursor_page(-1)", _PAGE_UP, "page up", "one page up", _FLEET, shown="PgUp ctrl+u"),
    Action("cursor_end(-1)", _HOME, "first", "first replica", _FLEET, shown="g Home"),
    Action("cursor_end(1)", _END, "last", "last replica", _FLEET, shown="G End"),
    Action("read(1)", _DOWN, "down", "scroll one line down", _READING, shown="↓ j"),
    Action("read(-1)", _UP, "up", "scroll one line up", _READING, shown="↑ k"),
    Action("read_page(1)", _PAGE_DOWN, "page down", "scroll one page down", _READING, shown="PgDn ctrl+d"),
    Action("read_page(-1)", _PAGE_UP, "page up", "scroll one page up", _READING, shown="PgUp ctrl+u"),
    Action("read_end(-1)", _HOME, "top", "scroll to the first line", _READING, shown="g Home"),
    Action("read_end(1)", _END, "end", "scroll to the last line", _READING, shown="G End"),
    Action("neighbour(1)", ("n",), "next", "the next replica of the list", _REPLICA, 2),
    Action("neighbour(-1)", ("p",), "previous", "the previous replica of the list", _REPLICA, 3),
    Action("pause", ("space",), "pause", "freeze the picture; collection goes on", _ANYWHERE, 4),
    Action("refresh_now", ("r",), "refresh", "scrape every target now", _ANYWHERE, 8),
    Action("help", ("question_mark",), "help", "this page", _ANYWHERE, 5, "?"),
    Action("leave", ("q", "ctrl+c"), "quit", "end enginetop", _ANYWHERE, 6),
)


def actions_at(place: Place) -> Iterator[Action]:
    """The actions of one screen, those that hold anywhere last."""
    yield from (action for action in ACTIONS if place in action.places)
    if place is not Place.ANYWHERE:
        yield from actions_at(Place.ANYWHERE)
