"""Replaying a recording through the same feed and tracker as the live engine, by the recording's clock."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from collectors.fetch import one_line
from collectors.listeners import Listeners
from collectors.recording_format import ScrapeRecord
from collectors.recording_reader import Recording, Step
from collectors.scrape import Feed, Tracker, unchanged
from enginetop.fleet.errors import ConfigError
from enginetop.fleet.model import Target
from enginetop.fleet.observation import Failure, FailureKind, Observation
from enginetop.fleet.ports import PlaybackState
from enginetop.fleet.request_records import RequestFigures
from enginetop.fleet.snapshot import CollectorHealth, FleetSnapshot

MAX_PAUSE_SECONDS = 10.0
"""The longest wait between two steps of a paced replay; longer gaps of a recording are shortened to it."""


class ReplayTracker(Tracker, Protocol):
    """A tracker that also takes records of single requests."""

    def observe_request(self, url: str, record: RequestFigures) -> None:
        """Take in the record of one request that the target `url` served."""


TOLD_SECONDS = 900.0
"""So much before the instant that is wound to is told, step by step."""

NewTracker = Callable[[Sequence[Target]], ReplayTracker]
"""Makes the tracker of a replay; it judges age by each target's own spacing, not by an interval."""

NewFeed = Callable[[Target], Feed]
Finish = Callable[[FleetSnapshot], FleetSnapshot]


class Player:
    """Steps through a recording."""

    def __init__(
        self, recording: Recording, *, new_tracker: NewTracker, new_feed: NewFeed, finish: Finish = unchanged
    ) -> None:
        self.recording = recording
        self._tracker = new_tracker(self.recording.targets)
        self._feeds = {target.url: new_feed(target) for target in self.recording.targets}
        self._finish = finish
        self.health = CollectorHealth(problem=one_line(self.recording.note))

    def step(self, step: Step) -> FleetSnapshot:
        """Take in all records of one instant; the fleet at that instant."""
        for record in step.gpus:
            self._tracker.observe_gpus(record.report)
        for request in step.requests:
            self._tracker.observe_request(request.url, request.figures)
        by_target: dict[str, list[ScrapeRecord]] = {}
        for scrape in step.scrapes:
            by_target.setdefault(scrape.url, []).append(scrape)
        for url, records in by_target.items():
            self._tracker.observe(url, self._observation(url, step.at, records))
        return self._finish(self._tracker.snapshot(step.at, self.health))

    def note_fault(self, error: Exception) -> None:
        """Make a fault of our own visible from the next step on."""
        self.health = CollectorHealth(problem=one_line(f"{type(error).__name__}: {error}"))

    def _observation(self, url: str, at: float, records: Sequence[ScrapeRecord]) -> Observation:
        # Of a path that stands there twice at one instant the last word counts, as of a line on a page.
        answers = list({record.answer.path: record.answer for record in records}.values())
        seconds = sum(answer.seconds for answer in answers)
        try:
            return self._feeds[url].take(answers, at, seconds)
        except Exception as error:  # noqa: BLE001 - as in the live engine: one target's trouble is its state
            detail = one_line(f"{type(error).__name__}: {error}")
            return Observation(at, seconds, failure=Failure(FailureKind.COLLECTOR, at, detail))


def run_replay(
    path: Path, *, new_tracker: NewTracker, new_feed: NewFeed, finish: Finish = unchanged
) -> FleetSnapshot:
    """The fleet at the end of a recording, every step taken, as fast as possible.

    Raises ConfigError when the recording cannot be used.
    """
    player = Player(Recording(path), new_tracker=new_tracker, new_feed=new_feed, finish=finish)
    last: FleetSnapshot | None = None
    for step in player.recording.steps():
        last = player.step(step)
    if last is None:
        raise ConfigError(f"{path}: it changed while it was read; try again")
    return last


class ReplaySource:
    """Plays a recording at `speed` times its own pace; a `Playback`.

    The first step is published at once; after the last one its snapshot stays. `new_finish` makes what is
    done to each snapshot, anew when the recording is wound back. Raises ConfigError when the recording cannot
    be used.
    """

    def __init__(
        self,
        path: Path,
        *,
        new_tracker: NewTracker,
        new_feed: NewFeed,
        new_finish: Callable[[], Finish] = lambda: unchanged,
        speed: float = 1.0,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._recording = Recording(path)

        def new_player() -> Player:
            return Player(self._recording, new_tracker=new_tracker, new_feed=new_feed, finish=new_finish())

        self._new_player = new_player
        self._player = self._new_player()
        self._speed = speed
        self._paused = False
        self._pushed = False
        self._wanted: float | None = None
        self._monotonic = monotonic
        self._latest: FleetSnapshot | None = None
        self._listeners = Listeners()
        self._wake = threading.Event()
        self._stopping = False
        self._thread: threading.Thread | None = None
        self.ended = threading.Event()

    def start(self) -> None:
        """Take the first step and begin to play."""
        steps = self._recording.steps()
        first = next(steps, None)
        if first is None:
            self.ended.set()
            return
        self._latest = self._player.step(first)
        self._thread = threading.Thread(
            target=self._run, args=(first.at, steps), name="enginetop-replay", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Stop playing; returns when the thread has ended."""
        self._stopping = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def latest(self) -> FleetSnapshot | None:
        """The snapshot of the newest step; None before the first."""
        return self._latest

    def subscribe(self, on_snapshot: Callable[[], None]) -> Callable[[], None]:
        """Call `on_snapshot` from the replay's thread after each step; returns the call that ends it."""
        return self._listeners.subscribe(on_snapshot)

    def finished(self) -> bool:
        """Whether the last step has been taken."""
        return self.ended.is_set()

    def request_refresh(self) -> None:
        """Take the next step now, also while it stands still."""
        self._pushed = True
        self._wake.set()

    def playback(self) -> PlaybackState:
        """How it is played just now."""
        first, last = self._recording.first_at, self._recording.last_at
        at = self._latest.at if self._latest is not None else first
        return PlaybackState(at, first, last, self._speed, self._paused)

    def set_speed(self, speed: float) -> None:
        """Play at so many times the recording's own pace."""
        self._speed = speed
        self._wake.set()

    def set_paused(self, paused: bool) -> None:
        """Stand still, or go on."""
        self._paused = paused
        self._wake.set()

    def seek(self, at: float) -> None:
        """Go to the newest step that is not later than `at`, else to the first; as fast as possible."""
        self._wanted = at
        self._wake.set()

    def _run(self, before: float, steps: Iterator[Step]) -> None:
        due = self._monotonic()
        try:
            self._listeners.notify(self._player.note_fault)
            following = next(steps, None)
            if following is None:
                self.ended.set()
            while not self._stopping:
                wanted, self._wanted = self._wanted, None
                if wanted is not None:
                    before, following, steps = self._sought(wanted, before, following, steps)
                    due = self._monotonic()
                elif following is None:
                    self._wake.wait()
                    self._wake.clear()
                elif (reached := self._wait(following.at - before, due)) is not None:
                    due = reached
                    before = following.at
                    following = self._take(following, steps)
        except Exception as error:  # noqa: BLE001 - a replay that ended early must say so on the screen
            self._player.note_fault(error)
            if self._latest is not None:
                self._latest = replace(self._latest, collector=self._player.health)
            self._listeners.notify(self._player.note_fault)
        finally:
            self.ended.set()

    def _take(self, step: Step, steps: Iterator[Step], *, tell: bool = True) -> Step | None:
        """Take a step; the one behind it. With none left it has ended, before anybody is told of the last."""
        self._latest = self._player.step(step)
        following = next(steps, None)
        if following is None:
            self.ended.set()
        if tell:
            self._listeners.notify(self._player.note_fault)
        return following

    def _sought(
        self, wanted: float, before: float, following: Step | None, steps: Iterator[Step]
    ) -> tuple[float, Step | None, Iterator[Step]]:
        """Wind to an instant: its time, the step behind it, the steps behind that.

        Only what lies shortly before it is told, for whoever keeps the recent past.
        """
        back = wanted < before
        if back:
            self.ended.clear()
            self._player = self._new_player()
            steps = self._recording.steps()
            following = next(steps, None)
        while following is not None and (back or following.at <= wanted):
            if self._stopping or self._wanted is not None:
                break
            back = False  # the first step is taken also for an instant before it
            before = following.at
            following = self._take(following, steps, tell=before >= wanted - TOLD_SECONDS)
        self._listeners.notify(self._player.note_fault)
        return before, following, steps

    def _wait(self, gap: float, since: float) -> float | None:
        """Wait until `gap` seconds of the recording have passed since then, or for a push.

        The time from which the next gap counts; None: something else is wanted.
        """
        while not self._stopping and self._wanted is None:
            due = since + min(gap / self._speed, MAX_PAUSE_SECONDS)
            delay = None if self._paused else due - self._monotonic()
            if self._pushed:
                self._pushed = False
                return self._monotonic()
            if delay is not None and delay <= 0:
                return due
            if self._wake.wait(delay):
                self._wake.clear()
                if self._paused:
                    since = self._monotonic()
        return None
