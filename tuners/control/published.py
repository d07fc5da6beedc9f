"""The views of a controller's changes, for readers in other threads."""

from __future__ import annotations

from collections.abc import Callable

from enginetop.fleet.change import ChangeView


class PublishedViews:
    """The newest view of each change, in the order in which they moved, and who is told of a new one."""

    def __init__(self) -> None:
        self._views: dict[str, ChangeView] = {}
        self._listeners: tuple[Callable[[], None], ...] = ()

    def publish(self, change: str, view: ChangeView) -> None:
        """Show this view of a change."""
        others = {known: shown for known, shown in self._views.items() if known != change}
        # replaced, never changed: other threads read it
        self._views = {**others, change: view}
        self.notify()

    def of(self, change: str) -> ChangeView | None:
        """The view of a change; None: it has none."""
        return self._views.get(change)

    def latest(self) -> tuple[ChangeView, ...]:
        """All views, the newest first."""
        return tuple(reversed(self._views.values()))

    def subscribe(self, on_change: Callable[[], None]) -> Callable[[], None]:
        """Call `on_change` from the publisher's thread; returns the call that ends it."""
        self._listeners = (*self._listeners, on_change)

        def unsubscribe() -> None:
            self._listeners = tuple(kept for kept in self._listeners if kept is not on_change)

        return unsubscribe

    def notify(self) -> None:
        """Tell all who have subscribed."""
        for listener in self._listeners:
            listener()
