"""The GPUs of a simulated fleet: power, clocks and temperature that follow what the engines do."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import count

from enginetop.fleet.model import Target
from enginetop.fleet.snapshot import GpuDevice, GpuReport
from enginetop.simulator.load_meter import Load
from enginetop.simulator.scenario import EngineSettings

GIB = 1024**3
NAME = "Simulated H100 80GB"
MEMORY_BYTES = 80 * GIB
POWER_LIMIT_WATTS = 700.0
IDLE_WATTS = 90.0
FULL_CLOCK_MHZ = 1980.0
THROTTLED_CLOCK_MHZ = 555.0
THROTTLED_CELSIUS = 89.0
THERMAL_REASON = "hw_thermal"

_INLET_CELSIUS = 32.0
_CELSIUS_PER_WATT = 0.075
_WARMING_SECONDS = 30.0
_DECODE_WATTS = 300.0
_COMPUTE_WATTS = 300.0
_THROTTLED_POWER_RATIO = 0.55
_ENGINE_MEMORY_RATIO = 0.92
_EMPTY_MEMORY_RATIO = 0.007


class GpuState:
    """One GPU through time; `throttled`: too hot to run at full clock whenever it works."""

    def __init__(self, index: int, throttled: bool) -> None:
        self.index = index
        self._throttled = throttled
        self._celsius = _INLET_CELSIUS + _CELSIUS_PER_WATT * IDLE_WATTS
        self._at: float | None = None

    def read(self, load: Load, url: str, now: float) -> GpuDevice:
        """The GPU at `now` (seconds) under `load`; `url` is the replica that runs on it."""
        hot = self._throttled and load.up
        watts = self._watts(load, hot, now)
        return GpuDevice(
            index=self.index,
            uuid=f"GPU-5100a7ed-0000-0000-0000-{self.index:012x}",
            name=NAME,
            utilization_ratio=load.busy_ratio,
            memory_used_bytes=round(
                MEMORY_BYTES * (_ENGINE_MEMORY_RATIO if load.up else _EMPTY_MEMORY_RATIO)
            ),
            memory_total_bytes=MEMORY_BYTES,
            power_watts=round(watts, 1),
            power_limit_watts=POWER_LIMIT_WATTS,
            temperature_celsius=round(self._warm(watts, hot, now)),
            sm_clock_mhz=THROTTLED_CLOCK_MHZ if hot else FULL_CLOCK_MHZ,
            throttle_reasons=(THERMAL_REASON,) if hot else (),
            source="simulated",
            replicas=(url,) if load.up else (),
        )

    def _watts(self, load: Load, hot: bool, now: float) -> float:
        above_idle = _DECODE_WATTS * load.busy_ratio + _COMPUTE_WATTS * load.compute_ratio
        if hot:
            above_idle *= _THROTTLED_POWER_RATIO
        flicker = 1.0 + 0.02 * math.sin(now * 1.7 + self.index)
        return min(POWER_LIMIT_WATTS, (IDLE_WATTS + above_idle) * flicker)

    def _warm(self, watts: float, hot: bool, now: float) -> float:
        """Temperature after drifting towards that of the present power; the first look finds it there."""
        goal = THROTTLED_CELSIUS if hot else _INLET_CELSIUS + _CELSIUS_PER_WATT * watts
        elapsed = math.inf if self._at is None else max(0.0, now - self._at)
        self._at = now
        self._celsius = goal + (self._celsius - goal) * math.exp(-elapsed / _WARMING_SECONDS)
        return self._celsius


class SimulatedGpus:
    """GPU source of a simulated fleet: one report of all GPUs, each naming the replica that runs on it.

    `engines` and `urls` are those of the replicas in order; `loads` is asked, from whatever thread reads, for
    their loads in the same order.
    """

    def __init__(
        self,
        host: str,
        urls: Sequence[str],
        engines: Sequence[EngineSettings],
        loads: Callable[[], Sequence[Load]],
    ) -> None:
        self._host = host
        self._urls = tuple(urls)
        self._loads = loads
        indices = count()
        self._states = [
            [GpuState(next(indices), engine.gpu_throttled) for _ in range(engine.gpus)] for engine in engines
        ]

    def open(self, targets: Sequence[Target]) -> None:
        """Nothing to prepare."""

    def read(self, now: float) -> Sequence[GpuReport]:
        """One report; a replica that is down leaves its GPUs idle."""
        devices = [
            state.read(load, url, now)
            for states, url, load in zip(self._states, self._urls, self._loads(), strict=True)
            for state in states
        ]
        return (GpuReport(self._host, now, tuple(devices)),)

    def close(self) -> None:
        """Nothing to release."""
