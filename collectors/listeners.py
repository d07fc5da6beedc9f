"""Who wants to know of new snapshots."""

from __future__ import annotations

from collections.abc import Callable


class Listeners:
    """Calls to make after each snapshot. May be joined and left from any thread, also during a call."""

    def __init__(self) -> None:
        self._calls: tuple[Callable[[], None], ...] = ()

    def subscribe(self, call: Callable[[], None]) -> Callable[[], None]:
        """Add a call; returns what ends it."""
        self._calls = (*self._calls, call)

        def unsubscribe() -> None:
            self._calls = tuple(kept for kept in self._calls if kept is not call)

        return unsubscribe

    def notify(self, on_fault: Callable[[Exception], None]) -> None:
        """Make every call; one that raises is reported to `on_fault` and stops none of the others."""
        for call in self._calls:
            try:
                call()
            except Exception as error:  # noqa: BLE001 - a listener's trouble is not the engine's end
                on_fault(error)
