"""What is declared about an engine: which raw series mean which measure.

A table is matched against the lines of a page once per layout (`matching.py`); after that a page is read by
picking numbers. What is never summed: two spellings of one series (`vllm:x` and `vllm_x`, `x` and `x_total`),
an old and a new name, a total and its breakdown.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

from collectors.page import Layout
from enginetop.fleet.beyond_catalogue import MEASURE_KINDS
from enginetop.fleet.frozen import frozen
from enginetop.fleet.signals import MeasureKind

S = TypeVar("S")
T = TypeVar("T")
Labels = Mapping[str, str]


@frozen
class Row:
    """Raw series that mean a measure; several rows of one measure are added.

    `names` are the names it has had, newest first, without prefix and without `_total`. `where` keeps only
    children whose label has one of the values. `scale` turns the raw unit into ours. `position_label` holds
    the draft position. `lazy`: the engine creates the series at its first event, so that a page without it
    says nothing yet. `note` tells why a page may not have it. `prefixes` are the row's own where they are not
    the table's. `slo_labels`: the labels `ttft_seconds` and `tpot_seconds` name the objective of the count.
    `total_label`: the child without a value for this label is the total of the others and is taken in their
    place; where there is no such child the others are added. `unless` and `only_with` name families (without
    prefix and `_total`): the row counts only on pages that have none of the first, and one of the second if
    there are any. `unranked`: what its labels say of ranks does not make ranks of the page; its series are
    added for the whole replica. `since` is the release that exports it first,
    under any of its names, as far as is known; empty: not known, or all that are read do.
    """

    measure: str
    names: tuple[str, ...]
    where: Mapping[str, frozenset[str]] = field(default_factory=lambda: MappingProxyType({}))
    scale: float = 1.0
    position_label: str = ""
    lazy: bool = False
    note: str = ""
    prefixes: tuple[str, ...] = ()
    slo_labels: bool = False
    total_label: str = ""
    unless: tuple[str, ...] = ()
    only_with: tuple[str, ...] = ()
    unranked: bool = False
    since: str = ""

    @property
    def kind(self) -> MeasureKind:
        """How the raw series is exposed; the measure decides."""
        return MEASURE_KINDS[self.measure]


@frozen
class Table:
    """The rows of one engine.

    `prefixes` are in order of preference. `rank_labels`: of each group the first label that a series carries
    is part of its data-parallel rank; ranks are added. `shard_labels` name the tensor, pipeline or expert
    ranks that work on the same requests: of series that differ in these only, the one of the lowest shard is
    taken, and it keeps its identity from page to page when another shard has to stand in. `unsupported` gives
    the reason for measures that no version exports. `enable` says by measure what makes the engine export it:
    a flag, a setting or a release. `router_view`: series that name a backend are what is read here; without
    it they are a router's copies and are left out. `moving_names`: counters whose names (without prefix)
    begin so move without any progress of requests: time, HTTP, scrapes, arrivals, refusals. `counted`: of
    histograms whose names begin so (without prefix) the counts alone are looked at, which tell that there is
    progress: they have many lines, and no row names them.
    """

    title: str
    prefixes: tuple[str, ...]
    rows: tuple[Row, ...]
    rank_labels: tuple[tuple[str, ...], ...] = ()
    shard_labels: tuple[str, ...] = ()
    unsupported: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    enable: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    router_view: bool = False
    moving_names: tuple[str, ...] = ()
    counted: tuple[str, ...] = ()

    def sources(self) -> Mapping[str, tuple[str, ...]]:
        """Raw names by measure, in the preferred spelling, newest first; for documentation."""
        found: defaultdict[str, tuple[str, ...]] = defaultdict(tuple)
        for row in self.rows:
            prefix = (row.prefixes or self.prefixes)[0]
            suffix = "_total" if row.kind is MeasureKind.COUNTER else ""
            found[row.measure] += tuple(
                f"{prefix}{name}" if name.endswith(("_count", "_sum")) else f"{prefix}{name}{suffix}"
                for name in row.names
            )
        return dict(found)

    def since(self) -> Mapping[str, str]:
        """The first release by measure; one that any of its rows has always had is left out."""
        found: defaultdict[str, list[str]] = defaultdict(list)
        for row in self.rows:
            found[row.measure].append(row.since)
        return {measure: releases[0] for measure, releases in found.items() if all(releases)}

    def counted_names(self) -> tuple[str, ...]:
        """What `counted` names, with every prefix."""
        return tuple(prefix + name for prefix in self.prefixes for name in self.counted)

    def rank_of(self, labels: Labels) -> dict[str, str]:
        """The labels that name the data-parallel rank of a series; empty when none does."""
        found = (next((x for x in group if labels.get(x)), None) for group in self.rank_labels)
        return {label: labels[label] for label in found if label is not None}

    def is_on(self, layout: Layout) -> bool:
        """Whether a page holds any series of this engine."""
        return any(map(self.owns, layout.names))

    def owns(self, name: str) -> bool:
        """Whether the engine itself exposes this sample."""
        return name.startswith(self.prefixes)


def rank_key(rank: Mapping[str, str]) -> str:
    """The key of a rank in `Columns.ranks` and `Series.rank`."""
    return ",".join(rank.values())


class LayoutMemo(Generic[T]):
    """A function of a layout, computed once for each layout that is alive."""

    __slots__ = ("_compute", "_known")

    def __init__(self, compute: Callable[[Layout], T]) -> None:
        self._compute = compute
        self._known: WeakKeyDictionary[Layout, T] = WeakKeyDictionary()

    def __call__(self, layout: Layout) -> T:
        try:
            return self._known[layout]
        except KeyError:
            made = self._known[layout] = self._compute(layout)
            return made


class SidesMemo(Generic[S, T]):
    """A function of what a layout tells and of side pages, computed again when either is another object."""

    __slots__ = ("_compute", "_made")

    def __init__(self, compute: Callable[[S, Mapping[str, Any]], T]) -> None:
        self._compute = compute
        self._made: tuple[S, Mapping[str, Any], T] | None = None

    def __call__(self, facts: S, sides: Mapping[str, Any]) -> T:
        made = self._made
        if made is None or made[0] is not facts or made[1] is not sides:
            made = self._made = (facts, sides, self._compute(facts, sides))
        return made[2]
