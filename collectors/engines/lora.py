"""`lora_requests_info` of vLLM: a gauge whose value is a time and whose labels list adapters.

Each combination of adapters that ever ran keeps its series; only the one with the newest time holds now.
"""

from __future__ import annotations

import math
from collections.abc import Collection

from collectors.engines.picks import samples
from collectors.page import Layout, Page
from enginetop.fleet.reading import Series

SERIES: tuple[Series, ...] = tuple(
    Series(measure, "", f"lora_requests_info {measure}")
    for measure in ("lora_running_adapters", "lora_waiting_adapters", "lora_slots_total")
)
"""What is worked out of a page that has the gauge, in the order of `adapters`."""


def stamps(layout: Layout, names: Collection[str]) -> tuple[int, ...]:
    """The samples of the gauge, under any of its names."""
    return tuple(index for index, _ in samples(layout, tuple(names)))


def adapters(page: Page, picks: Collection[int]) -> tuple[float, ...]:
    """How many adapters have running and waiting requests now, and how many fit; NaN where it is not told."""
    timed = [index for index in picks if math.isfinite(page.values[index])]
    if not timed:
        return (math.nan,) * len(SERIES)
    labels = page.layout.labels[max(timed, key=lambda index: page.values[index])]
    slots = labels.get("max_lora", "")
    return (
        _count(labels.get("running_lora_adapters", "")),
        _count(labels.get("waiting_lora_adapters", "")),
        float(slots) if slots.isascii() and slots.isdigit() and len(slots) < 10 else math.nan,
    )


def _count(names: str) -> float:
    """Different adapters in a list with commas."""
    return float(len({name.strip() for name in names.split(",")} - {""}))
