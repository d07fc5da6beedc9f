"""What the core asks of the outside, and what front ends may ask of the engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from enginetop.fleet.model import Target
from enginetop.fleet.snapshot import FleetSnapshot, GpuReport


class FleetSource(Protocol):
    """Where a front end gets its snapshots: the live engine, a replay, or a fake in a test."""

    def start(self) -> None:
        """Begin; returns at once."""

    def stop(self) -> None:
        """End and release everything; returns when all is closed."""

    def latest(self) -> FleetSnapshot | None:
        """The newest snapshot, or None before the first tick."""

    def subscribe(self, on_snapshot: Callable[[], None]) -> Callable[[], None]:
        """Call `on_snapshot` from the engine's own thread after each tick; returns the call that ends it."""

    def finished(self) -> bool:
        """Whether no snapshot will ever follow the newest one (a replay at its end)."""

    def request_refresh(self) -> None:
        """Scrape every target as soon as possible instead of at its next turn."""


class GpuSource(Protocol):
    """Where GPU figures come from: NVML, the simulator, a fake. Used from one thread of its own."""

    def open(self, targets: Sequence[Target]) -> None:
        """Prepare for these targets (to join processes with replicas). Never raises for a missing library."""

    def read(self, now: float) -> Sequence[GpuReport]:
        """The GPUs now, at most one report a host; what fails is data in the report."""

    def close(self) -> None:
        """Release the library."""
