"""What a GPU library must offer, and how its errors reach us.

The calls mirror NVML in plain Python values, so that a test can stand in for the whole library. Numbers come
as the library gives them (milliwatts, percent, sentinels included); `decoding` turns them into ours.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Protocol

from enginetop.fleet.frozen import frozen

Handle = Any
"""An opaque device or event set of the library."""


class Code(IntEnum):
    """NVML return codes that we tell apart (`nvmlReturn_t`)."""

    UNINITIALIZED = 1
    NOT_SUPPORTED = 3
    NO_PERMISSION = 4
    NOT_FOUND = 6
    DRIVER_NOT_LOADED = 9
    TIMEOUT = 10
    LIBRARY_NOT_FOUND = 12
    FUNCTION_NOT_FOUND = 13
    GPU_IS_LOST = 15
    RESET_REQUIRED = 16
    VERSION_MISMATCH = 18
    NO_DATA = 21
    ARGUMENT_VERSION_MISMATCH = 25
    NOT_READY = 27
    GPU_NOT_FOUND = 28
    UNKNOWN = 999


class LibraryError(Exception):
    """A call failed. `code` is the NVML return code; the text is the library's own."""

    def __init__(self, code: int, text: str = "") -> None:
        super().__init__(text or f"NVML error {code}")
        self.code = code


@frozen
class XidEvent:
    """One critical error that the driver reported. `address` tells the device (see `GpuLibrary.address`)."""

    address: int
    xid: int
    gpu_instance: int


class GpuLibrary(Protocol):
    """NVML in plain values. Every method may raise `LibraryError` and nothing else."""

    def start(self) -> None:
        """Load and initialise; ImportError where what it needs of Python is not whole."""

    def stop(self) -> None:
        """Shut down; every handle is void afterwards."""

    def device_count(self) -> int: ...

    def device(self, index: int) -> Handle: ...

    def address(self, device: Handle) -> int:
        """A number that is the same for all handles of one device, also when the device no longer answers."""

    def uuid(self, device: Handle) -> str: ...

    def name(self, device: Handle) -> str: ...

    def utilization_percent(self, device: Handle) -> int: ...

    def memory_bytes(self, device: Handle) -> tuple[int, int]:
        """Used (without what the driver reserves, where it tells the two apart) and total."""

    def power_milliwatts(self, device: Handle) -> int: ...

    def power_limit_milliwatts(self, device: Handle) -> int:
        """The limit in force, the lowest of all that apply."""

    def temperature_celsius(self, device: Handle) -> int: ...

    def sm_clock_mhz(self, device: Handle) -> int: ...

    def clock_event_reasons(self, device: Handle) -> int:
        """Bit mask, see `enginetop.fleet.throttle`."""

    def mig_enabled(self, device: Handle) -> bool: ...

    def mig_slots(self, device: Handle) -> int:
        """How many MIG instances the GPU can hold; slots may be empty in between."""

    def mig_device(self, device: Handle, slot: int) -> Handle:
        """The instance in a slot; NOT_FOUND for an empty one."""

    def mig_ids(self, instance: Handle) -> tuple[int, int]:
        """Ids of the GPU instance and of the compute instance."""

    def mig_slices(self, instance: Handle) -> tuple[int, int, int]:
        """Slices of the GPU instance, slices of the compute instance, memory in MiB."""

    def process_ids(self, device: Handle) -> list[int]:
        """Pids of compute, MPS and graphics processes in the host's pid namespace."""

    def new_event_set(self) -> Handle: ...

    def watch_xid(self, device: Handle, events: Handle) -> None:
        """Add the device's critical errors to an event set."""

    def next_xid(self, events: Handle, timeout_ms: int) -> XidEvent | None:
        """Wait for the next one; None after the timeout."""

    def free_event_set(self, events: Handle) -> None: ...
