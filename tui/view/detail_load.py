"""Detail view: load of a replica now and over the last minutes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

from enginetop.fleet.snapshot import ReplicaSnapshot, Scalar, Slo
from tui.view import charts, numbers
from tui.view.cells import EMPTY_LINE, Line, Span, merge, pad
from tui.view.figures import WIDE, Lines, figure, labels_text, row, setting, short_figure, signal_of

PLOT_ROWS = 4
_LIMIT = "─"


def load_lines(replica: ReplicaSnapshot, at: float, width: int) -> Lines:
    kv = signal_of(replica, "kv_usage_ratio")
    ratio = numbers.scalar_number(kv)
    if isinstance(kv, Scalar) and ratio is not None:
        shown = numbers.marked(numbers.percent(ratio), kv.quality)
        spans = [Span(f"{shown:>4} % ", "text"), Span(charts.bar(ratio, 20), "bar")]
        if kv.mean is not None and kv.mean != ratio:
            spans.append(Span(f" mean {numbers.percent(kv.mean)} %"))
        if kv.worst:
            spans.append(Span(" fullest " + labels_text(kv.worst), "dim"))
        capacity = numbers.scalar_number(signal_of(replica, "kv_capacity_tokens"))
        if capacity is not None:
            spans.append(Span(f" of {numbers.count(capacity)} tokens", "dim"))
        yield row("KV", *spans)
    else:
        yield row("KV", *figure(replica, "kv_usage_ratio", numbers.percent))
    seats = setting(replica, "max_num_seqs")
    of_seats = Span(f" of {seats:.0f} seqs", "dim") if seats else Span("")
    yield row(
        "requests",
        Span("running ", "dim"), short_figure(replica, "requests_running"), of_seats,
        Span(" · waiting ", "dim"), short_figure(replica, "requests_waiting"),
        Span(" · finished/s ", "dim"), short_figure(replica, "requests_finished_per_second", numbers.rate),
        Span(" · aborted/s ", "dim"), short_figure(replica, "requests_aborted_per_second", numbers.rate),
    )  # fmt: skip
    yield row("preempted/s", *figure(replica, "preemptions_per_second", numbers.rate))
    yield EMPTY_LINE
    yield from _plots(replica, at, width)


@dataclass(frozen=True, slots=True)
class _Plot:
    """A trend to draw, up to `top` where that is fixed, with a line at the objective where there is one."""

    signal: str
    title: str
    text: Callable[[float | None], str]
    top: float | None = None
    limit: Callable[[Slo], float] | None = None


_PLOTS = (
    _Plot("kv_usage_ratio", "KV %", numbers.percent, top=1.0),
    _Plot("generation_tokens_per_second", "tok/s", numbers.count),
    _Plot("requests_running", "running", numbers.count),
    _Plot("requests_waiting", "waiting", numbers.count),
    _Plot("ttft_seconds.p95", "TTFT p95 ms", numbers.milliseconds, limit=lambda slo: slo.ttft_seconds),
    _Plot("tpot_seconds.p95", "TPOT p95 ms", numbers.milliseconds, limit=lambda slo: slo.tpot_seconds),
)


def _plots(replica: ReplicaSnapshot, at: float, width: int) -> Lines:
    columns = 3 if width >= 180 else 2 if width >= WIDE else 1
    cell = (width - 2) // columns
    plots = [
        _drawn(plot, replica, at, cell - 2)
        for plot in _PLOTS
        if plot.signal in replica.trends and replica.trend_times
    ]
    shown = plots if columns > 1 else plots[:2]
    for first in range(0, len(shown), columns):
        for parts in zip(*shown[first : first + columns], strict=True):
            yield merge(span for part in parts for span in (Span("  "), *part))
        yield EMPTY_LINE


def _drawn(plot: _Plot, replica: ReplicaSnapshot, at: float, width: int) -> list[Line]:
    """A plot of exactly `width` cells: scale at the left, newest value at the right edge."""
    scale_width = 8
    room = max(width - scale_width - 1, 1)
    times, values = replica.trend_times, replica.trends[plot.signal]
    step = _plot_step(times, at, room)
    series = charts.resample(values, times, at, step, room)
    limit = plot.limit(replica.slo) if plot.limit is not None else None
    top = plot.top if plot.top is not None else charts.scale_of(series, limit or 0.0) or 1.0
    rows: list[Line] = [(Span(row, "spark"),) for row in charts.area(series, room, PLOT_ROWS, top)]
    scale = [plot.text(top), *[""] * (PLOT_ROWS - 2), "0"]
    title = plot.title
    if limit is not None:
        place = charts.row_of(limit, PLOT_ROWS, top)
        rows[place] = _with_line(rows[place][0].text)
        scale[place] = plot.text(limit) if 0 < place < PLOT_ROWS - 1 else scale[place]
        title = f"{title} (SLO {plot.text(limit)})"
    caption = pad(f"{title}, last {numbers.seconds_text(step * room)}", width)[: max(width, 0)]
    lines = [
        merge((Span(f"{mark:>{scale_width - 2}} ┊"[:scale_width], "dim"), *row, Span(" ")))
        for mark, row in zip(scale, rows, strict=True)
    ]
    return [(Span(caption, "head"),), *lines]


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
