"""Detail view: what limits a replica, and its load now."""

from __future__ import annotations

from enginetop.fleet.bound_by import WORDS
from enginetop.fleet.snapshot import ReplicaSnapshot, Scalar
from tui.view import charts, numbers
from tui.view.cells import EMPTY_LINE, Line, Span
from tui.view.detail_plots import first_plots
from tui.view.figures import Lines, figure, labels_text, row, setting, short_figure, signal_of
from tuners.trend import Trend, seconds_to_full, trend_of

_TREND_SECONDS = 60.0
_SOON_SECONDS = 900.0
"""A cache that is full later than that is not worth a word."""
_NOW_SECONDS = 5.0
"""Sooner than that it is full: no forecast."""

_LIMITS = {"kv": "KV", "token_budget": "token budget", "unknown": "not known"}
_LEAST_SHARE = 0.005


def bound_line(replica: ReplicaSnapshot) -> Line:
    """What limited the replica, as shares of the window, the largest first."""
    shares = [(word, replica.bound_by.get(word, 0.0)) for word in WORDS]
    told = sorted((entry for entry in shares if entry[1] >= _LEAST_SHARE), key=lambda entry: -entry[1])
    spans: list[Span] = []
    for number, (word, share) in enumerate(told):
        quiet = word in ("none", "unknown")
        of_window = "" if number else " of the window"
        spans.append(Span(" · " if number else "", "dim"))
        spans.append(Span(f"{_LIMITS.get(word, word)} ", "dim" if quiet else "text"))
        spans.append(Span(f"{numbers.percent(share)} %", "dim" if quiet else "title"))
        spans.append(Span(of_window, "dim"))
    return row("bound by", *(spans or [Span("not known", "dim")]))


def load_lines(replica: ReplicaSnapshot, at: float, width: int) -> Lines:
    """The limits, the KV cache, the requests, and the first row of plots."""
    if replica.bound_by != {"unknown": 1.0}:
        yield bound_line(replica)
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
        left = seconds_to_full(_trend(replica, "kv_usage_ratio", at))
        if left is not None and _NOW_SECONDS <= left < _SOON_SECONDS:
            spans.append(Span(f"  full in {numbers.seconds_text(left)} at this pace", "warn"))
        yield row("KV", *spans)
    else:
        yield row("KV", *figure(replica, "kv_usage_ratio", numbers.percent))
    seats = setting(replica, "max_num_seqs")
    of_seats = Span(f" of {seats:.0f} seqs", "dim") if seats else Span("")
    yield row(
        "requests",
        Span("running ", "dim"), short_figure(replica, "requests_running"), of_seats,
        Span(" · waiting ", "dim"), short_figure(replica, "requests_waiting"),
        _growth(replica, at),
        Span(" · finished/s ", "dim"), short_figure(replica, "requests_finished_per_second", numbers.rate),
        Span(" · aborted/s ", "dim"), short_figure(replica, "requests_aborted_per_second", numbers.rate),
        _errors(replica),
    )  # fmt: skip
    yield row("preempted/s", *figure(replica, "preemptions_per_second", numbers.rate))
    yield EMPTY_LINE
    yield from first_plots(replica, at, width)


def _errors(replica: ReplicaSnapshot) -> Span:
    """How many requests end in an error, where some do."""
    failed = replica.goodput.errored_per_second
    shown = "" if failed is None else numbers.rate(failed)
    return Span(f" · errors/s {shown}" if shown.strip("0.") else "", "warn")


def _growth(replica: ReplicaSnapshot, at: float) -> Span:
    """How fast the queue grows or shrinks, where its last minute makes a line."""
    trend = _trend(replica, "requests_waiting", at)
    if trend is None or abs(trend.per_second) < 0.005:
        return Span("")
    return Span(f", {trend.per_second:+.2f}/s", "warn" if trend.per_second > 0 else "dim")


def _trend(replica: ReplicaSnapshot, name: str, at: float) -> Trend | None:
    values = replica.trends.get(name, ())
    recent = [
        (time, value)
        for time, value in zip(replica.trend_times, values, strict=False)
        if value is not None and at - time <= _TREND_SECONDS
    ]
    return trend_of(recent)
