"""GPU items of recordings and snapshots, read back.

The item is the contract's `gpus` item, which `enginetop.fleet.document` writes. Whatever a file holds, the
result is bounded and clean: a value of the wrong kind or out of its range is None.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import islice

from collectors.json_fields import number
from collectors.sanitise import clean_text
from enginetop.fleet.snapshot import GpuDevice

MAX_ITEMS = 4096
_MAX_TEXT = 256
_MAX_WORDS = 32
_MAX_URLS = 256
_STATES = frozenset({"ok", "lost", "error"})


def gpu_from_item(item: object, position: int = 0) -> GpuDevice | None:
    """The device of one item; None when it is not a JSON object.

    `position` is the item's place in its list and stands for a missing `index`. A missing state is `ok`, an
    unknown one `error` with a note. What the contract does not name (`note`, `replicas`, whose it is) is read
    if it is there.
    """
    if not isinstance(item, Mapping):
        return None
    index = _whole(item.get("index"), 1_000_000)
    state = _text(item.get("state", "ok"))
    note = _text(item.get("note"))
    if state not in _STATES:
        state, note = "error", note or f"unknown state {state!r}"
    replicas = item.get("replicas")
    return GpuDevice(
        index=position if index is None else index,
        uuid=_text(item.get("uuid")),
        name=_text(item.get("name")),
        mig=_text(item.get("mig")) or None,
        utilization_ratio=_number(item.get("utilization_ratio"), 0.0, 1.0),
        memory_used_bytes=_number(item.get("memory_used_bytes"), 0.0),
        memory_total_bytes=_number(item.get("memory_total_bytes"), 0.0),
        unified_memory=item.get("unified_memory") is True,
        power_watts=_number(item.get("power_watts"), 0.0),
        power_limit_watts=_number(item.get("power_limit_watts"), 0.0),
        temperature_celsius=_number(item.get("temperature_celsius"), -273.15),
        sm_clock_mhz=_number(item.get("sm_clock_mhz"), 0.0),
        throttle_reasons=_texts(item.get("throttle_reasons"), _MAX_WORDS),
        last_xid=_whole(item.get("last_xid"), 1_000_000),
        state=state,
        source=_text(item.get("source")) or "nvml",
        note=note,
        replicas=_texts(replicas, _MAX_URLS) if isinstance(replicas, list) else None,
        pod=_text(item.get("pod")),
        container=_text(item.get("container")),
        changed_at=_number(item.get("changed_at"), 0.0),
        joined_by=_text(item.get("joined_by")),
        old=item.get("old") is True,
    )


def gpus_from_items(items: object) -> tuple[GpuDevice, ...]:
    """The devices of a record's `gpus` list, at most `MAX_ITEMS`; what is no item is left out."""
    if not isinstance(items, list):
        return ()
    found = (gpu_from_item(item, position) for position, item in enumerate(islice(items, MAX_ITEMS)))
    return tuple(device for device in found if device is not None)


def _number(value: object, low: float, high: float = math.inf) -> float | None:
    found = number(value)
    return found if found is not None and low <= found <= high else None


def _whole(value: object, high: int) -> int | None:
    number = _number(value, 0.0, high)
    return int(number) if number is not None and number.is_integer() else None


def _text(value: object) -> str:
    return clean_text(value, _MAX_TEXT) if isinstance(value, str) else ""


def _texts(value: object, limit: int) -> tuple[str, ...]:
    words: Iterable[object] = islice(value, limit) if isinstance(value, list) else ()
    return tuple(text for text in map(_text, words) if text)
