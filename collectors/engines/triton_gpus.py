"""The GPUs that Triton's page tells of. It knows their UUIDs, which stand for their names too; no indexes."""

from __future__ import annotations

import math
from collections.abc import Mapping

from collectors.engines.picks import Pick, samples, value_at
from collectors.gpu.exporter_tables import TRITON
from collectors.page import Layout, Page
from enginetop.fleet.frozen import frozen
from enginetop.fleet.gpu_device import GpuDevice

_FIGURES = {figure.field: figure for figure in TRITON.figures}
MOST_GPUS = 64
"""More than any machine has: a page with more is wrong."""


@frozen
class GpuPicks:
    """The samples of one GPU by what they tell."""

    uuid: str
    picks: Mapping[str, Pick]


def gpu_picks(layout: Layout) -> tuple[GpuPicks, ...]:
    """The GPUs of a page, in the order of their UUIDs."""
    found: dict[str, dict[str, Pick]] = {}
    for field, figure in _FIGURES.items():
        for index, labels in samples(layout, figure.names):
            if uuid := labels.get("gpu_uuid"):
                found.setdefault(uuid, {})[field] = index
    return tuple(GpuPicks(uuid, found[uuid]) for uuid in sorted(found)[:MOST_GPUS])


def gpus_of(page: Page, gpus: tuple[GpuPicks, ...]) -> tuple[GpuDevice, ...]:
    """The GPUs with the numbers of a page; what is no number is not known."""
    return tuple(
        GpuDevice(
            index,
            one.uuid,
            one.uuid,
            utilization_ratio=_told(page, one, "utilization_ratio"),
            memory_used_bytes=_told(page, one, "memory_used_bytes"),
            memory_total_bytes=_told(page, one, "memory_total_bytes"),
            power_watts=_told(page, one, "power_watts"),
            power_limit_watts=_told(page, one, "power_limit_watts"),
            source="triton",
        )
        for index, one in enumerate(gpus)
    )


def _told(page: Page, one: GpuPicks, field: str) -> float | None:
    value = value_at(page, one.picks.get(field))
    return value if math.isfinite(value) and 0 <= value <= _FIGURES[field].most else None
