"""Latency and goodput of the fleet: by model what is merged of its replicas, by pool the load curve."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from enginetop.fleet.load_curve import Bin
from enginetop.fleet.load_document import NamedCurve, curve_of, pool_curves
from enginetop.fleet.snapshot import FleetSnapshot, FleetSummary, ModelSummary, ReplicaSnapshot
from tui.view import charts, numbers
from tui.view.attainment import burn_lines, goodput_lines, has_several_objectives, objective_line
from tui.view.cells import EMPTY_LINE, Line, Span, clip
from tui.view.detail import beside_its_like
from tui.view.detail_latency import latency_table
from tui.view.figures import WIDE, Lines, row
from tui.view.load_curve import curve_lines
from tui.view.page import MODEL_UNKNOWN, ModelGroup, groups_of, heading_line, paragraph_lines
from tui.view.picture import NOTHING_YET, Picture

_OVERLAYS = 6
"""Replicas drawn beside the curve of their pool."""


class CurveMemory:
    """The curves of the pools. A point is a window, so they are worked out once a window."""

    def __init__(self) -> None:
        self._key: tuple[float, int] | None = None
        self._curves: list[NamedCurve] = []

    def curves(self, snapshot: FleetSnapshot) -> list[NamedCurve]:
        """One for each model and role."""
        key = (snapshot.at // max(snapshot.window_seconds, 1.0), len(snapshot.replicas))
        if key != self._key:
            self._key, self._curves = key, pool_curves(snapshot)
        return self._curves


def latency_page(picture: Picture, width: int, memory: CurveMemory | None = None) -> list[Line]:
    """The lines of the page, none wider than `width`; `memory` spares work from one picture to the next."""
    return [clip(line, width) for line in _lines(picture, width, memory or CurveMemory())]


def _lines(picture: Picture, width: int, memory: CurveMemory) -> Lines:
    snapshot = picture.snapshot
    if snapshot is None:
        yield from paragraph_lines(NOTHING_YET, width)
        return
    groups = groups_of(picture)
    if not groups:
        yield from paragraph_lines("no replicas: there is nothing to measure", width)
        return
    curves = memory.curves(snapshot)
    if len(groups) > 1:
        yield heading_line(f"fleet · {snapshot.fleet.replicas} replicas", width)
        yield from _merged(snapshot.fleet, width)
    for group in groups:
        yield heading_line(f"{group.model or MODEL_UNKNOWN} · ×{len(group.replicas)}", width)
        if group.summary is None:
            yield (Span(" no replica of it is up", "dim"),)
        else:
            yield from _merged(group.summary, width)
            yield from _outliers(picture, group, width)
        if group.summary is not None or any(replica.load for replica in group.replicas):
            yield from _curves(picture, group, curves, width)
        yield EMPTY_LINE


def _merged(of: FleetSummary | ModelSummary, width: int) -> Lines:
    yield from latency_table(of, width)
    if isinstance(of, FleetSummary) and has_several_objectives(of):
        yield row("SLO", Span("that of each model, below", "dim"))
    else:
        yield objective_line(of.slo)
    yield from goodput_lines(of.goodput, of.slo)
    yield from burn_lines(of.goodput.burn, of.slo)
    yield EMPTY_LINE


def _outliers(picture: Picture, group: ModelGroup, width: int) -> Iterator[Line]:
    """Who is slower than its like."""
    found = [
        (replica, outlier)
        for replica in group.replicas
        for outlier in replica.outliers
        if outlier.signal.startswith(("ttft", "tpot", "itl"))
    ]
    name_width = 24 if width >= WIDE else 12
    for number, (replica, outlier) in enumerate(found):
        name = picture.name_cell(replica.target.url, name_width)
        yield row(
            "" if number else "stand out", Span(f"{name} ", "title"), Span(beside_its_like(outlier), "info")
        )
    if found:
        yield EMPTY_LINE


def _curves(picture: Picture, group: ModelGroup, curves: Sequence[NamedCurve], width: int) -> Iterator[Line]:
    for named in curves:
        if named.model != group.model:
            continue
        each = ", load of one of them" if named.replicas > 1 else ""
        title = f"load curve · {named.role} ×{named.replicas}{each}"
        yield (Span(f" {title}", "head"),)
        bar = 40 if width >= WIDE else 20
        yield from curve_lines(named.curve, named.slo.ttft_seconds, bar)
        members = [replica for replica in group.replicas if replica.role.value == named.role]
        if len(members) > 1:
            yield from _overlays(picture, named, members)


def _overlays(picture: Picture, pool: NamedCurve, members: Sequence[ReplicaSnapshot]) -> Iterator[Line]:
    """Goodput of single replicas at the loads of the pool's bins, low to high, on one scale."""
    bins = pool.curve.bins
    loaded = [replica for replica in members if replica.load]
    own = [(replica, curve_of(replica)) for replica in loaded[:_OVERLAYS]]
    shown = [(replica, named.curve) for replica, named in own if named is not None and named.curve.bins]
    if len(bins) < 2 or not shown:
        return
    top = max(found.good_per_second.median for _, curve in shown for found in curve.bins)
    yield (Span("  good/s of each, low load to high", "dim"),)
    for replica, curve in shown:
        shape = charts.spark([_at(curve.bins, one) for one in bins], len(bins), top)
        at = f"  knee at {numbers.rate(curve.knee.running)} running" if curve.knee is not None else ""
        name = picture.name_cell(replica.target.url, 24)
        yield (Span(f"   {name} "), Span(shape, "spark"), Span(at, "ok"))
    if len(loaded) > _OVERLAYS:
        yield (Span(f"   +{len(loaded) - _OVERLAYS} more", "dim"),)


def _at(bins: Sequence[Bin], wanted: Bin) -> float | None:
    """What a replica achieved in the bin of its pool: bins are at the same places for every curve."""
    return next((one.good_per_second.median for one in bins if one.low == wanted.low), None)
