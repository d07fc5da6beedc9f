"""Latency and goodput of the fleet: by model what is merged of its replicas, by pool the load curve."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from enginetop.fleet.load_curve import Bin
from enginetop.fleet.load_document import NamedCurve, curves_of
from enginetop.fleet.snapshot import FleetSummary, ModelSummary, ReplicaSnapshot
from tui.view import charts, numbers
from tui.view.attainment import burn_lines, goodput_lines
from tui.view.cells import EMPTY_LINE, Line, Span, clip, cut_middle, fit
from tui.view.detail import beside_its_like
from tui.view.detail_latency import latency_table
from tui.view.figures import WIDE, Lines, row
from tui.view.load_curve import curve_lines
from tui.view.page import MODEL_UNKNOWN, ModelGroup, groups_of, heading, paragraph
from tui.view.picture import Picture

_OVERLAYS = 6
"""Replicas drawn beside the curve of their pool."""


def latency_page(picture: Picture, width: int) -> list[Line]:
    """The lines of the page, none wider than `width`."""
    return [clip(line, width) for line in _lines(picture, width)]


def _lines(picture: Picture, width: int) -> Lines:
    snapshot = picture.snapshot
    if snapshot is None:
        yield from (entry.line for entry in paragraph("waiting for the first scrape", width))
        return
    groups = groups_of(picture)
    if not groups:
        yield from (entry.line for entry in paragraph("no replicas: there is nothing to measure", width))
        return
    curves = curves_of(snapshot)
    if len(groups) > 1:
        yield heading(f"fleet · {snapshot.fleet.replicas} replicas", width).line
        yield from _merged(snapshot.fleet, width)
    for group in groups:
        yield heading(f"{group.model or MODEL_UNKNOWN} · ×{len(group.replicas)}", width).line
        if group.summary is None:
            yield (Span(" no replica of it is up", "dim"),)
        else:
            yield from _merged(group.summary, width)
            yield from _outliers(group, width)
        yield from _curves(group, curves, width)
        yield EMPTY_LINE


def _merged(of: FleetSummary | ModelSummary, width: int) -> Lines:
    yield from latency_table(of, width)
    slo = of.slo
    objective = (
        f"TTFT {numbers.seconds_text(slo.ttft_seconds)} · TPOT {numbers.seconds_text(slo.tpot_seconds)}"
    )
    target = f" · for {numbers.fine_percent(slo.target)} % of requests ({slo.source})"
    yield row("SLO", Span(objective + target, "dim"))
    yield from goodput_lines(of.goodput, slo)
    yield from burn_lines(of.goodput.burn, slo)
    yield EMPTY_LINE


def _outliers(group: ModelGroup, width: int) -> Iterator[Line]:
    """Who is slower than its like."""
    found = [
        (replica, outlier)
        for replica in group.replicas
        for outlier in replica.outliers
        if outlier.signal.startswith(("ttft", "tpot", "itl"))
    ]
    name_width = 24 if width >= WIDE else 12
    for number, (replica, outlier) in enumerate(found):
        name = fit(cut_middle(replica.target.name, name_width), name_width)
        yield row(
            "" if number else "stand out", Span(f"{name} ", "title"), Span(beside_its_like(outlier), "info")
        )
    if found:
        yield EMPTY_LINE


def _curves(group: ModelGroup, curves: Sequence[NamedCurve], width: int) -> Iterator[Line]:
    of_replicas = {one.target: one for one in curves if one.scope == "replica"}
    for named in curves:
        if named.scope != "pool" or named.model != group.model:
            continue
        each = ", load of one of them" if named.replicas > 1 else ""
        title = f"load curve · {named.role} ×{named.replicas}{each}"
        yield (Span(f" {title}", "head"),)
        bar = 40 if width >= WIDE else 20
        yield from curve_lines(named.curve, named.slo.ttft_seconds, bar)
        members = [replica for replica in group.replicas if replica.role.value == named.role]
        if len(members) > 1:
            yield from _overlays(named, members, of_replicas)


def _overlays(
    pool: NamedCurve, members: Sequence[ReplicaSnapshot], curves: Mapping[str, NamedCurve]
) -> Iterator[Line]:
    """Goodput of single replicas at the loads of the pool's bins, low to high, on one scale."""
    bins = pool.curve.bins
    own = [(one, curves[one.target.url]) for one in members if one.target.url in curves]
    own = [(one, curve) for one, curve in own if curve.curve.bins]
    if len(bins) < 2 or not own:
        return
    top = max(found.good_per_second.median for _, curve in own for found in curve.curve.bins)
    yield (Span("  good/s of each, low load to high", "dim"),)
    for replica, curve in own[:_OVERLAYS]:
        shape = charts.spark([_at(curve.curve.bins, one) for one in bins], len(bins), top)
        knee = curve.curve.knee
        at = f"  knee at {numbers.rate(knee.running)} running" if knee is not None else ""
        name = fit(cut_middle(replica.target.name, 24), 24)
        yield (Span(f"   {name} "), Span(shape, "spark"), Span(at, "ok"))
    if len(own) > _OVERLAYS:
        yield (Span(f"   +{len(own) - _OVERLAYS} more", "dim"),)


def _at(bins: Sequence[Bin], wanted: Bin) -> float | None:
    """What a replica achieved in the bin of its pool: bins are at the same places for every curve."""
    return next((one.good_per_second.median for one in bins if one.low == wanted.low), None)
