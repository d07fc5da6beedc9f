"""The GPU library as a plain Python object, for what a compiled fake cannot do."""

from __future__ import annotations

from typing import Any

from collectors.gpu.library import Code, LibraryError, XidEvent


class PlainLibrary:
    """One healthy GPU without MIG and without events."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def start(self) -> None:
        self.calls.append("start")

    def stop(self) -> None:
        self.calls.append("stop")

    def device_count(self) -> int:
        return 1

    def device(self, index: int) -> Any:
        return f"gpu{index}"

    def address(self, device: Any) -> int:
        return hash(device)

    def uuid(self, device: Any) -> str:
        return f"GPU-{device}"

    def name(self, device: Any) -> str:
        return "NVIDIA L4"

    def utilization_percent(self, device: Any) -> int:
        return 25

    def memory_bytes(self, device: Any) -> tuple[int, int]:
        return 6, 24

    def power_milliwatts(self, device: Any) -> int:
        return 71_500

    def power_limit_milliwatts(self, device: Any) -> int:
        return 72_000

    def temperature_celsius(self, device: Any) -> int:
        return 0

    def sm_clock_mhz(self, device: Any) -> int:
        return 0

    def clock_event_reasons(self, device: Any) -> int:
        return 0

    def mig_enabled(self, device: Any) -> bool:
        raise LibraryError(Code.NOT_SUPPORTED)

    def mig_slots(self, device: Any) -> int:
        raise LibraryError(Code.NOT_SUPPORTED)

    def mig_device(self, device: Any, slot: int) -> Any:
        raise LibraryError(Code.NOT_FOUND)

    def mig_ids(self, instance: Any) -> tuple[int, int]:
        raise LibraryError(Code.NOT_SUPPORTED)

    def mig_slices(self, instance: Any) -> tuple[int, int, int]:
        raise LibraryError(Code.NOT_SUPPORTED)

    def process_ids(self, device: Any) -> list[int]:
        raise LibraryError(Code.NO_PERMISSION)

    def new_event_set(self) -> Any:
        raise LibraryError(Code.NOT_SUPPORTED)

    def watch_xid(self, device: Any, events: Any) -> None:
        raise LibraryError(Code.NOT_SUPPORTED)

    def next_xid(self, events: Any, timeout_ms: int) -> XidEvent | None:
        return None

    def free_event_set(self, events: Any) -> None:
        self.calls.append("free")
