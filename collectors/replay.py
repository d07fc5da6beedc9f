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
from enginetop.fleet.request_records import RequestFigures
from enginetop.fleet.snapshot import CollectorHealth, FleetSnapshot

MAX_PAUSE_SECONDS = 10.0
"""The longest wait between two steps of a paced replay; longer gaps of a recording are shortened to it."""


class ReplayTracker(Tracker, Protocol):
    """A tracker that also takes records of single requests."""

    def observe_request(self, url: str, record: RequestFigures) -> None:
        """Take in the record of one request that the target `url` served."""


NewTracker = Callable[[Sequence[Target]], ReplayTracker]
"""Makes the tracker of a replay; it judges age by each target's own spacing, not by an interval."""

NewFeed = Callable[[Target], Feed]
Finish = Callable[[FleetSnapshot], FleetSnapshot]


class Player:
    """Steps through a recording. Raises ConfigError when it cannot be used."""

    def __init__(
        self, path: Path, *, new_tracker: NewTracker, new_feed: NewFeed, finish: Finish = unchanged
    ) -> None:
        self.recording = Recording(path)
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
        answers = [record.answer for record in records]
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
    player = Player(path, new_tracker=new_tracker, new_feed=new_feed, finish=finish)
    last: FleetSnapshot | None = None
    for step in player.recording.steps():
        last = player.step(step)
    if last is None:
        raise ConfigError(f"{path}: it changed while it was read; try again")
    return last


class ReplaySource:
    """Plays a recording at `speed` times its own pace; a `FleetSource`.

    The first step is published at once; after the last one its snapshot stays. Raises ConfigError when the
    recording cannot be used.
    """

    def __init__(
        self,
        path: Path,
        *,
        new_tracker: NewTracker,
        new_feed: NewFeed,
        finish: Finish = unchanged,
        speed: float = 1.0,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._player = Player(path, new_tracker=new_tracker, new_feed=new_feed, finish=finish)
        self._speed = speed
        self._monotonic = monotonic
        self._latest: FleetSnapshot | None = None
        self._listeners = Listeners()
        self._wake = threading.Event()
        self._stopping = False
        self._thread: threading.Thread | None = None
        self.ended = threading.Event()

    def start(self) -> None:
        """Take the first step and begin to play."""
        steps = self._player.recording.steps()
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
        """Take the next step now."""
        self._wake.set()

    def _run(self, before: float, steps: Iterator[Step]) -> None:
        due = self._monotonic()
        try:
            self._listeners.notify(self._player.note_fault)
            for step in steps:
                pause = min((step.at - before) / self._speed, MAX_PAUSE_SECONDS)
                due = self._wait(due + pause)
                before = step.at
                if self._stopping:
                    return
                self._latest = self._player.step(step)
                self._listeners.notify(self._player.note_fault)
        except Exception as error:  # noqa: BLE001 - a replay that ended early must say so on the screen
            self._player.note_fault(error)
            if self._latest is not None:
                self._latest = replace(self._latest, collector=self._player.health)
            self._listeners.notify(self._player.note_fault)
        finally:
            self.ended.set()

    def _wait(self, due: float) -> float:
        """Wait until `due` or until woken; the time from which the next pause counts."""
        delay = due - self._monotonic()
        if delay > 0 and self._wake.wait(delay):
            self._wake.clear()
            return self._monotonic()
        return due
