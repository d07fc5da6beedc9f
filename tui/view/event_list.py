"""What happened to the replicas, newest first, as a list to read through."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial

from enginetop.fleet.events import is_lull
from enginetop.fleet.model import UP_STATES
from enginetop.fleet.snapshot import Event, FleetSnapshot
from themes.loader import Ink
from tui.view import numbers
from tui.view.cells import Line, Span, clip, fit, plain
from tui.view.events import detail_text
from tui.view.figures import WIDE
from tui.view.page import paragraph
from tui.view.picture import NOTHING_YET, Picture
from tui.view.rows import Row, Rows

KIND_WORDS = {
    "appeared": "appeared",
    "gone": "gone",
    "restarted": "restarted",
    "state_changed": "state",
    "config_changed": "config",
    "preemptions_began": "preempting",
    "preemptions_ended": "preempting ended",
    "lull": "idle",
}
"""Kinds by their word, in the order in which they are shown; a lull is a change of state apart."""
_LULL = "lull"
_INKS: dict[str, Ink] = {
    "restarted": "info",
    "gone": "warn",
    "preemptions_began": "warn",
    "config_changed": "info",
}
_UP = frozenset(state.value for state in UP_STATES)
_NARROW = 60


def kinds_of(picture: Picture) -> list[str]:
    """The kinds of events that there are, in the order of `KIND_WORDS`, unknown ones last."""
    if picture.snapshot is None:
        return []
    found = {_kind(event) for replica in picture.snapshot.replicas for event in replica.events}
    known = [kind for kind in KIND_WORDS if kind in found]
    return [*known, *sorted(found.difference(KIND_WORDS))]


def next_kind(picture: Picture, kind: str) -> str:
    """The kind after this one; after the last, and for one that is gone, all but lulls (empty)."""
    kinds = ["", *kinds_of(picture)]
    return kinds[(kinds.index(kind) + 1) % len(kinds)] if kind in kinds else ""


def event_rows(picture: Picture, width: int, kind: str = "") -> Rows[str]:
    """A row for each event of this kind (empty: of every kind but lulls)."""
    return Rows(_rows(picture, kind, width), width)


def events_verdict(picture: Picture, width: int, kind: str = "") -> Line:
    """How many there are of each kind, the shown one marked."""
    if picture.snapshot is None:
        return ()
    counts = Counter(_kind(event) for replica in picture.snapshot.replicas for event in replica.events)
    lulls = counts[_LULL]
    whole = f" all{' but idle' if lulls else ''} {counts.total() - lulls}"
    parts = [Span(whole, "title" if not kind else "dim")]
    for one in kinds_of(picture):
        parts += (Span(" · ", "dim"), Span(f"{_word(one)} {counts[one]}", "title" if one == kind else "dim"))
    return clip(parts, width)


def _rows(picture: Picture, kind: str, width: int) -> Iterator[Row[str]]:
    snapshot = picture.snapshot
    if snapshot is None:
        yield from paragraph(NOTHING_YET, width)
        return
    found = _events(snapshot, kind)
    if not found:
        of = f" of the kind {_word(kind)!r}" if kind else ""
        yield from paragraph(
            f"nothing happened yet{of}: restarts, changes of state or configuration and bouts of preemption "
            "are listed here, the last 64 of each replica; turns between ok and idle are a kind of their own",
            width,
        )
        return
    for event, url in found:
        key = f"{url} {event.at} {event.kind} {event.detail}"
        yield Row(partial(_line, picture, event, url, snapshot.at, width), key, url)


def _events(snapshot: FleetSnapshot, kind: str) -> list[tuple[Event, str]]:
    found = [
        (event, replica.target.url)
        for replica in snapshot.replicas
        for event in reversed(replica.events)
        if (_kind(event) == kind if kind else not is_lull(event))
    ]
    return sorted(found, key=lambda entry: -entry[0].at)


def _line(picture: Picture, event: Event, url: str, at: float, width: int) -> Line:
    narrow = width < _NARROW
    age = "" if narrow else f"{numbers.age(at - event.at):>4}  "
    name_width = 8 if narrow else 28 if width >= WIDE else 14
    return (
        Span(f" {numbers.time_of_day(event.at)} {age}", "dim"),
        Span(f"{picture.name_cell(url, name_width)} ", "title"),
        Span(f"{fit(_word(event.kind), 10 if narrow else 17)} ", _ink(event)),
        *plain(detail_text(event)),
    )


def _kind(event: Event) -> str:
    return _LULL if is_lull(event) else event.kind


def _word(kind: str) -> str:
    return KIND_WORDS.get(kind, kind.replace("_", " "))


def _ink(event: Event) -> Ink:
    if event.kind == "state_changed":
        now = event.detail.partition("->")[2].strip().partition(":")[0]
        return "ok" if now in _UP else "warn"
    return _INKS.get(event.kind, "text")
