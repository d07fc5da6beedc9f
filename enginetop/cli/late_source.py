"""A source that is made when it is started: what it takes to look at engines is no part of a start."""

from __future__ import annotations

from collections.abc import Callable

from enginetop.fleet.ports import FleetSource
from enginetop.fleet.snapshot import FleetSnapshot


class LateSource:
    """A `FleetSource`: the one that `make` returns, which is called by `start`."""

    def __init__(self, make: Callable[[], FleetSource]) -> None:
        self._make = make
        self._source: FleetSource | None = None
        self._waiting: dict[object, Callable[[], None]] = {}
        self._ends: dict[object, Callable[[], None]] = {}

    def start(self) -> None:
        """Make it and begin; what `make` raises is raised."""
        source = self._source = self._make()
        for key, on_snapshot in self._waiting.items():
            self._ends[key] = source.subscribe(on_snapshot)
        self._waiting.clear()
        source.start()

    def stop(self) -> None:
        """See `FleetSource.stop`."""
        if self._source is not None:
            self._source.stop()

    def latest(self) -> FleetSnapshot | None:
        """See `FleetSource.latest`."""
        return None if self._source is None else self._source.latest()

    def subscribe(self, on_snapshot: Callable[[], None]) -> Callable[[], None]:
        """See `FleetSource.subscribe`."""
        if self._source is not None:
            return self._source.subscribe(on_snapshot)
        key = object()
        self._waiting[key] = on_snapshot

        def end() -> None:
            self._waiting.pop(key, None)
            self._ends.pop(key, lambda: None)()

        return end

    def finished(self) -> bool:
        """See `FleetSource.finished`."""
        return self._source is not None and self._source.finished()

    def request_refresh(self) -> None:
        """See `FleetSource.request_refresh`."""
        if self._source is not None:
            self._source.request_refresh()
