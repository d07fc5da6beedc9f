"""The one table of what a user can do. Keys, footer and help are all read from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum

from enginetop.fleet.frozen import frozen
from tui.key_names import written


class Place(StrEnum):
    """The screens that actions belong to. `ANYWHERE` holds on all of them."""

    ANYWHERE = "anywhere"
    FLEET = "fleet"
    REPLICA = "replica"
    RAW = "raw page"
    BESIDE = "side by side"
    LATENCY = "latency"
    SPECULATION = "speculation"
    REASONING = "reasoning"
    GPU = "gpu"
    ALERTS = "alerts"
    WHY = "why"
    HISTORY = "alert history"
    TUNERS = "tuners"
    EVENTS = "events"
    COLUMNS = "columns"
    SUGGESTION = "suggestion"
    CHANGE = "change"
    PAST = "past changes"
    QUIET = "page"
    WHAT_IF = "what if"
    COMPARE = "comparison"
    PALETTE = "commands"
    CONFIRM = "confirmation"
    HELP = "help"


@frozen
class Action:
    """One thing a user can do.

    `name` is the Textual action (`action_<name>` on the screen or the app). The first of `keys` is the one
    that is shown; `shown` overrides how it is written. `footer`: rank among the hints at the foot of the
    screen, None to leave it to the help. `at_once`: done before the next key is read, for what moves the
    focus and must not lose keys that are typed ahead. `dangerous`: changes an engine, after a confirmation;
    such actions do not exist while everything is read-only.
    """

    name: str
    keys: tuple[str, ...]
    label: str
    meaning: str
    places: tuple[Place, ...]
    footer: int | None = None
    shown: str = ""
    at_once: bool = False
    dangerous: bool = False

    @property
    def word(self) -> str:
        """What the command line and the config's `[keys]` call it; actions of one word share their keys."""
        return _WORDS.get(self.name) or self.name.replace("_", "-")

    @property
    def key_text(self) -> str:
        """How the footer and the help write the key."""
        return self.shown or written(self.keys[0])


_WORDS: Mapping[str, str] = {
    "cursor(1)": "down",
    "cursor(-1)": "up",
    "cursor_page(1)": "page-down",
    "cursor_page(-1)": "page-up",
    "cursor_end(-1)": "first",
    "cursor_end(1)": "last",
    "read(1)": "down",
    "read(-1)": "up",
    "read_page(1)": "page-down",
    "read_page(-1)": "page-up",
    "read_end(-1)": "first",
    "read_end(1)": "last",
    "neighbour(1)": "next",
    "neighbour(-1)": "previous",
    "other(1)": "next",
    "other(-1)": "previous",
    "silence(1800)": "silence",
    "silence(7200)": "silence-long",
    "undo_quiet": "undo",
    "past": "past-changes",
    "refresh_now": "refresh",
    "travel(-1)": "earlier",
    "travel(1)": "later",
    "travel_far(-1)": "minute-back",
    "travel_far(1)": "minute-on",
    "alert_event(-1)": "alert-before",
    "alert_event(1)": "alert-after",
    "export_view": "export",
    "page('latency')": "latency",
    "page('speculation')": "speculation",
    "page('reasoning')": "reasoning",
    "page('gpu')": "gpu",
    "page('events')": "events",
    "next_kind": "kind",
    "shift_column(-1)": "column-left",
    "shift_column(1)": "column-right",
    "suspend_process": "suspend",
    "leave": "quit",
}
"""Words of actions whose name says it less well."""


_ANYWHERE = (Place.ANYWHERE,)
_FLEET = (Place.FLEET,)
_REPLICA = (Place.REPLICA,)
_RAW = (Place.RAW,)
_BESIDE = (Place.BESIDE,)
_TUNERS = (Place.TUNERS,)
_ALERTS = (Place.ALERTS,)
_EVENTS = (Place.EVENTS,)
_PAGES = (Place.SPECULATION, Place.REASONING, Place.GPU, Place.EVENTS, Place.HISTORY)
_OPENING = (Place.FLEET, *_PAGES, Place.ALERTS, Place.TUNERS, Place.PAST)
_COLUMNS = (Place.COLUMNS,)
_LISTS = (*_OPENING, Place.PALETTE, Place.COLUMNS)
_READING = (
    Place.REPLICA,
    Place.RAW,
    Place.BESIDE,
    Place.WHY,
    Place.LATENCY,
    Place.SUGGESTION,
    Place.CHANGE,
    Place.QUIET,
    Place.COMPARE,
    Place.HELP,
)
_BACK = (*_READING, *_PAGES, Place.ALERTS, Place.TUNERS, Place.PAST, Place.COLUMNS)
TYPING = (Place.CONFIRM, Place.PALETTE, Place.WHAT_IF)
"""Screens with an entry: keys belong to it."""
_DOWN, _UP = ("down", "j"), ("up", "k")
_PAGE_DOWN, _PAGE_UP = ("pagedown", "ctrl+d"), ("pageup", "ctrl+u")
_HOME, _END = ("g", "home"), ("G", "end")

ACTIONS: tuple[Action, ...] = (
    Action("open", ("enter",), "detail", "all about the selected row", _OPENING, 1),
    Action("open", ("enter",), "do it", "carry out the selected command", (Place.PALETTE,), 1),
    Action("filter", ("slash",), "filter", "show only what matches", _FLEET, 2, at_once=True),
    Action("sort_next", ("s",), "sort", "sort by the next column, in the end trouble first again", _FLEET, 3),
    Action("sort_turn", ("S",), "turn", "turn the order around", _FLEET, 8),
    Action("columns", ("c",), "columns", "choose columns and their order; they are kept", _FLEET, 11),
    Action("open", ("enter",), "toggle", "show the column, or hide it", _COLUMNS, 1),
    Action("shift_column(-1)", ("left",), "left", "move the column to the left", _COLUMNS, 3, "←"),
    Action("shift_column(1)", ("right",), "right", "move the column to the right", _COLUMNS, 4, "→"),
    Action("own_columns", ("d",), "default", "the columns that fit, in the usual order", _COLUMNS, 9),
    Action("back", ("escape",), "clear", "clear the filter; with none, the sorting", _FLEET),
    Action("back", ("escape",), "back", "one screen back", _BACK, 2),
    Action("back", ("escape",), "leave it", "go back without doing it", TYPING, 2),
    Action("cursor(1)", _DOWN, "down", "next row", _LISTS, shown="↓ j"),
    Action("cursor(-1)", _UP, "up", "previous row", _LISTS, shown="↑ k"),
    Action("cursor_page(1)", _PAGE_DOWN, "page down", "one page down", _LISTS, shown="PgDn ctrl+d"),
    Action("cursor_page(-1)", _PAGE_UP, "page up", "one page up", _LISTS, shown="PgUp ctrl+u"),
    Action("cursor_end(-1)", _HOME, "first", "first row", _LISTS, shown="g Home"),
    Action("cursor_end(1)", _END, "last", "last row", _LISTS, shown="G End"),
    Action("read(1)", _DOWN, "down", "scroll one line down", _READING, shown="↓ j"),
    Action("read(-1)", _UP, "up", "scroll one line up", _READING, shown="↑ k"),
    Action("read_page(1)", _PAGE_DOWN, "page down", "scroll one page down", _READING, shown="PgDn ctrl+d"),
    Action("read_page(-1)", _PAGE_UP, "page up", "scroll one page up", _READING, shown="PgUp ctrl+u"),
    Action("read_end(-1)", _HOME, "top", "scroll to the first line", _READING, shown="g Home"),
    Action("read_end(1)", _END, "end", "scroll to the last line", _READING, shown="G End"),
    Action("neighbour(1)", ("n",), "next", "the next replica of the list", _REPLICA, 3),
    Action("neighbour(-1)", ("p",), "previous", "the previous replica of the list", _REPLICA, 4),
    Action("other(1)", ("n",), "next", "the next one beside it, those of its pool first", _BESIDE, 3),
    Action("other(-1)", ("p",), "previous", "the previous one beside it", _BESIDE, 4),
    Action("tune", ("t",), "advice", "what the tuners say of this replica", _REPLICA, 5),
    Action("beside", ("v",), "beside", "another replica side by side with it", _REPLICA, 11),
    Action("raw_page", ("w",), "raw page", "its last page as it was served", _REPLICA, 11),
    Action("search", ("slash",), "search", "only the lines with these words", _RAW, 1, at_once=True),
    Action("acknowledge", ("a",), "ack", "say that you look after it, until it is over", _ALERTS, 2),
    Action("note", ("n",), "ack with a note", "the same, with a note for others", _ALERTS, at_once=True),
    Action("silence(1800)", ("s",), "silence", "silence its rule at its target for 30 min", _ALERTS, 3),
    Action("silence(7200)", ("S",), "silence 2 h", "silence its rule at its target for 2 h", _ALERTS),
    Action(
        "silence_words", ("c",), "custom", "silence other rules, targets and times", _ALERTS, 10,
        at_once=True,
    ),
    Action("why", ("w",), "why", "its rule, its value over time, what keeps it quiet", _ALERTS, 8),
    Action("history", ("h",), "history", "what began to fire, also what is over", _ALERTS, 9),
    Action("began", ("J",), "jump", "the fleet as it was when the alert began", _ALERTS, 9),
    Action("undo_quiet", ("u",), "undo", "take back the acknowledgement, else the silences", _ALERTS, 9),
    Action("next_kind", ("f",), "kind", "only the next kind of events, in the end all again", _EVENTS, 3),
    Action("past", ("h",), "past", "past changes with their verdicts", _TUNERS, 4),
    Action(
        "what_if", ("w",), "what if", "what the knob would do at a value that you type",
        (Place.TUNERS, Place.SUGGESTION, Place.QUIET), 3, at_once=True,
    ),
    Action(
        "apply", ("A",), "apply", "try the change on the canary, after you have typed its name",
        (Place.SUGGESTION,), 1, dangerous=True,
    ),
    Action(
        "roll_back", ("K",), "roll back", "undo the change that is under way, now",
        (Place.TUNERS, Place.CHANGE), 1, dangerous=True,
    ),
    Action("confirm", ("enter",), "confirm", "do it, once the word is typed", (Place.CONFIRM,), 1),
    Action("fleet", ("1",), "fleet", "back to the fleet", _ANYWHERE),
    Action("replica", ("2",), "replica", "the replica under the fleet's cursor", _ANYWHERE),
    Action("page('latency')", ("3",), "latency", "percentiles, attainment, burn, load curve", _ANYWHERE, 17),
    Action("page('speculation')", ("4",), "spec", "drafts: how many, how many taken", _ANYWHERE, 18),
    Action("page('reasoning')", ("5",), "reason", "reasoning tokens against their budgets", _ANYWHERE, 19),
    Action("page('gpu')", ("6",), "gpu", "every GPU, and who runs on it", _ANYWHERE, 20),
    Action("alerts", ("7",), "alerts", "what fires and what is pending; acknowledge, silence", _ANYWHERE, 8),
    Action("tuners", ("8",), "tune", "suggestions, changes under way, past changes", _ANYWHERE, 5),
    Action("page('events')", ("9",), "events", "what happened, newest first", _ANYWHERE, 21),
    Action("pause", ("space",), "pause", "freeze the picture, collection goes on; again: live", _ANYWHERE, 9),
    Action("refresh_now", ("r",), "refresh", "scrape every target now", _ANYWHERE, 10),
    Action("travel(-1)", ("left_square_bracket",), "earlier", "one picture back in time", _ANYWHERE, 12),
    Action("travel(1)", ("right_square_bracket",), "later", "one picture on; at the end: live", _ANYWHERE),
    Action("travel_far(-1)", ("left_curly_bracket",), "minute back", "one minute back in time", _ANYWHERE),
    Action("travel_far(1)", ("right_curly_bracket",), "minute on", "one minute on", _ANYWHERE),
    Action("alert_event(-1)", ("left_parenthesis",), "alert before", "to the last alert's begin", _ANYWHERE),
    Action("alert_event(1)", ("right_parenthesis",), "alert after", "to the next alert's begin", _ANYWHERE),
    Action("bookmark", ("b",), "bookmark", "mark this instant: A first, then B", _ANYWHERE),
    Action("compare", ("B",), "compare", "what differs between the bookmarks A and B", _ANYWHERE),
    Action("faster", ("plus",), "faster", "play the recording faster", _ANYWHERE, 11),
    Action("slower", ("minus",), "slower", "play the recording slower", _ANYWHERE),
    Action(
        "command_line", ("colon",), "command", "type a command; tab completes it", _ANYWHERE, 13,
        at_once=True,
    ),
    Action("palette", ("ctrl+p",), "commands", "choose among all commands", _ANYWHERE, 14, at_once=True),
    Action("copy", ("y",), "copy", "copy the row or the page (OSC 52)", _ANYWHERE, 16),
    Action(
        "export_view", ("x",), "export", "write this view to a file: svg, csv or json", _ANYWHERE, 15,
        at_once=True,
    ),
    Action("suspend_process", ("ctrl+z",), "suspend", "stop everything until `fg`", _ANYWHERE),
    Action("help", ("question_mark",), "help", "all keys, and what the words mean", _ANYWHERE, 6),
    Action("leave", ("q", "ctrl+c"), "quit", "end enginetop", _ANYWHERE, 7),
)  # fmt: skip


def actions_at(place: Place, actions: Sequence[Action] = ACTIONS) -> Iterator[Action]:
    """The actions of one screen, those that hold anywhere last; where one types nothing else holds."""
    yield from (action for action in actions if place in action.places)
    if place not in (Place.ANYWHERE, *TYPING):
        yield from actions_at(Place.ANYWHERE, actions)
