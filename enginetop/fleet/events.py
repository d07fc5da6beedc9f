"""What happened to a replica: a short list, newest last."""

from __future__ import annotations

from collections.abc import Mapping

from enginetop.fleet.model import ReplicaState
from enginetop.fleet.reading import ConfigValue
from enginetop.fleet.snapshot import Event

_KEPT = 64
_LULLS = frozenset({"ok -> idle", "idle -> ok"})


def is_lull(event: Event) -> bool:
    """Whether it is a turn between work and none: under little load there is one every few seconds."""
    return event.kind == "state_changed" and event.detail in _LULLS


class EventLog:
    """The last events of one replica, found by comparing each new fact with the one before."""

    def __init__(self) -> None:
        self._events: tuple[Event, ...] = ()
        self._config: Mapping[str, ConfigValue] = {}
        self._known: dict[str, float | str] = {}
        self._preempting = False

    def events(self) -> tuple[Event, ...]:
        """The events, newest last."""
        return self._events

    def _add(self, event: Event) -> None:
        events = (*self._events, event)
        if len(events) > _KEPT:  # a restart must not give way to a lull
            place = next((place for place, one in enumerate(events) if is_lull(one)), 0)
            events = events[:place] + events[place + 1 :]
        self._events = events

    def appeared(self, at: float, why: str = "") -> None:
        """The target answered for the first time, or is listed again."""
        self._add(Event(at, "appeared", why))

    def gone(self, at: float, why: str) -> None:
        """Nothing lists the target any more."""
        self._add(Event(at, "gone", why))

    def restarted(self, at: float, why: str, old_version: str | None, new_version: str | None) -> None:
        """The process began anew: how that was seen, and a change of version if there is one."""
        changed = old_version is not None and new_version is not None and old_version != new_version
        version = f", {old_version} -> {new_version}" if changed else ""
        self._add(Event(at, "restarted", f"{why}{version}"))

    def state_changed(
        self, at: float, old: ReplicaState, new: ReplicaState, reasons: tuple[str, ...]
    ) -> None:
        """The state is another one; the first reason says why."""
        why = f": {reasons[0]}" if reasons else ""
        self._add(Event(at, "state_changed", f"{old.value} -> {new.value}{why}"))

    def configured(self, at: float, config: Mapping[str, ConfigValue]) -> bool:
        """Compare with the last known value of each setting, and say whether one is another now.

        A value seen first, or missing, is no change.
        """
        changed = False
        if config is self._config:
            return changed
        self._config = config
        for key, setting in config.items():
            if setting.value is None or setting.value != setting.value:  # nothing, or not a number
                continue
            old = self._known.get(key)
            if old is not None and old != setting.value:
                self._add(Event(at, "config_changed", f"{key} {old} -> {setting.value}"))
                changed = True
            self._known[key] = setting.value
        return changed

    def preemptions(self, at: float, in_window: float | None) -> None:
        """Whether there were preemptions in the window: an event where that changed; None: not known."""
        if in_window is None:
            return
        preempting = in_window > 0
        if preempting != self._preempting:
            kind = "preemptions_began" if preempting else "preemptions_ended"
            self._add(Event(at, kind))
        self._preempting = preempting
