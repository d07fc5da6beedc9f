"""The load curve as lines: goodput and TTFT p99 by running requests, and the knee."""

from __future__ import annotations

from collections.abc import Iterable

from enginetop.fleet.load_curve import Bin, LoadCurve, Spread, load_curve, points_of
from enginetop.fleet.snapshot import ReplicaSnapshot
from themes.loader import Ink
from tui.view import charts, numbers
from tui.view.cells import EMPTY_LINE, UNKNOWN, Line, Span
from tui.view.figures import Lines, row

_BAR = 20


def replica_curve(replica: ReplicaSnapshot) -> Lines:
    """The section of the replica view; nothing before there is a bin to show."""
    curve = load_curve(points_of(replica), replica.slo.ttft_seconds)
    if not curve.bins:
        return
    for number, line in enumerate(curve_lines(curve, replica.slo.ttft_seconds)):
        yield row("" if number else "load curve", *line)
    yield EMPTY_LINE


def curve_lines(curve: LoadCurve, ttft_seconds: float, bar_width: int = _BAR) -> Iterable[Line]:
    """A head, a row for each bin by rising load, and the knee or why none is named."""
    mark = numbers.ESTIMATED if curve.estimated else ""
    if curve.bins:
        head = f"{'running':>8}{'good/s' + mark:>9}{'within %':>10}{'TTFT p99 ms':>13}{'windows':>9}"
        yield (Span(head, "head"),)
    top = max((one.good_per_second.median for one in curve.bins), default=0.0)
    for one in curve.bins:
        at_knee = curve.knee is not None and one.running == curve.knee.running
        yield _row(one, ttft_seconds, top, bar_width, at_knee=at_knee)
    if curve.knee is not None:
        knee = curve.knee
        found = f"knee at {numbers.rate(knee.running)} running: {numbers.rate(knee.good_per_second)} good/s"
        yield (Span(f" {found}", "ok"), Span(f"; {knee.because}", "dim"))
    else:
        yield (Span(" no knee named: ", "dim"), Span(curve.withheld, "dim"))


def _row(one: Bin, ttft_seconds: float, top: float, bar_width: int, *, at_knee: bool) -> Line:
    attainment = numbers.fine_percent(one.attainment.median) if one.attainment else UNKNOWN
    late = one.ttft_p99_seconds is not None and one.ttft_p99_seconds.median > ttft_seconds
    ink: Ink = "warn" if late else "text"
    return (
        Span(f"{numbers.rate(one.running):>8}{numbers.rate(one.good_per_second.median):>9}{attainment:>10}"),
        Span(f"{_milliseconds(one.ttft_p99_seconds):>13}", ink),
        Span(f"{one.points:>9}", "dim"),
        Span(" " + charts.bar(one.good_per_second.median / top if top > 0 else None, bar_width), "bar"),
        Span(" ◄ knee" if at_knee else "", "ok"),
    )


def _milliseconds(spread: Spread | None) -> str:
    return numbers.milliseconds(spread.median if spread else None)
