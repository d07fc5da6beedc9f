"""The help page, written from the tables of actions, columns and conditions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tui.actions import ACTIONS, Action, Place
from tui.view.cells import EMPTY_LINE, Line, Span, clip, line_width, pad, plain, width_of, wrap_text
from tui.view.columns import COLUMNS
from tui.view.query import FILTER_HELP
from tui.view.severity import GLYPH_OF, INK_OF, Severity

_SEVERITY_WORDS = {
    Severity.OK: "serving",
    Severity.QUIET: "nothing to do, or nothing known yet",
    Severity.INFO: "worth a look: slow, outlier, loading, draining, restarted, no answer to one look",
    Severity.WARN: "needs you: look at it",
    Severity.CRIT: "needs you: does not serve",
}

MOUSE = (
    ("click", "on a row: select it; on the selected row: open it"),
    ("click", "on a column's title in the fleet: sort by it; again: the other way round"),
    ("wheel", "scroll"),
)
"""What the mouse does; `--no-mouse` leaves it to the terminal."""

_MARKS = (
    ("–", "not known or not exported; never 0"),
    ("12?", "an estimate, or a suspect value"),
    ("≥12", "beyond the last bucket of the engine's histogram: at least that"),
    ("↑12", "stands out from the median of its like: above it; ↓ below it"),
    ("≠", "a knob or a version is not that of most of its pool; the group's line says which"),
    ("↻", "restarted in the last quarter of an hour"),
    ("dim", "an old value; its age stands in the last column"),
)


_EXPLAINED = (
    Place.FLEET,
    Place.COLUMNS,
    Place.REPLICA,
    Place.RAW,
    Place.BESIDE,
    Place.ALERTS,
    Place.TUNERS,
    Place.EVENTS,
    Place.SUGGESTION,
    Place.CHANGE,
    Place.ANYWHERE,
)

_FILTER_CELLS = 18
"""Of a line of `FILTER_HELP`: what is typed, then what it finds."""
_LEAST_ROOM = 20
"""Cells for a meaning, below which it is cut instead of wrapped."""


def help_lines(width: int, *, read_only: bool = True, actions: Sequence[Action] = ACTIONS) -> list[Line]:
    """The lines of the help page; `actions` have the user's keys."""
    lines: list[Line] = [plain(" Keys", "title")]
    told: set[tuple[str, tuple[Place, ...]]] = set()
    for place in _EXPLAINED:
        own = [
            action
            for action in actions
            if place in action.places
            and (action.name, action.places) not in told
            and not (action.dangerous and read_only)
        ]
        told |= {(action.name, action.places) for action in own}
        if own:
            lines.append(plain(f"   {place}", "group"))
        lines += ((Span(f"     {pad(action.key_text, 13)}", "key"), Span(action.meaning)) for action in own)
    lines += (EMPTY_LINE, plain(" Mouse", "title"))
    lines += ((Span(f"     {pad(deed, 13)}", "key"), Span(meaning)) for deed, meaning in MOUSE)
    lines += (EMPTY_LINE, plain(" Filter", "title"), *map(_filter_line, FILTER_HELP))
    lines += (EMPTY_LINE, plain(" States", "title"))
    for severity in reversed(Severity):
        lines.append(
            (Span(f"     {GLYPH_OF[severity]}    ", INK_OF[severity]), Span(_SEVERITY_WORDS[severity]))
        )
    lines += (EMPTY_LINE, plain(" Marks", "title"))
    lines += (
        (Span(f"     {mark:<5}", "dim" if mark == "dim" else "text"), Span(text)) for mark, text in _MARKS
    )
    lines += (EMPTY_LINE, plain(" Columns (the wider the terminal, the more of them)", "title"))
    lines += ((Span(f"     {column.title:<12}", "head"), Span(column.meaning)) for column in COLUMNS)
    return [clip(piece, width) for line in lines for piece in _wrapped(line, width)]


def _filter_line(text: str) -> Line:
    return (Span(f"     {text[:_FILTER_CELLS]}"), Span(text[_FILTER_CELLS:]))


def _wrapped(line: Line, width: int) -> Iterator[Line]:
    """The line; where its meaning is too long, that goes on below itself."""
    room = width - width_of(line[0].text) if len(line) == 2 else 0
    if line_width(line) <= width or room < _LEAST_ROOM:
        yield line
        return
    label, meaning = line
    for piece in wrap_text(meaning.text, room):
        yield (label, Span(piece, meaning.ink))
        label = Span(" " * width_of(label.text))
