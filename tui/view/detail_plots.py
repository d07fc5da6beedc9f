"""Detail view: the last minutes of a replica as plots."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby

from enginetop.fleet.durations import duration_text
from enginetop.fleet.frozen import frozen
from enginetop.fleet.signals import SIGNALS
from enginetop.fleet.snapshot import ReplicaSnapshot, Slo
from tui.view import charts, numbers
from tui.view.cells import EMPTY_LINE, Line, Span, merge, pad
from tui.view.figures import Lines

PLOT_ROWS = 4
_TWO, _THREE = 76, 180
"""Widths from which two and three plots stand side by side."""
_LIMIT, _TICK = "─", "▴"
_PREEMPTIONS = "preemptions_per_second"


@frozen
class _Plot:
    """A trend to draw, up to `top` where that is fixed, with a line at the objective where there is one."""

    signal: str
    title: str
    text: Callable[[float | None], str]
    top: float | None = None
    limit: Callable[[Slo], float] | None = None
    limit_word: str = "SLO"
    ticks: str = ""
    """A signal whose times above zero are ticks underneath."""


_PLOTS = (
    _Plot("kv_usage_ratio", "KV %", numbers.percent, top=1.0, ticks=_PREEMPTIONS),
    _Plot("ttft_seconds.p95", "TTFT p95 ms", numbers.milliseconds, limit=lambda slo: slo.ttft_seconds),
    _Plot("tpot_seconds.p95", "TPOT p95 ms", numbers.milliseconds, limit=lambda slo: slo.tpot_seconds),
    _Plot("requests_running", "running", numbers.count),
    _Plot("requests_waiting", "waiting", numbers.count),
    _Plot("generation_tokens_per_second", "tok/s", numbers.count),
)


def first_plots(replica: ReplicaSnapshot, at: float, width: int) -> Lines:
    """The plots at the top of the view: all of them where there is room for three in a row, else one row."""
    yield from _rows(replica, at, width, _of(replica)[: None if width >= _THREE else _columns(width)])


def further_plots(replica: ReplicaSnapshot, at: float, width: int) -> Lines:
    """The plots that did not fit at the top."""
    if width < _THREE:
        yield from _rows(replica, at, width, _of(replica)[_columns(width) :])


def one_plot(replica: ReplicaSnapshot, signal: str, at: float, width: int, limit: float | None) -> list[Line]:
    """The plot of one trend with a line at `limit` (None: none); empty where nothing of it is kept."""
    if not replica.trend_times or signal not in replica.trends:
        return []
    known = next((plot for plot in _PLOTS if plot.signal == signal), None)
    plot = known or _Plot(signal, SIGNALS[signal.partition(".")[0]].title, numbers.rate)
    line = None if limit is None else lambda _: limit
    word = "threshold" if limit is not None else ""
    return _drawn(replace(plot, limit=line, limit_word=word), replica, at, width)


def plots_beside(first: ReplicaSnapshot, second: ReplicaSnapshot, at: float, width: int) -> Lines:
    """Each plot of two replicas next to one another, on one scale."""
    cell = (width - 2) // 2
    for plot in _PLOTS:
        both = [one for one in (first, second) if plot.signal in one.trends and one.trend_times]
        if len(both) < 2:
            continue
        top = plot.top or max(charts.scale_of(one.trends[plot.signal]) for one in both) or 1.0
        drawn = [_drawn(plot, one, at, cell - 2, top) for one in both]
        yield from _beside(drawn, cell)
        yield EMPTY_LINE


def _of(replica: ReplicaSnapshot) -> list[_Plot]:
    return [plot for plot in _PLOTS if plot.signal in replica.trends and replica.trend_times]


def _columns(width: int) -> int:
    return 3 if width >= _THREE else 2 if width >= _TWO else 1


def _rows(replica: ReplicaSnapshot, at: float, width: int, plots: Sequence[_Plot]) -> Lines:
    columns = _columns(width)
    cell = (width - 2) // columns
    drawn = [_drawn(plot, replica, at, cell - 2) for plot in plots]
    for first in range(0, len(drawn), columns):
        yield from _beside(drawn[first : first + columns], cell)
        yield EMPTY_LINE


def _beside(drawn: Sequence[list[Line]], cell: int) -> Lines:
    """Plots in cells of this width; a lower one is filled up."""
    for number in range(max(map(len, drawn))):
        parts = [lines[number] if number < len(lines) else (Span(" " * (cell - 2)),) for lines in drawn]
        yield merge(span for part in parts for span in (Span("  "), *part))


def _drawn(
    plot: _Plot, replica: ReplicaSnapshot, at: float, width: int, top: float | None = None
) -> list[Line]:
    """A plot of exactly `width` cells: scale at the left, newest value at the right edge.

    `top`: where the scale ends, None: at the highest of what is drawn.
    """
    scale_width = 8
    room = max(width - scale_width - 1, 1)
    times, values = replica.trend_times, replica.trends[plot.signal]
    step = _plot_step(times, at, room)
    series = charts.resample(values, times, at, step, room)
    limit = plot.limit(replica.slo) if plot.limit is not None else None
    if top is None:
        top = plot.top if plot.top is not None else charts.scale_of(series, limit or 0.0) or 1.0
    top = max(top, limit or 0.0)
    rows: list[Line] = [(Span(row, "spark"),) for row in charts.area(series, room, PLOT_ROWS, top)]
    scale = [plot.text(top), *[""] * (PLOT_ROWS - 2), "0"]
    title = plot.title
    if limit is not None:
        place = charts.row_of(limit, PLOT_ROWS, top)
        # What is drawn above the limit's row is beyond it for certain.
        rows[:place] = [(Span(row[0].text, "warn"),) for row in rows[:place]]
        rows[place] = _with_line(rows[place][0].text)
        scale[place] = plot.text(limit) if 0 < place < PLOT_ROWS - 1 else scale[place]
        title = f"{title} ({plot.limit_word} {plot.text(limit)})"
    if plot.ticks and any(replica.trends.get(plot.ticks) or ()):
        title = f"{title} ({_TICK} preempted)"
    caption = pad(f"{title}, last {duration_text(step * room)}", width)[: max(width, 0)]
    lines = [
        merge((Span(f"{mark:>{scale_width - 2}} ┊"[:scale_width], "dim"), *row, Span(" ")))
        for mark, row in zip(scale, rows, strict=True)
    ]
    marks = _ticks(plot, replica, at, step, room)
    if marks:
        lines.append(merge((Span(" " * scale_width), Span(marks, "warn"), Span(" "))))
    return [(Span(caption, "head"),), *lines]


def _ticks(plot: _Plot, replica: ReplicaSnapshot, at: float, step: float, room: int) -> str:
    """A tick under each column in which something of `plot.ticks` happened; empty if nothing did."""
    values = replica.trends.get(plot.ticks)
    if not values:
        return ""
    rates = charts.resample(values, replica.trend_times, at, step, room)
    return "".join(_TICK if rate else " " for rate in rates) if any(rates) else ""


def _with_line(row: str) -> Line:
    """The row with a line wherever nothing is drawn: what is above it stays above it."""
    parts = groupby(row, lambda cell: cell == " ")
    return tuple(
        Span(_LIMIT * len(text), "warn") if empty else Span(text, "spark")
        for empty, text in ((empty, "".join(cells)) for empty, cells in parts)
    )


def _plot_step(times: Sequence[float], at: float, room: int) -> float:
    """Seconds a column, one of few round values: all known times fit, and no column falls between two."""
    span = max(at - times[0], 1.0)
    least = 2 * span / len(times)
    for step in (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0):
        if step >= least and span / step <= room - 1:
            return step
    return 1800.0
