"""A table matched against the lines of a page: which samples are picked, and what the page cannot tell."""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from collectors.engines.mapping import Table
from collectors.engines.samples import ROUTER_LABELS as ROUTER_LABELS
from collectors.engines.samples import Samples
from collectors.page import Layout, Page
from enginetop.fleet.reading import EMPTY, Absence, Columns, Series

SIMULATED_GAUGE = "enginetop_simulated"
"""Our simulator marks its pages with it, so that nobody takes drawn numbers for real ones."""


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
    ranks: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
) -> Plan:
    """Match `table`, and what companions add to any engine's page, against the lines of a page.

    `extra` are series that the reader computes, `estimated` and `absent` what it knows about measures beyond
    the rows, `ranks` the ranks of `extra` by key.
    """
    samples = Samples(table, layout)
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
            ranks=MappingProxyType({**samples.ranks, **ranks}),
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
