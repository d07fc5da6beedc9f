"""A table matched against the lines of a page: which samples are picked, and what the page cannot tell."""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from types import MappingProxyType

from collectors.engines.mapping import Table
from collectors.engines.samples import ROUTER_LABELS as ROUTER_LABELS
from collectors.engines.samples import Samples
from collectors.page import Layout, Page
from enginetop.fleet.frozen import frozen
from enginetop.fleet.gpu_device import GpuDevice
from enginetop.fleet.model import Role
from enginetop.fleet.reading import (
    EMPTY,
    Absence,
    Columns,
    ConfigValue,
    EngineFlags,
    Identity,
    Reading,
    Series,
)
from enginetop.fleet.slots import Pick, pick_of

SIMULATED_GAUGE = "enginetop_simulated"
"""Our simulator marks its pages with it, so that nobody takes drawn numbers for real ones."""

_NO_FLAGS = EngineFlags()
_NO_SETTINGS: Mapping[str, ConfigValue] = MappingProxyType({})
_NO_WORKERS: Mapping[int, Role] = MappingProxyType({})


@frozen(eq=False)
class Plan:
    """A table matched against one layout. Shared by every page and target with these lines.

    `columns.series` are the picked samples, then the extra series whose values the reader supplies.
    `named_start` is a start token that the labels tell; it holds where no sample tells the time of the start.
    """

    columns: Columns
    picks: tuple[int, ...]
    scales: tuple[tuple[int, float], ...]
    birth_picks: tuple[int, ...]
    progress_picks: tuple[int, ...]
    start_pick: int | None
    simulated_pick: int | None
    named_start: float | None = None
    pick: Pick = field(init=False, repr=False)
    pick_births: Pick = field(init=False, repr=False)
    pick_progress: Pick = field(init=False, repr=False)
    """The numbers at `picks`, `birth_picks` and `progress_picks`, taken from a page all at once."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "pick", pick_of(self.picks))
        object.__setattr__(self, "pick_births", pick_of(self.birth_picks))
        object.__setattr__(self, "pick_progress", pick_of(self.progress_picks))

    def reading(
        self,
        at: float,
        page: Page,
        values: Sequence[float],
        identity: Identity,
        *,
        moving: Sequence[float] = (),
        live_progress: bool = True,
        flags: EngineFlags = _NO_FLAGS,
        config: Mapping[str, ConfigValue] = _NO_SETTINGS,
        workers: Mapping[int, Role] = _NO_WORKERS,
        gpus: tuple[GpuDevice, ...] = (),
    ) -> Reading:
        """The reading of a page whose `values` are those of this plan: all that the plan knows is filled in.

        `moving` are further numbers that change while there is progress.
        """
        return Reading(
            at=at,
            columns=self.columns,
            values=values,
            births=self.births(page),
            start_token=self.start_token(page),
            progress_token=self.progress_token(page, moving),
            live_progress=live_progress,
            identity=replace(identity, simulated=True) if self._is_simulated(page) else identity,
            flags=flags,
            config=config,
            bad_lines=page.bad_lines,
            workers=workers,
            gpus=gpus,
        )

    def values(self, page: Page, extra: Sequence[float] = ()) -> array[float]:
        """The numbers of a page, parallel to `columns.series`."""
        picked = array("d", self.pick(page.values))
        for at, scale in self.scales:
            picked[at] *= scale
        picked.extend(extra)
        return picked

    def births(self, page: Page) -> array[float]:
        """The `_created` values, parallel to `columns.birth_groups`."""
        return array("d", self.pick_births(page.values))

    def start_token(self, page: Page) -> float | None:
        """The start time on the page, else the token of the labels, if there is one."""
        started = math.nan if self.start_pick is None else page.values[self.start_pick]
        return started if 0 < started < math.inf else self.named_start

    def progress_token(self, page: Page, extra: Sequence[float] = ()) -> int:
        """A number that changes when any of the engine's own counters or histogram counts does."""
        # Bytes, since NaN is unequal to itself and would pass for movement.
        moved = array("d", self.pick_progress(page.values))
        moved.extend(extra)
        return hash(moved.tobytes())

    def _is_simulated(self, page: Page) -> bool:
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
