"""What happened to the fleet, newest first."""

from __future__ import annotations

from heapq import nlargest

from enginetop.fleet.events import is_lull
from enginetop.fleet.snapshot import Event
from tui.view import numbers
from tui.view.cells import Line, Span, clip, join_while_fitting
from tui.view.picture import Picture

EVENT_WORDS = {
    "preemptions_began": "preemptions began",
    "preemptions_ended": "preemptions ended",
    "config_changed": "config",
    "state_changed": "",
}

_NAME_WIDTH = 24

_LOOKED_AT = 4
"""Events looked at for each that is shown, so that lulls do not hide what was before them."""


def event_text(event: Event) -> str:
    """An event in words, without its time."""
    words = EVENT_WORDS.get(event.kind, event.kind.replace("_", " "))
    return " ".join(part for part in (words, detail_text(event)) if part)


def detail_text(event: Event) -> str:
    """The detail of an event, as the screens write what turns into what."""
    return event.detail.replace("->", "→")


def recent_events(picture: Picture, limit: int) -> list[tuple[float, str, Event]]:
    """The newest events of the fleet, newest first: when, whose, what. Without lulls."""
    if picture.snapshot is None or limit <= 0:
        return []
    return nlargest(
        limit,
        (
            (event.at, replica.target.url, event)
            for replica in picture.snapshot.replicas
            if replica.events
            for event in replica.events[-_LOOKED_AT * limit :]
            if event.kind != "appeared" and not is_lull(event)
        ),
        key=lambda entry: entry[0],
    )


def events_line(picture: Picture, width: int, limit: int = 8) -> Line:
    """The newest events of the fleet in one line."""
    items = [
        (
            Span(f"{numbers.time_of_day(at)} ", "dim"),
            Span(f"{picture.name_in(url, _NAME_WIDTH)} {event_text(event)}"),
        )
        for at, url, event in recent_events(picture, limit)
    ]
    return clip((Span(" "), *join_while_fitting(items, width - 1)), width) if items else ()
