"""Time that jumps, for the engine's event loop: nobody sleeps, and a busy machine is late for nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from selectors import SelectorKey
from typing import TypeVar

import pytest

from collectors.event_loop import EngineEventLoop

T = TypeVar("T")


class VirtualTime:
    """Stands in for the module `time` of code that looks at a steady clock."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        """See `time`."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """See `time`: holds up the event loop that calls it."""
        self.now += seconds


class _VirtualLoop(EngineEventLoop):
    """When it has nothing to do, it is the time of its next timer."""

    def __init__(self, clock: VirtualTime) -> None:
        super().__init__()
        self._clock = clock
        self._look = self._timed.select
        self._timed.select = self._select  # type: ignore[method-assign]

    def time(self) -> float:
        return self._clock.now

    def _select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        assert timeout is not None, "nothing will ever happen"
        found = self._look(0.0)
        if not found:
            self._clock.now += max(0.0, timeout)
            self._timed._left = self._clock.now
        return found


def in_virtual_time(
    monkeypatch: pytest.MonkeyPatch, work: Callable[[VirtualTime], Coroutine[object, object, T]]
) -> T:
    """Run `work`, without sockets and threads, on the engine's event loop."""
    clock = VirtualTime()
    monkeypatch.setattr("collectors.event_loop.time", clock)
    monkeypatch.setattr("collectors.patience.time", clock)
    with asyncio.Runner(loop_factory=lambda: _VirtualLoop(clock)) as runner:
        return runner.run(work(clock))
