"""Two replicas side by side: what they are, what is set differently, every figure, and plots on one scale."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from enginetop.fleet.snapshot import ReplicaSnapshot
from tui.view import numbers
from tui.view.cells import (
    EMPTY_LINE,
    UNKNOWN,
    Line,
    Span,
    clip,
    line_width,
    merge,
    plain,
    wrap_text,
)
from tui.view.compare import NUMBER_WIDTH, figure_lines, head_line, label_cell, label_width, word_line
from tui.view.detail_plots import plots_beside
from tui.view.engines import engine_text
from tui.view.figures import WIDE, Lines
from tui.view.picture import Picture
from tui.view.title import screen_title

_DIFFERS = "differs"
_SHORT = 10
"""A setting of up to so many characters fits into a column."""
_TABLE_WIDTH = 84
_PLOTS_AT_THE_RIGHT = 160


def others(picture: Picture, url: str) -> list[str]:
    """Who can stand beside a replica, by URL: first those of its model and role, then all others."""
    one = picture.replica(url)
    if picture.snapshot is None or one is None:
        return []
    rest = [other for other in picture.snapshot.replicas if other.target.url != url]
    rest.sort(key=lambda other: (other.model, other.role) != (one.model, one.role))
    return [other.target.url for other in rest]


def beside_title(picture: Picture, url: str, other: str | None, width: int) -> Line:
    """Who stands beside whom."""
    names = f"{picture.name_of(url)} beside {picture.name_of(other)}" if other else picture.name_of(url)
    return screen_title(picture, names, "", width)


def beside_lines(picture: Picture, url: str, other: str | None, width: int) -> list[Line]:
    """Both replicas, none of the lines wider than `width`."""
    first, second = picture.replica(url), picture.replica(other or "")
    if picture.snapshot is None or first is None or second is None:
        said = "there is no other replica" if first is not None else "this replica is no longer in the fleet"
        return [clip(plain(f" {said}", "warn"), width)]
    names = [picture.name_in(one.target.url, NUMBER_WIDTH) for one in (first, second)]
    words = [picture.conditions[one.target.url].word for one in (first, second)]
    cells = label_width(width)
    lines: list[Line] = [
        head_line(names[0], names[1], f"{names[1]} - {names[0]}", cells),
        word_line("state", words[0], words[1], cells=cells, other=_DIFFERS),
        *_told_apart("engine", engine_text(first), engine_text(second), width),
        *_told_apart("model", _model(first), _model(second), width),
        *_bound(first, second, cells),
        *_settings(first, second, width),
        *figure_lines(first.signals, second.signals, cells=cells),
    ]
    if width >= _PLOTS_AT_THE_RIGHT:
        plots = plots_beside(first, second, picture.snapshot.at, width - _TABLE_WIDTH)
        lines = [
            merge((*_in_cells(line or EMPTY_LINE, _TABLE_WIDTH), *(plot or EMPTY_LINE)))
            for line, plot in zip_longest(lines, plots)
        ]
    elif width >= WIDE:
        lines += (EMPTY_LINE, *plots_beside(first, second, picture.snapshot.at, width))
    return [clip(line, width) for line in lines]


def _in_cells(line: Line, width: int) -> Line:
    shown = clip(line, width - 1)
    return (*shown, Span(" " * (width - line_width(shown))))


def _model(replica: ReplicaSnapshot) -> str:
    return f"{replica.model or UNKNOWN} · {replica.role}"


def _told_apart(label: str, first: str, second: str, width: int) -> Iterator[Line]:
    """A row where both are the same, else one for each: words are too long for a column."""
    told: Sequence[str] = (first,) if first == second else (first, second)
    cells = label_width(width)
    for number, text in enumerate(told):
        name = label_cell(label if not number else "", cells)
        for piece in wrap_text(text, max(width - cells - 3, 10)):
            yield (Span(f" {name} ", "head"), Span(piece, "dim" if len(told) == 1 else "text"))
            name = " " * cells


def _bound(first: ReplicaSnapshot, second: ReplicaSnapshot, cells: int) -> Lines:
    for word in dict.fromkeys((*first.bound_by, *second.bound_by)):
        shares = [_bound_share(replica, word) for replica in (first, second)]
        if word != "unknown" and max(share or 0.0 for share in shares) >= 0.005:
            shown, shown_other = (
                UNKNOWN if share is None else f"{numbers.percent(share)} %" for share in shares
            )
            differs = UNKNOWN if None in shares else _DIFFERS
            yield word_line(f"bound by {word}", shown, shown_other, cells=cells, other=differs)


def _bound_share(replica: ReplicaSnapshot, word: str) -> float | None:
    """The word's share of the window, None where nothing is known of the whole window."""
    known = any(share > 0 for name, share in replica.bound_by.items() if name != "unknown")
    return replica.bound_by.get(word, 0.0) if known else None


def _settings(first: ReplicaSnapshot, second: ReplicaSnapshot, width: int) -> Lines:
    """Settings that differ; of the others how many there are."""
    same, cells = 0, label_width(width)
    for key in sorted({*first.config, *second.config}):
        one, other = _value(first, key), _value(second, key)
        if one == other:
            same += 1
        elif max(len(one), len(other)) <= _SHORT:
            yield word_line(key, one, other, cells=cells, other=_DIFFERS)
        else:
            yield from _told_apart(key, one, other, width)
    if same:
        yield (Span(f" {label_cell('settings', cells)} ", "head"), Span(f"{same} are the same", "dim"))


def _value(replica: ReplicaSnapshot, key: str) -> str:
    setting = replica.config.get(key)
    return UNKNOWN if setting is None or setting.value is None else str(setting.value)
