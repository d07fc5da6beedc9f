"""What the pages about the whole fleet are made of: a title, groups by model, headings, paragraphs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Never

from enginetop.fleet.frozen import frozen
from enginetop.fleet.snapshot import ModelSummary, ReplicaSnapshot
from tui.view.cells import (
    UNKNOWN,
    Line,
    Span,
    cut_end,
    cut_middle,
    line_width,
    wrap_text,
)
from tui.view.numbers import time_of_day
from tui.view.picture import Picture
from tui.view.rows import Row
from tui.view.title import screen_title

MODEL_UNKNOWN = "model not known"


@frozen
class ModelGroup:
    """The replicas of one model, and what is merged of them (None: none of them is up)."""

    model: str | None
    replicas: tuple[ReplicaSnapshot, ...]
    summary: ModelSummary | None


def groups_of(picture: Picture) -> list[ModelGroup]:
    """Replicas by model, in the order of the fleet."""
    snapshot = picture.snapshot
    if snapshot is None:
        return []
    found: dict[str | None, list[ReplicaSnapshot]] = {}
    for replica in snapshot.replicas:
        found.setdefault(replica.model, []).append(replica)
    merged = {summary.model: summary for summary in snapshot.fleet.models}
    return [ModelGroup(model, tuple(members), merged.get(model)) for model, members in found.items()]


def page_title(picture: Picture, title: str, width: int, where: str = "") -> Line:
    """Which page, `where` in the fleet, of which fleet, of when; the badges."""
    at = f" · {time_of_day(picture.snapshot.at)}" if picture.snapshot is not None else ""
    fleet = f" · {picture.title}" if picture.title else ""
    return screen_title(picture, title, where + fleet + at, width)


def heading_line(text: str, width: int, note: str = "") -> Line:
    """The head of a group, with a rule to the right edge."""
    name = cut_middle(text, max(width - 4, 8))
    lead = (Span(f" {name} ", "group"), Span(f"{note} " if note else "", "dim"))
    return (*lead, Span("─" * max(width - line_width(lead), 0), "dim"))


def heading(text: str, width: int, note: str = "") -> Row[Never]:
    """The same as a row."""
    return Row(heading_line(text, width, note))


def paragraph_lines(text: str, width: int) -> Iterator[Line]:
    """Running text, for what there is to say when there is nothing to list."""
    for line in wrap_text(text, max(width - 2, 8)):
        yield (Span(f" {line}", "dim"),)


def paragraph(text: str, width: int) -> Iterator[Row[Never]]:
    """The same as rows."""
    return map(Row, paragraph_lines(text, width))


def wrapped(text: str, width: int, most: int) -> list[str]:
    """`text` in at most so many lines; an ellipsis says that there would be more."""
    lines = wrap_text(text, width)
    if len(lines) <= most:
        return lines
    return [*lines[: most - 1], cut_end(" ".join(lines[most - 1 :]), width)]


def names_text(names: Sequence[str], most: int = 4) -> str:
    """Some names, the rest counted: `a1 a2 +3 more`; `–` for none."""
    shown = " ".join(names[:most])
    return (f"{shown} +{len(names) - most} more" if len(names) > most else shown) or UNKNOWN


def by_reason(title: str, missing: Iterable[tuple[str, str]], width: int) -> Iterator[Row[Never]]:
    """Who is not in a list, by the reason: pairs of a name and its reason, under a heading."""
    names: dict[str, list[str]] = {}
    for name, reason in missing:
        names.setdefault(reason, []).append(name)
    if names:
        yield heading(title, width)
    for reason, found in names.items():
        yield from paragraph(f"{names_text(found)}: {reason}", width)
