"""A table matched against the lines of a page: which samples are picked, and what the page cannot tell."""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from collectors.engines import companion
from collectors.engines.counted import child_of, counted
from collectors.engines.mapping import Labels, Row, Table, rank_key
from collectors.page import Layout, Page
from enginetop.fleet.model import Quality
from enginetop.fleet.reading import EMPTY, Absence, Columns, Part, Series
from enginetop.fleet.signals import MEASURES, MeasureKind

ROUTER_LABELS = frozenset({"server", "worker_addr"})
"""A series with one of these labels is a router's view of an engine, never the engine's own."""

SIMULATED_GAUGE = "enginetop_simulated"
"""Our simulator marks its pages with it, so that nobody takes drawn numbers for real ones."""

MAX_POSITIONS = 256
"""Draft positions past this are a mistake of the page."""

_COUNTING_SUFFIXES = (
    ("_total", frozenset({"counter", "unknown", "untyped"})),
    ("_count", frozenset({"counter", "histogram", "summary", "unknown", "untyped"})),
)

_HISTOGRAM_PARTS: tuple[tuple[str, Part], ...] = (
    ("_bucket", Part.BUCKET),
    ("_sum", Part.SUM),
    ("_count", Part.COUNT),
)


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """A table matched against one layout. Shared by every page and target with these lines.

    `columns.series` are the picked samples, then the extra series whose values the reader supplies.
    """

    columns: Columns
    picks: tuple[int, ...]
    scales: tuple[tuple[int, float], ...]
    birth_picks: tuple[int, ...]
    progress_picks: tuple[int, ...]
    start_pick: int | None
    simulated_pick: int | None

    def values(self, page: Page, extra: Sequence[float] = ()) -> array[float]:
        """The numbers of a page, parallel to `columns.series`."""
        numbers = page.values
        picked = array("d", [numbers[i] for i in self.picks])
        for at, scale in self.scales:
            picked[at] *= scale
        picked.extend(extra)
        return picked

    def births(self, page: Page) -> array[float]:
        """The `_created` values, parallel to `columns.birth_groups`."""
        return array("d", [page.values[i] for i in self.birth_picks])

    def start_token(self, page: Page) -> float | None:
        """The process start time of the page, if it has one."""
        if self.start_pick is None or math.isnan(page.values[self.start_pick]):
            return None
        return page.values[self.start_pick]

    def progress_token(self, page: Page, extra: Sequence[float] = ()) -> int:
        """A number that changes when any of the engine's own counters or histogram counts does."""
        # Bytes, since NaN is unequal to itself and would pass for movement.
        moved = array("d", [page.values[i] for i in self.progress_picks])
        moved.extend(extra)
        return hash(moved.tobytes())

    def simulated(self, page: Page) -> bool:
        """Whether the page says that it comes from a simulator."""
        return self.simulated_pick is not None and page.values[self.simulated_pick] > 0


def compile_layout(
    table: Table,
    layout: Layout,
    extra: Sequence[Series] = (),
    estimated: Mapping[str, str] = EMPTY,
    absent: Mapping[str, Absence] = MappingProxyType({}),
) -> Plan:
    """Match `table`, and what companions add to any engine's page, against the lines of a page.

    `extra` are series that the reader computes, `estimated` and `absent` what it knows about measures beyond
    the rows.
    """
    samples = _Samples(table, layout)
    found = [item for row in samples.rows for item in samples.of_row(row)]
    series = (*(item.series for item in found), *extra)
    present = {one.measure for one in series}
    births: defaultdict[int, list[int]] = defaultdict(list)
    for at, item in enumerate(found):
        if (created := samples.created(item)) is not None:
            births[created].append(at)
    reasons = {**samples.absences(), **absent}
    return Plan(
        columns=Columns(
            series=series,
            ranks=MappingProxyType(samples.ranks),
            birth_groups=tuple(tuple(group) for group in births.values()),
            absent=MappingProxyType({m: why for m, why in reasons.items() if m not in present}),
            estimated=MappingProxyType({m: why for m, why in estimated.items() if m in present}),
        ),
        picks=tuple(item.index for item in found),
        scales=tuple((at, item.scale) for at, item in enumerate(found) if item.scale != 1.0),
        birth_picks=tuple(births),
        progress_picks=samples.progress(),
        start_pick=samples.first("process_start_time_seconds"),
        simulated_pick=samples.first(SIMULATED_GAUGE),
    )


@dataclass(frozen=True, slots=True)
class _Found:
    """A sample that counts towards a measure. `family` is its name without suffix, for its `_created`."""

    series: Series
    index: int
    family: str
    scale: float


class _Samples:
    """The samples of one layout, as a table sees them."""

    def __init__(self, table: Table, layout: Layout) -> None:
        self.rows = (*table.rows, *companion.ROWS)
        self._table = table
        self._layout = layout
        self._by_name: defaultdict[str, list[int]] = defaultdict(list)
        for index, name in enumerate(layout.names):
            self._by_name[name].append(index)
        self._created = {
            (layout.names[i], child_of(layout.labels[i])): i
            for name, indexes in self._by_name.items()
            if name.endswith("_created")
            for i in indexes
        }
        self.ranks: dict[str, Mapping[str, str]] = {}

    def first(self, name: str) -> int | None:
        """Index of the first sample with this name."""
        return next(iter(self._by_name.get(name, ())), None)

    def of_row(self, row: Row) -> list[_Found]:
        """The samples of a row: for each rank those of the best spelling that the rank has."""
        best: dict[str, list[_Found]] = {}
        for family, parts in self._spellings(row):
            for rank, found in self._children(row, family, parts).items():
                best.setdefault(rank, found)
        return [item for found in best.values() for item in found]

    def created(self, item: _Found) -> int | None:
        """Index of the sample that holds the birth time of `item`, if the page has one."""
        if not self._created:
            return None
        return self._created.get((f"{item.family}_created", child_of(self._layout.labels[item.index])))

    def progress(self) -> tuple[int, ...]:
        """Every counter and histogram count of the engine itself, in an order that lines cannot disturb."""
        keys = self._layout.keys
        own = (i for name, ix in self._by_name.items() if self._counts(name) for i in ix if self._own(i))
        return tuple(sorted(own, key=lambda i: keys[i]))

    def absences(self) -> dict[str, Absence]:
        """Why each measure would be missing if no series were found for it."""
        title, enable = self._table.title, self._table.enable
        reasons = {
            measure: Absence(
                Quality.UNSUPPORTED,
                self._table.unsupported.get(measure) or f"not exported by {title}",
                enable.get(measure, ""),
            )
            for measure in MEASURES
        }
        for row in self.rows:
            hint = enable.get(row.measure, "")
            if any(self._declared(family, parts) for family, parts in self._spellings(row)):
                note = (row.note if row.lazy else "") or "exported, but nothing counted there yet"
                reasons[row.measure] = Absence(Quality.UNKNOWN, note)
            elif row.lazy:
                reasons[row.measure] = Absence(Quality.UNKNOWN, row.note or "not on the page yet", hint)
            else:
                whys = filter(None, (self._table.unsupported.get(row.measure), row.note))
                note = "; ".join(whys) or f"not on the pages of this version of {title}"
                reasons[row.measure] = Absence(Quality.UNSUPPORTED, note, hint)
        return reasons

    def _spellings(self, row: Row) -> Iterator[tuple[str, tuple[tuple[str, Part], ...]]]:
        """Family names in order of preference, each with the suffixes of its samples."""
        for name in row.names:
            for prefix in row.prefixes or self._table.prefixes:
                family = prefix + name
                if row.kind is MeasureKind.HISTOGRAM:
                    yield family, _HISTOGRAM_PARTS
                else:
                    if row.kind is MeasureKind.COUNTER:
                        yield family, (("_total", Part.VALUE),)
                    yield family, (("", Part.VALUE),)

    def _children(self, row: Row, family: str, parts: Sequence[tuple[str, Part]]) -> dict[str, list[_Found]]:
        """By rank, the samples of one family that the row wants."""
        layout, table = self._layout, self._table
        found: dict[str, dict[tuple[object, ...], _Found]] = {}
        wanted = [(part, i) for suffix, part in parts for i in self._wanted(row, family + suffix)]
        children = [layout.labels[index] for _, index in wanted]
        for at in counted(children, row.total_label, table.shard_labels):
            (part, index), labels = wanted[at], children[at]
            le, position = math.nan, -1
            if part is Part.BUCKET and (le := _number(labels.get("le"))) != le:
                continue
            if row.position_label and (position := _position(labels.get(row.position_label))) < 0:
                continue
            rank = table.rank_of(labels)
            key = rank_key(rank)
            if rank:
                self.ranks.setdefault(key, MappingProxyType(rank))
            slo = _slo(labels) if row.slo_labels else None
            scaled = part is not Part.COUNT and part is not Part.BUCKET
            child = child_of(labels, table.shard_labels)
            group = "" if part is Part.VALUE else f"{family}{sorted(child)}"
            series = Series(row.measure, key, self._key(index), part, le * row.scale, position, group, slo)
            # One bound written in two ways ("0.3", "0.30") is one bucket.
            identity = (part, child, le if part is Part.BUCKET else None)
            found.setdefault(key, {})[identity] = _Found(series, index, family, row.scale if scaled else 1.0)
        return {key: list(samples.values()) for key, samples in found.items()}

    def _wanted(self, row: Row, name: str) -> Iterator[int]:
        """The engine's own samples of this name that have the labels that the row asks for."""
        for index in self._by_name.get(name, ()):
            labels = self._layout.labels[index]
            if self._own(index) and all(labels.get(k) in want for k, want in row.where.items()):
                yield index

    def _key(self, index: int) -> str:
        """What names a series from page to page: name and labels, without its shard."""
        labels, shards = self._layout.labels[index], self._table.shard_labels
        if not any(label in labels for label in shards):
            return self._layout.keys[index]
        return f"{self._layout.names[index]}{sorted((k, v) for k, v in labels.items() if k not in shards)}"

    def _own(self, index: int) -> bool:
        return self._table.router_view or ROUTER_LABELS.isdisjoint(self._layout.labels[index])

    def _counts(self, name: str) -> bool:
        """Whether a name is one of the engine's counters or histogram counts."""
        if not self._table.owns(name):
            return False
        types = self._layout.types
        for suffix, kinds in _COUNTING_SUFFIXES:
            if name.endswith(suffix):
                declared = types.get(name) or types.get(name.removesuffix(suffix)) or "unknown"
                return declared in kinds
        return types.get(name) == "counter"

    def _declared(self, family: str, parts: Sequence[tuple[str, Part]]) -> bool:
        """Whether the page announces the family: by its TYPE line, or by children other than the wanted."""
        types = self._layout.types
        return any(
            family + suffix in self._by_name or family + suffix in types for suffix, _ in (*parts, ("", 0))
        )


def _number(text: str | None) -> float:
    """A bound as a float (`0.3`, `+Inf`); NaN when it is none."""
    try:
        return float(text) if text is not None else math.nan
    except ValueError:
        return math.nan


def _slo(labels: Labels) -> tuple[float, float] | None:
    """The objective that a companion's count names, None when it names none."""
    ttft, tpot = _number(labels.get("ttft_seconds")), _number(labels.get("tpot_seconds"))
    return (ttft, tpot) if math.isfinite(ttft) and math.isfinite(tpot) else None


def _position(text: str | None) -> int:
    """A draft position, -1 when the label is none."""
    if text is None or not (text.isascii() and text.isdigit()) or len(text) > 4:
        return -1
    return int(text) if int(text) < MAX_POSITIONS else -1
