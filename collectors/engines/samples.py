"""The samples of one layout as a table sees them: which count, whose they are, and why others are missing."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from collectors.engines import companion
from collectors.engines.counted import child_of, counted
from collectors.engines.mapping import Labels, Row, Table, rank_key
from collectors.page import Layout
from enginetop.fleet.frozen import frozen
from enginetop.fleet.histogram import canonical_bound
from enginetop.fleet.model import Quality
from enginetop.fleet.reading import Absence, Part, Series
from enginetop.fleet.signals import MEASURES, MeasureKind

ROUTER_LABELS = frozenset({"server", "worker_addr"})
"""A series with one of these labels is a router's view of an engine, never the engine's own."""

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


@frozen
class Found:
    """A sample that counts towards a measure. `family` is its name without suffix, for its `_created`."""

    series: Series
    index: int
    family: str
    scale: float


@frozen
class _Spelling:
    """A family as a page may write it: its name, the one name of all its spellings, its samples' suffixes."""

    family: str
    plain: str
    parts: tuple[tuple[str, Part], ...]


class Samples:
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

    def of_row(self, row: Row) -> list[Found]:
        """The samples of a row: for each rank those of the best spelling that the rank has."""
        if not self._applies(row):
            return []
        best: dict[str, list[Found]] = {}
        for spelling in self._spellings(row):
            for rank, found in self._children(row, spelling).items():
                best.setdefault(rank, found)
        return [item for found in best.values() for item in found]

    def created(self, item: Found) -> int | None:
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
            if self._has(row.unless):
                continue
            hint = enable.get(row.measure, "")
            spellings = self._spellings(row) if self._applies(row) else ()
            if any(self._declared(one.family, one.parts) for one in spellings):
                note = (row.note if row.lazy else "") or "exported, but nothing counted there yet"
                reasons[row.measure] = Absence(Quality.UNKNOWN, note)
            elif row.lazy:
                reasons[row.measure] = Absence(Quality.UNKNOWN, row.note or "not on the page yet", hint)
            else:
                whys = filter(None, (self._table.unsupported.get(row.measure), row.note))
                note = "; ".join(whys) or f"not on the pages of this version of {title}"
                reasons[row.measure] = Absence(Quality.UNSUPPORTED, note, hint)
        return reasons

    def _applies(self, row: Row) -> bool:
        return not self._has(row.unless) and (not row.only_with or self._has(row.only_with))

    def _has(self, families: tuple[str, ...]) -> bool:
        """Whether the engine's own samples of one of these families are on the page."""
        names = (
            p + family + end
            for family in families
            for p in self._table.prefixes
            for end in ("", "_total", "_count")
        )
        return any(self._own(index) for name in names for index in self._by_name.get(name, ()))

    def _spellings(self, row: Row) -> Iterator[_Spelling]:
        """Family names in order of preference."""
        prefixes = row.prefixes or self._table.prefixes
        for name in row.names:
            for prefix in prefixes:
                family, plain = prefix + name, prefixes[0] + name
                if row.kind is MeasureKind.HISTOGRAM:
                    yield _Spelling(family, plain, _HISTOGRAM_PARTS)
                else:
                    if row.kind is MeasureKind.COUNTER:
                        yield _Spelling(family, plain, (("_total", Part.VALUE),))
                    yield _Spelling(family, plain, (("", Part.VALUE),))

    def _children(self, row: Row, spelling: _Spelling) -> dict[str, list[Found]]:
        """By rank, the samples of one family that the row wants."""
        layout, table, family = self._layout, self._table, spelling.family
        found: dict[str, dict[tuple[object, ...], Found]] = {}
        wanted = [(part, i) for suffix, part in spelling.parts for i in self._wanted(row, family + suffix)]
        children = [layout.labels[index] for _, index in wanted]
        for at in counted(children, row.total_label, table.shard_labels):
            (part, index), labels = wanted[at], children[at]
            le, position = math.nan, -1
            if part is Part.BUCKET and (le := _number(labels.get("le"))) != le:
                continue
            if row.position_label and (position := _position(labels.get(row.position_label))) < 0:
                continue
            rank = {} if row.unranked else table.rank_of(labels)
            key = rank_key(rank)
            if rank:
                self.ranks.setdefault(key, MappingProxyType(rank))
            slo = _slo(labels) if row.slo_labels else None
            scaled = part is not Part.COUNT and part is not Part.BUCKET
            child = child_of(labels, table.shard_labels)
            # Spellings come and go (a proxy that escapes colons, another front end): the series stays.
            group = f"{spelling.plain}{sorted(child)}"
            # One bound written in two ways ("0.3", "0.30") is one bucket.
            bound = canonical_bound(le) if part is Part.BUCKET else None
            name = group if bound is None else f"{group} {bound!r}"
            own_group = "" if part is Part.VALUE else group
            series = Series(row.measure, key, name, part, le * row.scale, position, own_group, slo)
            identity = (part, child, bound)
            found.setdefault(key, {})[identity] = Found(series, index, family, row.scale if scaled else 1.0)
        return {key: list(samples.values()) for key, samples in found.items()}

    def _wanted(self, row: Row, name: str) -> Iterator[int]:
        """The engine's own samples of this name that have the labels that the row asks for."""
        for index in self._by_name.get(name, ()):
            labels = self._layout.labels[index]
            if self._own(index) and all(labels.get(k) in want for k, want in row.where.items()):
                yield index

    def _own(self, index: int) -> bool:
        return self._table.router_view or ROUTER_LABELS.isdisjoint(self._layout.labels[index])

    def _counts(self, name: str) -> bool:
        """Whether a name is one of the engine's counters or histogram counts."""
        if not self._table.owns(name) or self._moves_alone(name):
            return False
        types = self._layout.types
        for suffix, kinds in _COUNTING_SUFFIXES:
            if name.endswith(suffix):
                declared = types.get(name) or types.get(name.removesuffix(suffix)) or "unknown"
                return declared in kinds
        return types.get(name) == "counter"

    def _moves_alone(self, name: str) -> bool:
        prefix = next((p for p in self._table.prefixes if name.startswith(p)), "")
        return name.removeprefix(prefix).startswith(self._table.moving_names)

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
