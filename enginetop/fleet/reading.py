"""A reading: one good page of one target in engine-neutral terms.

The shape (`Columns`) is shared by every reading that comes from pages with the same lines; only the numbers
differ. That is what keeps a thousand replicas cheap: nothing but an array is built per scrape.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from types import MappingProxyType

from enginetop.fleet.frozen import frozen
from enginetop.fleet.gpu_device import GpuDevice
from enginetop.fleet.model import EngineKind, Quality, Role
from enginetop.fleet.quickly_made import quickly_made

EMPTY: Mapping[str, str] = MappingProxyType({})

UNHEALTHY_BACKENDS = "unhealthy_backends"
"""The setting in which a gateway's reading names the backends that it does not route to."""


class Part(StrEnum):
    """Which part of a measure a series is."""

    VALUE = "value"
    BUCKET = "bucket"
    SUM = "sum"
    COUNT = "count"


@frozen
class Series:
    """One raw series that counts towards a measure.

    Several series may share (measure, rank, part, le, position): counters and gauges of one rank are then
    summed (finish reasons, priorities). `key` names the raw series (sample name and labels as exposed) and is
    its identity from page to page, also across layouts. `le` is the bucket's upper bound; `position` the
    draft position. `group` names the label set (family and labels without `le`) of a histogram's series: they
    restart together. It may stay empty where (measure, rank) has one label set only. `slo` is the objective
    (TTFT and TPOT in seconds) that the series counts requests within.
    """

    measure: str
    rank: str
    key: str
    part: Part = Part.VALUE
    le: float = math.nan
    position: int = -1
    group: str = ""
    slo: tuple[float, float] | None = None


@frozen
class Absence:
    """Why a measure is not among the columns: not exported, or not seen yet (lazily created series).

    `enable` says what would make the engine export it, where something would.
    """

    quality: Quality
    note: str = ""
    enable: str = ""

    @property
    def told(self) -> str:
        """Reason and remedy in one line."""
        return f"{self.note}; to have it: {self.enable}" if self.enable else self.note


@frozen(eq=False, weakref_slot=True)
class Columns:
    """The shape of readings, shared between them; usable as a weak dictionary key.

    `series[i]` describes `Reading.values[i]`. `ranks` maps a rank's key to its labels in the page's order; a
    page that names no rank has none. `birth_groups[j]` lists the series whose counting began at
    `Reading.births[j]` (a `_created` value, or any token that changes exactly when those series restart from
    zero). `absent` explains each measure of `MEASURES` that has no series here; one without an entry is
    unsupported.
    """

    series: tuple[Series, ...]
    ranks: Mapping[str, Mapping[str, str]] = field(default_factory=lambda: MappingProxyType({}))
    birth_groups: tuple[tuple[int, ...], ...] = ()
    absent: Mapping[str, Absence] = field(default_factory=lambda: MappingProxyType({}))
    estimated: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Measures that are estimates rather than the engine's own figure, with the reason in words."""


@frozen
class ConfigValue:
    """A configured value and where it was read (`cache_config_info`, `/props`, ...)."""

    value: int | float | str | bool | None
    source: str


@frozen
class Identity:
    """Who answered. None means that the page does not say. `worker` is the id by which gateways know it.

    `product` names which router or gateway it is. `sources` says by field where it was read (`/version`,
    `label model_name`); a field without an entry follows from the engine itself.
    """

    engine: EngineKind
    engine_version: str | None = None
    model: str | None = None
    role: Role = Role.AGGREGATED
    stack: str | None = None
    simulated: bool = False
    worker: int | None = None
    product: str | None = None
    sources: Mapping[str, str] = field(default_factory=lambda: EMPTY)


@quickly_made
class EngineFlags:
    """What the engine itself says about its operation; None means that it does not say."""

    sleeping: bool | None = None
    paused: bool | None = None
    draining: bool | None = None


@quickly_made(eq=False)
class Reading:
    """One good page. `values` is parallel to `columns.series`; NaN means that the page holds no number there.

    `start_token` changes exactly when the process restarts (a start time, or an opaque token); None when the
    page has none. It resets every series. `progress_token` differs from the previous reading's whenever any
    of the engine's own counters or histogram counts moved (`process_*`, `python_*`, `http_*` never count), or
    a declared live-progress series did. `live_progress` says that the engine has a series that moves while a
    request is being decoded. `workers` are the roles that a gateway
    tells of the workers behind it, by their id. `gpus` are those that the page itself tells of: the
    replica's own.
    """

    at: float
    columns: Columns
    values: Sequence[float]
    births: Sequence[float] = ()
    start_token: float | None = None
    progress_token: int = 0
    live_progress: bool = True
    identity: Identity = Identity(EngineKind.UNKNOWN)
    flags: EngineFlags = EngineFlags()
    config: Mapping[str, ConfigValue] = field(default_factory=lambda: MappingProxyType({}))
    bad_lines: int = 0
    workers: Mapping[int, Role] = field(default_factory=lambda: MappingProxyType({}))
    gpus: tuple[GpuDevice, ...] = ()
