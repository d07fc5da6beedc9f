"""Why a GPU runs below its full clock: the words of `GpuDevice.throttle_reasons`."""

from __future__ import annotations

from enginetop.fleet.frozen import frozen
from enginetop.fleet.gpu_device import GpuDevice


@frozen
class ThrottleReason:
    """One bit of NVML's `nvmlClocksEventReason*` mask; `DCGM_FI_DEV_CLOCKS_EVENT_REASONS` has the same.

    `alarming` False: part of normal operation, shown but no reason to wake anybody.
    """

    bit: int
    word: str
    title: str
    alarming: bool = False


THROTTLE_REASONS: tuple[ThrottleReason, ...] = (
    ThrottleReason(0x1, "idle", "idle"),
    ThrottleReason(0x2, "app_clocks", "clocks set by an administrator"),
    ThrottleReason(0x4, "sw_power_cap", "at its power limit"),
    ThrottleReason(0x8, "hw_slowdown", "hardware slowdown", alarming=True),
    ThrottleReason(0x10, "sync_boost", "held back by its sync boost group"),
    ThrottleReason(0x20, "sw_thermal", "above its operating temperature"),
    ThrottleReason(0x40, "hw_thermal", "hardware thermal slowdown", alarming=True),
    ThrottleReason(0x80, "hw_power_brake", "power brake from outside", alarming=True),
    ThrottleReason(0x100, "display_clock", "clocks set by a display"),
)

ALARMING_THROTTLE_WORDS: frozenset[str] = frozenset(
    reason.word for reason in THROTTLE_REASONS if reason.alarming
)


def held_back_by(gpu: GpuDevice) -> tuple[str, ...]:
    """The alarming words of why a GPU runs below its clock; none of figures that are old."""
    return () if gpu.old else tuple(word for word in gpu.throttle_reasons if word in ALARMING_THROTTLE_WORDS)


def throttle_words(mask: int) -> tuple[str, ...]:
    """The words of a mask in the order of its bits; a bit without a name reads `other_0x200`."""
    words = [reason.word for reason in THROTTLE_REASONS if mask & reason.bit]
    named = sum(reason.bit for reason in THROTTLE_REASONS)
    words += [f"other_{1 << n:#x}" for n in range(mask.bit_length()) if mask & ~named & (1 << n)]
    return tuple(words)
