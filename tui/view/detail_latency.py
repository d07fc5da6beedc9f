"""Detail view: latencies, and data-parallel ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from enginetop.fleet.model import EngineKind, Quality
from enginetop.fleet.signals import DISTRIBUTIONS, PERCENTILES
from enginetop.fleet.snapshot import (
    Distribution,
    FleetSummary,
    ModelSummary,
    Quantile,
    RankSnapshot,
    ReplicaSnapshot,
)
from themes.loader import Ink
from tui.view import numbers
from tui.view.attainment import goodput_lines, has_several_objectives, objective_line
from tui.view.cells import EMPTY_LINE, UNKNOWN, Line, Span, cut_middle, pad
from tui.view.engines import absence
from tui.view.figures import (
    LABEL_WIDTH,
    WIDE,
    Lines,
    labels_text,
    quantile_text,
    row,
    signal_of,
)

Latencies = ReplicaSnapshot | ModelSummary | FleetSummary
"""What has latencies and an objective."""

_LATENCIES = ("ttft_seconds", "tpot_seconds", "itl_seconds", "e2e_seconds", "queue_seconds")


_QUANTILE_WIDTH = 9


def latency_table(of: Latencies, width: int, engine: EngineKind = EngineKind.UNKNOWN) -> Lines:
    """Quantiles in milliseconds, a row for each latency; `engine` says whose silence is explained."""
    wide = width >= WIDE
    heads = [*(name for name, _ in PERCENTILES), "mean", "count"]
    head = "".join(f"{name:>{_QUANTILE_WIDTH}}" for name in heads)
    yield row("latency ms", Span(head + ("    p95 lies between" if wide else ""), "head"))
    for signal in DISTRIBUTIONS:
        if signal.name in _LATENCIES:
            yield _latency_row(of, engine, signal.name, signal.title, wide=wide)


def latency_lines(replica: ReplicaSnapshot, width: int) -> Lines:
    """Latencies of a replica, its objective, and what of it was met."""
    yield from latency_table(replica, width, replica.engine)
    yield objective_line(replica.slo)
    yield from goodput_lines(replica.goodput, replica.slo)
    yield EMPTY_LINE


def _limits(of: Latencies) -> Mapping[str, float]:
    if isinstance(of, FleetSummary) and has_several_objectives(of):
        return {}
    return {"ttft_seconds": of.slo.ttft_seconds, "tpot_seconds": of.slo.tpot_seconds}


def _latency_row(of: Latencies, engine: EngineKind, name: str, title: str, *, wide: bool) -> Line:
    value = signal_of(of, name)
    missing = absence(value, engine)
    if missing or not isinstance(value, Distribution):
        return row(title, Span(f"{UNKNOWN:>{_QUANTILE_WIDTH}}  {missing}", "dim"))
    limit = _limits(of).get(name)
    spans = []
    for key in (*(key for key, _ in PERCENTILES), "mean"):
        quantile = numbers.quantile_of(value, key)
        number = numbers.quantile_number(quantile)
        over = limit is not None and number is not None and number > limit and key == "p95"
        ink: Ink = "dim" if number is None or value.quality is Quality.STALE else "warn" if over else "text"
        spans.append(Span(f"{quantile_text(quantile, value.quality):>{_QUANTILE_WIDTH}}", ink))
    spans.append(Span(f"{numbers.count(value.count):>{_QUANTILE_WIDTH}}", "dim"))
    if wide:
        spans.append(Span(f"    {_bounds_text(numbers.quantile_of(value, 'p95'))}", "dim"))
    if value.note:
        spans.append(Span(f"  {value.note}", "dim"))
    return row(title, *spans)


def _bounds_text(quantile: Quantile) -> str:
    if quantile.low is None:
        return ""
    high = "∞" if quantile.high is None else numbers.milliseconds(quantile.high)
    return f"{numbers.milliseconds(quantile.low)} and {high}"


def rank_lines(replica: ReplicaSnapshot) -> Lines:
    """A row a rank of an engine that has several; nothing for one."""
    if len(replica.ranks) < 2:
        return
    yield row("ranks", Span(f"{'run':>6}{'wait':>6}{'KV %':>6}{'tok/s':>8}{'TTFT95ms':>10}", "head"))
    for rank in replica.ranks:
        yield _rank_row(rank)
    yield EMPTY_LINE


def _rank_row(rank: RankSnapshot) -> Line:
    def shown(name: str, text: Callable[[float | None], str]) -> str:
        return text(numbers.scalar_number(rank.signals.get(name)))

    ttft = numbers.quantile_of(rank.signals.get("ttft_seconds"), "p95")
    label = cut_middle(labels_text(rank.labels), LABEL_WIDTH)
    return (
        Span(f" {pad(label, LABEL_WIDTH)}", "head"),
        Span(
            f"{shown('requests_running', numbers.count):>6}{shown('requests_waiting', numbers.count):>6}"
            f"{shown('kv_usage_ratio', numbers.percent):>6}"
            f"{shown('generation_tokens_per_second', numbers.count):>8}"
            f"{quantile_text(ttft, Quality.OK):>10}"
        ),
    )
