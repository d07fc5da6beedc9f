"""From the series of a GPU exporter to devices, by the exporter's table. Pure.

What is not a number, a marker for "not known" or out of its range is missing, never 0.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from collectors.gpu.exporter_tables import EXPORTERS, Fault, Figure, GpuExporter
from collectors.sanitise import clean_text
from enginetop.fleet.frozen import frozen
from enginetop.fleet.gpu_device import GpuDevice
from enginetop.fleet.throttle import throttle_words

MOST_DEVICES = 4096
"""Devices of one page, their parts included; more is a mistake."""

_MOST_TEXT = 128
_MOST_MASK = 2.0**32

Sample = tuple[str, Mapping[str, str], float]
"""Name, labels and value."""


@frozen(eq=False)
class HostGpus:
    """The GPUs of one host as an exporter names it; `host` empty: it does not.

    `mark` changes when any number of the exporter's does: so it tells that it has looked again.
    """

    host: str
    gpus: tuple[GpuDevice, ...]
    mark: int


@dataclass(slots=True)
class _Told:
    """What was said of one device: by name, the samples with their labels."""

    labels: Mapping[str, str]
    samples: defaultdict[str, list[tuple[Mapping[str, str], float]]] = field(
        default_factory=lambda: defaultdict(list)
    )


_Place = tuple[str, str, str]
"""Host, GPU, part."""


def hosts_of(samples: Iterable[Sample], own_labels: Mapping[str, str] | None = None) -> Sequence[HostGpus]:
    """The GPUs by host. Samples of other things than a known exporter's GPUs count for nothing.

    `own_labels` are those that a scraper added: they tell of the exporter's pod, not of the one it serves.
    """
    listed = list(samples)
    names = {name for name, _, _ in listed}
    found: list[HostGpus] = []
    for exporter in EXPORTERS:
        known = spellings(exporter, names)
        if known:
            found += _hosts(exporter, known, listed, own_labels or {})
    return found


def spellings(exporter: GpuExporter, names: Iterable[str]) -> Mapping[str, str]:
    """The table's names by those of a page, where they differ by a prefix that was configured."""
    wanted = exporter.names
    found: dict[str, str] = {}
    for name in names:
        if name in wanted:
            found[name] = name
        elif exporter.any_prefix and (bare := _behind_prefix(name, exporter)) in wanted:
            found[name] = bare
    return found


def _behind_prefix(name: str, exporter: GpuExporter) -> str:
    """A name from the exporter's own prefix on; empty for what has none, or is another exporter's."""
    if any(name.startswith(other.prefixes) for other in EXPORTERS if other is not exporter):
        return ""
    starts = [at for prefix in exporter.prefixes if (at := name.find(f"_{prefix}")) > 0]
    return name[min(starts) + 1 :] if starts else ""


def _hosts(
    exporter: GpuExporter, known: Mapping[str, str], samples: Iterable[Sample], own_labels: Mapping[str, str]
) -> list[HostGpus]:
    devices: dict[_Place, _Told] = {}
    marks: defaultdict[str, int] = defaultdict(int)
    for name, labels, value in samples:
        host = _word(labels, exporter.labels.host)
        if name.startswith(exporter.prefixes) or name in known:
            marks[host] = hash((marks[host], name, value if value == value else None))
        bare = known.get(name)
        if bare is None:
            continue
        gpu = _word(labels, exporter.labels.uuid) or _word(labels, exporter.labels.index)
        part = _word(labels, exporter.labels.part)
        if _word(labels, exporter.labels.profile).lower() in exporter.labels.whole_profiles:
            part = ""
        if not gpu or (len(devices) >= MOST_DEVICES and (host, gpu, part) not in devices):
            continue
        told = devices.setdefault((host, gpu, part), _Told(labels))
        told.samples[bare].append((labels, value))
    by_host: defaultdict[str, list[GpuDevice]] = defaultdict(list)
    for place, told in sorted(devices.items(), key=_order):
        if exporter.telling and told.samples.keys().isdisjoint(exporter.telling):
            continue
        by_host[place[0]].append(_device(exporter, place, told, own_labels, position=len(by_host[place[0]])))
    return [
        HostGpus(host, tuple(_with_whole_gpus(gpus, exporter)), marks[host]) for host, gpus in by_host.items()
    ]


def _order(entry: tuple[_Place, _Told]) -> tuple[str, int, str, int, str]:
    (host, gpu, part), told = entry
    index = told.labels.get("gpu", told.labels.get("gpu_id", ""))
    return host, _whole(index, 0), gpu, _whole(part, -1), part


def _device(
    exporter: GpuExporter, place: _Place, told: _Told, own_labels: Mapping[str, str], position: int
) -> GpuDevice:
    labels, (_, gpu, part) = exporter.labels, place
    figures: dict[str, Any] = {}
    for figure in exporter.figures:
        if figures.get(figure.field) is None:
            figures[figure.field] = _number(figure, told, exporter)
    mask, xid = figures.pop("throttle_reasons", None), figures.pop("last_xid", None)
    faults = [fault.note for fault in exporter.faults if _is_so(fault, told)]
    namespace, pod = (_served(told, own_labels, names) for names in (labels.namespace, labels.pod))
    uuid = _word(told.labels, labels.uuid)
    profile = _word(told.labels, labels.profile) or "unknown"
    return GpuDevice(
        _whole(_word(told.labels, labels.index), position),
        f"{uuid}/{part}" if part else uuid,
        _word(told.labels, labels.name) or uuid or f"GPU {gpu}",
        mig=profile if part else None,
        **figures,
        throttle_reasons=throttle_words(int(mask)) if mask is not None and mask < _MOST_MASK else (),
        last_xid=int(xid) if xid else None,
        state="error" if faults else "ok",
        source=exporter.source,
        note="; ".join(faults),
        pod="/".join(filter(None, (namespace, pod))) if pod else "",
        container=_served(told, own_labels, labels.container) if pod else "",
    )


def _with_whole_gpus(gpus: Sequence[GpuDevice], exporter: GpuExporter) -> Iterable[GpuDevice]:
    """The power of a split GPU is one figure, told beside each of its parts: it stands with the GPU alone."""
    wholes = {gpu.uuid for gpu in gpus if gpu.mig is None}
    made: set[str] = set()
    for gpu in gpus:
        if gpu.mig is None:
            yield gpu
            continue
        uuid = gpu.uuid.partition("/")[0]
        if uuid and uuid not in wholes and uuid not in made:
            made.add(uuid)
            of_gpu = [one for one in gpus if one.uuid.partition("/")[0] == uuid]
            parts = sum(one.mig is not None for one in of_gpu)
            yield GpuDevice(
                gpu.index,
                uuid,
                gpu.name,
                power_watts=_largest(one.power_watts for one in of_gpu),
                power_limit_watts=_largest(one.power_limit_watts for one in of_gpu),
                temperature_celsius=_largest(one.temperature_celsius for one in of_gpu),
                sm_clock_mhz=_largest(one.sm_clock_mhz for one in of_gpu),
                source=exporter.source,
                note=f"split, parts: {parts}; memory and utilisation stand with them",
            )
        yield replace(gpu, power_watts=None, power_limit_watts=None)


def _number(figure: Figure, told: _Told, exporter: GpuExporter) -> float | None:
    needed = [_value(name, figure, told, exporter) for name in figure.names]
    known = [value for value in needed if value is not None]
    if len(known) < len(needed):
        return None
    more = (_value(name, figure, told, exporter) for name in figure.may_add)
    total = (sum(known) + sum(value for value in more if value is not None)) * figure.scale
    return total if total <= figure.most else None


def _value(name: str, figure: Figure, told: _Told, exporter: GpuExporter) -> float | None:
    """The number of one name: of the samples that come first in `where` the largest."""
    best: tuple[int, float] | None = None
    for labels, value in told.samples.get(name, ()):
        rank = _rank(labels, figure.where)
        if rank is None or not _is_known(value, exporter):
            continue
        if best is None or (rank, -value) < (best[0], -best[1]):
            best = (rank, value)
    return None if best is None else best[1]


def _rank(labels: Mapping[str, str], where: tuple[str, tuple[str, ...]] | None) -> int | None:
    if where is None:
        return 0
    word = labels.get(where[0], "")
    return where[1].index(word) if word in where[1] else None


def _is_known(value: float, exporter: GpuExporter) -> bool:
    return math.isfinite(value) and value >= 0 and not any(a <= value <= b for a, b in exporter.sentinels)


def _is_so(fault: Fault, told: _Told) -> bool:
    return any(
        value == fault.value and _rank(labels, fault.where) is not None
        for labels, value in told.samples.get(fault.name, ())
    )


def _served(told: _Told, own_labels: Mapping[str, str], names: tuple[str, ...]) -> str:
    """Whom a device serves. A scraper that added labels of these names left the exporter's beside them."""
    for name in names:
        exported = told.labels.get(f"exported_{name}", "")
        if exported:
            return clean_text(exported, _MOST_TEXT)
        value = told.labels.get(name, "")
        if value and value != own_labels.get(name):
            return clean_text(value, _MOST_TEXT)
    return ""


def _word(labels: Mapping[str, str], names: tuple[str, ...]) -> str:
    return clean_text(next((labels[name] for name in names if labels.get(name)), ""), _MOST_TEXT)


def _whole(text: str, otherwise: int) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 7 else otherwise


def _largest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)
