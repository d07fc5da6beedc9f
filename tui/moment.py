"""Which moment of the fleet is shown: the newest, one at which the picture was frozen, or one of the past."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from enginetop.fleet.change import FINAL_STATES, ChangeView
from enginetop.fleet.ports import ChangeControl, FleetSource, Playback
from enginetop.fleet.snapshot import FleetSnapshot
from tui.time_travel import TimeTravel
from tui.timeline import Timeline
from tui.view.picture import Picture
from tui.view.verdict import is_silent

_FRESH_SECONDS = 0.5
"""A countdown that was painted so lately is not behind by a second yet."""


class Moment:
    """Makes the picture of the moment that is shown.

    `always` is a picture with what stays the same in all of them. `playback` is the source itself when it
    plays a recording; `control` tells of changes. `clock` measures how long the picture has been frozen or
    without news, in monotonic seconds; `now` is Unix time here. Neither is the time of the snapshots.
    """

    def __init__(
        self,
        source: FleetSource,
        always: Picture,
        *,
        control: ChangeControl | None = None,
        playback: Playback | None = None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.source, self.playback = source, playback
        self.travel = TimeTravel(Timeline())
        self.snapshot: FleetSnapshot | None = None
        """The newest one that was taken, or the one at which the picture was frozen."""
        self.frozen_at: float | None = None
        """By `clock`, when the picture was frozen; None: it runs."""
        self.notice = ""
        """One line about the program itself, such as a source that could not start."""
        self._always, self._control = always, control
        self._clock, self._now = clock, now
        self._changes: tuple[ChangeView, ...] = ()
        self._heard_at = self._changes_heard_at = self._changes_at = clock()

    @property
    def live(self) -> FleetSnapshot | None:
        """The newest snapshot; of a frozen picture that is not one of the past, what is shown."""
        return self.source.latest() if self.travel.shown is not None else self.snapshot

    @property
    def shown(self) -> FleetSnapshot | None:
        """The snapshot that is shown."""
        return self.travel.shown or self.snapshot

    def remember(self) -> None:
        """Keep the newest snapshot for whoever looks back; called from the source's thread."""
        snapshot = self.source.latest()
        if snapshot is not None:
            self.travel.timeline.add(snapshot)

    def hear(self) -> None:
        """There is a new snapshot."""
        self._heard_at = self._clock()

    def hear_of_changes(self) -> None:
        """There is news of changes."""
        self._changes_heard_at = self._clock()

    def take(self) -> None:
        """Go on to the newest snapshot and changes, unless the picture is frozen."""
        if self.frozen_at is None:
            self.snapshot = self.source.latest()
            self.take_changes()

    def take_changes(self) -> None:
        """Go on to the newest changes."""
        if self._control is not None:
            self._changes = self._control.latest()
            self._changes_at = self._changes_heard_at

    def freeze(self) -> None:
        """Hold the picture; one that is held already goes on to be so."""
        if self.frozen_at is None:
            self.frozen_at = self._clock()

    def go_live(self) -> None:
        """Leave the past and let the picture run."""
        self.travel.shown = None
        self.frozen_at = None

    def ages(self, painted_at: float | None) -> bool:
        """Whether what is shown changes without news: how long it is frozen or silent, or a trial lasts.

        `painted_at`: when it was painted last, by `clock`.
        """
        now = self._clock()
        if self.frozen_at is not None:
            return True
        if self.snapshot is not None and is_silent(now - self._heard_at, self.snapshot.interval_seconds):
            return True
        flying = any(change.state not in FINAL_STATES for change in self._changes)
        return flying and (painted_at is None or now - painted_at >= _FRESH_SECONDS)

    def picture(self) -> Picture:
        """What is to be shown now."""
        now, past, live = self._clock(), self.travel.shown, self.source.latest()
        playback = self.playback
        return replace(
            self._always,
            snapshot=self.shown,
            paused_seconds=None if self.frozen_at is None else now - self.frozen_at,
            silent_seconds=max(now - self._heard_at, 0.0),
            finished=self.source.finished(),
            notice=self.notice,
            changes=self._changes,
            changes_age_seconds=max(now - self._changes_at, 0.0),
            behind_seconds=None if past is None or live is None else live.at - past.at,
            playback=None if playback is None else playback.playback(),
            local_at=None if playback is None else self._now(),
        )
