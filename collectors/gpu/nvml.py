"""NVML through nvidia-ml-py. The only module that imports `pynvml`, and only where there is a driver: its
thousands of names take 2.5 MB.
"""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar

from collectors.gpu.library import Code, Handle, LibraryError, XidEvent

T = TypeVar("T")

_DRIVER = "libnvidia-ml.so.1"

_OLD_DRIVER = frozenset({Code.FUNCTION_NOT_FOUND, Code.ARGUMENT_VERSION_MISMATCH})
"""Errors of a call that this driver does not know yet; an older call may do."""


def _newest(call: Callable[[], T], older: Callable[[], T]) -> T:
    try:
        return call()
    except LibraryError as error:
        if error.code not in _OLD_DRIVER:
            raise
    return older()


class PynvmlLibrary:
    """`GpuLibrary` over the `pynvml` module of nvidia-ml-py."""

    def __init__(self, module: ModuleType | None = None) -> None:
        """None: the module is imported at the first `start` that finds a driver (ImportError)."""
        self._nvml: Any = None
        self._errors: tuple[type[Exception], ...] = ()
        if module is not None:
            self._take(module)

    def _take(self, module: ModuleType) -> None:
        self._nvml = module
        self._errors = (module.NVMLError, UnicodeDecodeError, ctypes.ArgumentError)

    def _call(self, name: str, *arguments: object) -> Any:
        try:
            return getattr(self._nvml, name)(*arguments)
        except self._errors as error:
            raise LibraryError(int(getattr(error, "value", Code.UNKNOWN)), str(error)) from None

    def start(self) -> None:
        if self._nvml is None:
            self._import()
        self._call("nvmlInit")

    def _import(self) -> None:
        try:
            ctypes.CDLL(_DRIVER)
        except OSError as error:
            raise LibraryError(Code.LIBRARY_NOT_FOUND, str(error)) from None
        import pynvml

        self._take(pynvml)

    def stop(self) -> None:
        self._call("nvmlShutdown")

    def device_count(self) -> int:
        return int(self._call("nvmlDeviceGetCount"))

    def device(self, index: int) -> Handle:
        return self._call("nvmlDeviceGetHandleByIndex", index)

    def address(self, device: Handle) -> int:
        return int(ctypes.cast(device, ctypes.c_void_p).value or 0)

    def uuid(self, device: Handle) -> str:
        return str(self._call("nvmlDeviceGetUUID", device))

    def name(self, device: Handle) -> str:
        return str(self._call("nvmlDeviceGetName", device))

    def utilization_percent(self, device: Handle) -> int:
        return int(self._call("nvmlDeviceGetUtilizationRates", device).gpu)

    def memory_bytes(self, device: Handle) -> tuple[int, int]:
        info = _newest(
            lambda: self._call("nvmlDeviceGetMemoryInfo", device, self._nvml.nvmlMemory_v2),
            lambda: self._call("nvmlDeviceGetMemoryInfo", device),
        )
        return int(info.used), int(info.total)

    def power_milliwatts(self, device: Handle) -> int:
        return int(self._call("nvmlDeviceGetPowerUsage", device))

    def power_limit_milliwatts(self, device: Handle) -> int:
        return int(self._call("nvmlDeviceGetEnforcedPowerLimit", device))

    def temperature_celsius(self, device: Handle) -> int:
        sensor = self._nvml.NVML_TEMPERATURE_GPU
        return _newest(
            lambda: int(self._call("nvmlDeviceGetTemperatureV", device, sensor)),
            lambda: int(self._call("nvmlDeviceGetTemperature", device, sensor)),
        )

    def sm_clock_mhz(self, device: Handle) -> int:
        return int(self._call("nvmlDeviceGetClockInfo", device, self._nvml.NVML_CLOCK_SM))

    def clock_event_reasons(self, device: Handle) -> int:
        return _newest(
            lambda: int(self._call("nvmlDeviceGetCurrentClocksEventReasons", device)),
            lambda: int(self._call("nvmlDeviceGetCurrentClocksThrottleReasons", device)),
        )

    def mig_enabled(self, device: Handle) -> bool:
        current, _pending = self._call("nvmlDeviceGetMigMode", device)
        return bool(current == self._nvml.NVML_DEVICE_MIG_ENABLE)

    def mig_slots(self, device: Handle) -> int:
        return int(self._call("nvmlDeviceGetMaxMigDeviceCount", device))

    def mig_device(self, device: Handle, slot: int) -> Handle:
        return self._call("nvmlDeviceGetMigDeviceHandleByIndex", device, slot)

    def mig_ids(self, instance: Handle) -> tuple[int, int]:
        gpu_instance = int(self._call("nvmlDeviceGetGpuInstanceId", instance))
        return gpu_instance, int(self._call("nvmlDeviceGetComputeInstanceId", instance))

    def mig_slices(self, instance: Handle) -> tuple[int, int, int]:
        found = self._call("nvmlDeviceGetAttributes_v2", instance)
        return int(found.gpuInstanceSliceCount), int(found.computeInstanceSliceCount), int(found.memorySizeMB)

    def process_ids(self, device: Handle) -> list[int]:
        pids = set(self._running("Compute", device))
        for kind in ("Graphics", "MPSCompute"):
            try:
                pids.update(self._running(kind, device))
            except LibraryError:
                continue  # both are refinements: many devices know neither
        return sorted(pids)

    def _running(self, kind: str, device: Handle) -> list[int]:
        processes = _newest(
            lambda: self._call(f"nvmlDeviceGet{kind}RunningProcesses_v3", device),
            lambda: self._call(f"nvmlDeviceGet{kind}RunningProcesses_v2", device),
        )
        return [int(process.pid) for process in processes]

    def new_event_set(self) -> Handle:
        return self._call("nvmlEventSetCreate")

    def watch_xid(self, device: Handle, events: Handle) -> None:
        self._call("nvmlDeviceRegisterEvents", device, self._nvml.nvmlEventTypeXidCriticalError, events)

    def next_xid(self, events: Handle, timeout_ms: int) -> XidEvent | None:
        try:
            event = self._call("nvmlEventSetWait_v2", events, timeout_ms)
        except LibraryError as error:
            if error.code == Code.TIMEOUT:
                return None
            raise
        if event.eventType != self._nvml.nvmlEventTypeXidCriticalError:
            return None
        return XidEvent(self.address(event.device), int(event.eventData), int(event.gpuInstanceId))

    def free_event_set(self, events: Handle) -> None:
        self._call("nvmlEventSetFree", events)


def load_pynvml() -> PynvmlLibrary:
    """The library of this machine; ImportError when nvidia-ml-py is not installed."""
    if importlib.util.find_spec("pynvml") is None:
        raise ImportError("pynvml")
    return PynvmlLibrary()
