"""One GPU in few words: its name, its memory, what holds it back, where its figures are from."""

from __future__ import annotations

from enginetop.alerts.gpu_checks import HOT_CELSIUS
from enginetop.fleet.snapshot import GpuDevice
from enginetop.fleet.throttle import held_back_by
from tui.view import numbers


def gpu_name(gpu: GpuDevice) -> str:
    """The model, with the profile of a MIG instance."""
    return f"{gpu.name} MIG {gpu.mig}" if gpu.mig else gpu.name


def memory_text(gpu: GpuDevice) -> str:
    """Memory in use of all there is, in GiB: `70.0/80.0`."""
    return f"{numbers.byte_count(gpu.memory_used_bytes)}/{numbers.byte_count(gpu.memory_total_bytes)}"


def is_held_back(gpu: GpuDevice) -> bool:
    """Whether it runs below its clock for a reason that is no normal operation."""
    return bool(held_back_by(gpu))


def is_hot(gpu: GpuDevice) -> bool:
    """Whether its temperature stands out; old figures do not tell."""
    heat = gpu.temperature_celsius
    return heat is not None and heat > HOT_CELSIUS and not gpu.old


def provenance(gpu: GpuDevice, now: float) -> str:
    """Where figures of an exporter come from, how old they are, and how it was found whom they belong to."""
    if gpu.changed_at is None:
        return ""
    age = numbers.age(now - gpu.changed_at)
    return f"{gpu.source}, {age} old{f', joined by {gpu.joined_by}' if gpu.joined_by else ''}"
