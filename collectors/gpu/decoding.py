"""From the library's numbers to ours: units, sentinels, MIG profiles, parts with unified memory. Pure."""

from __future__ import annotations

import math
import re
from pathlib import Path

_ALL_ONES = frozenset({-1, 0xFFFF_FFFF, 0xFFFF_FFFF_FFFF_FFFF})
"""NVML's "not available", as signed, 32 bit and 64 bit numbers."""

_INTEGRATED_PART = re.compile(r"\b(GB10|Thor|Orin|Xavier|Jetson|Tegra)\b", re.IGNORECASE)
"""Products whose GPU has no memory of its own (a GB100 or a GH200 has, and does not match)."""

_PROFILE_IN_NAME = re.compile(r"\bMIG\s+((?:\d+c\.)?\d+g\.\d+gb[\w.+-]*)")

_MIB = 1024**2
_GIB = 1024**3


def known(raw: int | None) -> float | None:
    """The number, or None where the library has none (all ones)."""
    return None if raw is None or raw in _ALL_ONES else float(raw)


def watts(milliwatts: int | None) -> float | None:
    """Milliwatts as watts."""
    value = known(milliwatts)
    return None if value is None else value / 1000.0


def ratio(percent: int | None) -> float | None:
    """A percentage as a ratio in 0..1; None outside of it."""
    return None if percent is None or not 0 <= percent <= 100 else percent / 100.0


def memory(used_and_total: tuple[int, int] | None) -> tuple[float | None, float | None]:
    """Used and total bytes. A total of 0 is how some drivers say "not supported": nothing is known then."""
    if used_and_total is None:
        return None, None
    used, total = known(used_and_total[0]), known(used_and_total[1])
    return (used, total) if total else (None, None)


def has_unified_memory(name: str) -> bool:
    """Whether the product shares the host's memory (DGX Spark, Jetson)."""
    return _INTEGRATED_PART.search(name) is not None


def host_memory(proc: Path) -> tuple[float | None, float | None]:
    """Used and total bytes of the host: `MemTotal - MemAvailable` and `MemTotal` of `/proc/meminfo`."""
    try:
        text = (proc / "meminfo").read_text("ascii", "replace")
    except OSError:
        return None, None
    found = dict(re.findall(r"^(MemTotal|MemAvailable):\s+(\d+) kB", text, re.MULTILINE))
    if "MemTotal" not in found or "MemAvailable" not in found:
        return None, None
    total, available = int(found["MemTotal"]) * 1024.0, int(found["MemAvailable"]) * 1024.0
    return max(0.0, total - available), total


def mig_profile(name: str, slices: tuple[int, int, int] | None, board_bytes: float | None) -> str:
    """The profile of a MIG instance (`1g.10gb`, `1c.3g.40gb`): from its name, else from its slices.

    A profile's gigabytes are the instance's share of the board in whole eighths, rounded up, times the
    board's gigabytes (the rule of NVIDIA's go-nvlib). "unknown" when neither source tells.
    """
    named = _PROFILE_IN_NAME.search(name)
    if named:
        return named.group(1)
    if slices is None or not board_bytes:
        return "unknown"
    gpu_slices, compute_slices, memory_mib = slices
    eighths = math.ceil(memory_mib * _MIB / board_bytes * 8)
    gigabytes = round(eighths / 8 * math.ceil(board_bytes / _GIB))
    part = "" if compute_slices == gpu_slices else f"{compute_slices}c."
    return f"{part}{gpu_slices}g.{gigabytes}gb"
