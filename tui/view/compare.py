"""Two instants side by side: every figure at A, at B, and what lies between."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from enginetop.alerts.rule import FIRING
from enginetop.fleet.model import STATE_ORDER
from enginetop.fleet.signals import DISTRIBUTIONS, SCALARS
from enginetop.fleet.snapshot import FleetSnapshot, Signals
from themes.loader import Ink
from tui.view import numbers
from tui.view.cells import UNKNOWN, Line, Span, clip, cut_middle, merge, pad, plain
from tui.view.picture import Picture
from tui.view.title import screen_title

NUMBER_WIDTH = 10
_LEAST_LABEL, _MOST_LABEL = 20, 28
"""The longest name of a figure has 28 cells."""
_REST = 43
"""Cells beside the label: two numbers, what lies between them, and spaces."""
_QUANTILES = ("p50", "p95", "p99")

Pair = tuple[FleetSnapshot, FleetSnapshot]


def label_width(width: int) -> int:
    """Cells of the first column where there are `width` in all."""
    return min(max(width - _REST, _LEAST_LABEL), _MOST_LABEL)


def label_cell(label: str, cells: int) -> str:
    """A name in the first column. One that is too long loses its middle: at its end is the quantile."""
    return pad(cut_middle(label.replace("_", " "), cells), cells)


def compare_title(picture: Picture, pair: Pair | None, url: str | None, width: int) -> Line:
    """Who is compared, and the two instants."""
    who = "fleet" if url is None else picture.name_of(url)
    when = ""
    if pair is not None:
        first, second = pair
        apart = numbers.seconds_text(abs(second.at - first.at))
        when = f" · A {numbers.time_of_day(first.at)} · B {numbers.time_of_day(second.at)} · {apart} apart"
    return screen_title(picture, f"compare {who}", when, width)


def compare_lines(pair: Pair | None, url: str | None, width: int) -> list[Line]:
    """The figures of a replica, or of the fleet (`url` None), at both instants."""
    if pair is None:
        said = "no bookmark: b marks the instant that is shown; a second one, or what is shown, is B"
        return [clip(plain(f" {said}", "dim"), width)]
    cells = label_width(width)
    sides: list[Signals] = []
    lines: list[Line] = []
    if url is None:
        sides = [snapshot.fleet.signals for snapshot in pair]
        lines += _counts(pair, cells)
    else:
        found = [snapshot.replica(url) for snapshot in pair]
        states = (UNKNOWN if one is None else str(one.state) for one in found)
        lines.append(word_line("state", *states, cells=cells))
        sides = [{} if one is None else one.signals for one in found]
    head = head_line("A", "B", "B - A", cells)
    return [clip(line, width) for line in (head, *lines, *figure_lines(*sides, cells=cells))]


def figure_lines(first: Signals, second: Signals, *, cells: int = _MOST_LABEL) -> Iterator[Line]:
    """A row for each figure that is known on one side at least: the first, the second, what lies between.

    `cells`: of the names.
    """
    for signal in SCALARS:
        name = signal.name
        before, after = (numbers.scalar_number(side.get(name)) for side in (first, second))
        yield from _figure(name, before, after, _format_of(signal.unit), cells, signal.unit)
    for signal in DISTRIBUTIONS:
        for quantile in _QUANTILES:
            before, after = (
                numbers.quantile_number(numbers.quantile_of(side.get(signal.name), quantile))
                for side in (first, second)
            )
            label = f"{signal.name} {quantile}"
            yield from _figure(label, before, after, _format_of(signal.unit), cells)


def _figure(
    label: str,
    first: float | None,
    second: float | None,
    text: Callable[[float], str],
    cells: int,
    unit: str = "",
) -> Iterator[Line]:
    """Nothing for what is known at neither instant. Between two percentages lie points, not percent."""
    if first is None and second is None:
        return
    at_first, at_second = (UNKNOWN if number is None else text(number) for number in (first, second))
    change = None if first is None or second is None else second - first
    if first is None or change is None or not math.isfinite(change):  # so far apart that no number says it
        yield _row(label, at_first, at_second, UNKNOWN, "dim", cells)
        return
    if not change:
        yield _row(label, at_first, at_second, "0", "dim", cells)
        return
    sign = "+" if change > 0 else "-"
    part = change / abs(first) if first else 0.0
    share = f" ({part:+.0%})" if 0.005 <= abs(part) < math.inf else ""
    apart = f"{numbers.fine_percent(abs(change))} points" if unit == "ratio" else text(abs(change))
    yield _row(label, at_first, at_second, f"{sign}{apart}{share}", "title", cells)


def _counts(pair: Pair, cells: int) -> Iterator[Line]:
    for state in STATE_ORDER:
        before, after = (float(snapshot.fleet.states.get(state, 0)) for snapshot in pair)
        if before or after:
            yield from _figure(f"replicas {state}", before, after, numbers.count, cells)
    before, after = (float(sum(one.state == FIRING for one in snapshot.alerts)) for snapshot in pair)
    yield from _figure("alerts firing", before, after, numbers.count, cells)


def word_line(label: str, first: str, second: str, *, cells: int, other: str = "changed") -> Line:
    """A row of words, and whether they are the same; `other` says that they are not."""
    same = first == second
    return _row(label, first, second, "same" if same else other, "dim" if same else "title", cells)


def head_line(first: str, second: str, between: str, cells: int) -> Line:
    """The titles of the three columns."""
    return _row("", first, second, between, "head", cells)


def _row(label: str, first: str, second: str, change: str, ink: Ink, cells: int) -> Line:
    shown = f"{pad(first, NUMBER_WIDTH, right=True)} {pad(second, NUMBER_WIDTH, right=True)}  "
    return merge(
        (
            Span(f" {label_cell(label, cells)} ", "head"),
            Span(shown, "head" if ink == "head" else "text"),
            Span(change, ink),
        )
    )


def _format_of(unit: str) -> Callable[[float], str]:
    if unit == "seconds":
        return numbers.seconds_text
    if unit == "ratio":
        return lambda number: f"{numbers.fine_percent(number)} %"
    return lambda number: numbers.count(number) if number == round(number) else numbers.rate(number)
