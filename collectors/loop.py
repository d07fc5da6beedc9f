"""The live engine: targets watched in a thread of their own, one immutable snapshot a tick."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from collectors.alarm import Alarm
from collectors.clock import SteadyClock
from collectors.discovery.membership import ChangingTracker, Membership, apply
from collectors.discovery.roster import Changes
from collectors.discovery.watcher import Look
from collectors.event_loop import EngineEventLoop
from collectors.fetch import Fetcher
from collectors.gpu_thread import gpu_threads
from collectors.haste import Haste
from collectors.listeners import Listeners
from collectors.pace import Pace
from collectors.patience import patient_clock
from collectors.records.reader import RecordReader, Sink
from collectors.schedule import TargetSchedule, Turn
from collectors.scrape import (
    DEADLINE_SHARE,
    Clock,
    Feed,
    Intake,
    Scrape,
    Scraper,
    ScrapeSink,
    Tracker,
    unchanged,
)
from collectors.watch import Beat, Watch
from collectors.wheel import Wheel
from enginetop.fleet.attribution import ClaimedRecord
from enginetop.fleet.model import Target
from enginetop.fleet.ports import GpuSource
from enginetop.fleet.snapshot import CollectorHealth, FleetSnapshot, GpuReport

_REFRESH_GAP_SECONDS = 0.5
"""A refresh by hand spares a target that was scraped this recently: a held key must not load engines."""

_OVERDUE_SHARE = 0.5
_LEAST_OVERDUE_SECONDS = 0.5
"""An answer is overdue after this share of an interval, and not before this time."""


class LiveEngine:
    """Scrapes a fleet; a `FleetSource`.

    Every target has its own turns, at most one scrape in flight and its own deadline, so that a slow or dead
    one delays nobody. A snapshot is published at once on `start`, as soon as every target has been looked at
    for the first time (or again after a refresh), when one fails or answers again, and every
    `interval_seconds`. `finish` adds to each
    snapshot what the caller wants in it. `tracker` and `new_feed` objects are used from the engine's thread
    only, once started; `new_fetcher` is called there.
    """

    def __init__(
        self,
        targets: Sequence[Target],
        *,
        tracker: Tracker,
        new_feed: Callable[[Target], Feed],
        new_fetcher: Callable[[], Fetcher],
        interval_seconds: float = 2.0,
        timeout_seconds: float | None = None,
        window_seconds: float = 60.0,
        finish: Callable[[FleetSnapshot], FleetSnapshot] = unchanged,
        gpu_source: GpuSource | None = None,
        gpu_exporters: GpuSource | None = None,
        recorder: ScrapeSink | None = None,
        records: tuple[RecordReader, Sink] | None = None,
        members: tuple[Membership, ChangingTracker] | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`records` reads logs of requests; what it finds goes to the sink, in the engine's thread.

        `members` tell which targets come and go from now on; `targets` are those of the start.
        """
        self._targets = tuple(targets)
        self._tracker = tracker
        self._new_feed = new_feed
        self._new_fetcher = new_fetcher
        self._interval = interval_seconds
        self._timeout = timeout_seconds or interval_seconds * DEADLINE_SHARE
        self._finish = finish
        self._clock = clock or SteadyClock()
        self._intake = Intake(tracker, recorder)
        self._pace = Pace(window_seconds)
        self._latest: FleetSnapshot | None = None
        self._listeners = Listeners()
        self._records = records
        self._members = members
        self._gpus = gpu_threads(
            (gpu_source, gpu_exporters), self._targets, interval_seconds, self._clock.now, self._post_gpus
        )
        self._thread: threading.Thread | None = None
        self._running = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._publish_early: Alarm | None = None
        self._watches: dict[str, Watch] = {}
        self._beat: Beat | None = None
        self._haste: Haste | None = None
        self._fetcher: Fetcher | None = None
        self._awaited: set[str] = set()

    def start(self) -> None:
        """Publish the first snapshot, of a fleet that nobody has looked at, and begin to look."""
        self._latest = self._finish(self._tracker.snapshot(self._clock.now(), CollectorHealth()))
        self._thread = threading.Thread(target=self._run, name="enginetop-engine", daemon=True)
        self._thread.start()
        self._running.wait()
        for gpus in self._gpus:
            gpus.start()
        if self._records is not None:
            reader, sink = self._records
            reader.start(self._clock.now, lambda found: self._call(lambda: self._take_records(sink, found)))
        if self._members is not None:
            self._members[0].watch(lambda look: self._call(lambda: self._take_look(look)))

    def stop(self) -> None:
        """End all scrapes and close all connections; returns when the engine's thread has ended."""
        if self._thread is None:
            return
        for gpus in self._gpus:
            gpus.stop()
        if self._records is not None:
            self._records[0].stop()
        if self._members is not None:
            self._members[0].stop()
        if self._stopping is not None:
            self._call(self._stopping.set)
        self._thread.join()
        self._thread = None

    def latest(self) -> FleetSnapshot | None:
        """The newest snapshot; None before `start`."""
        return self._latest

    def subscribe(self, on_snapshot: Callable[[], None]) -> Callable[[], None]:
        """Call `on_snapshot` from the engine's thread after each snapshot; returns the call that ends it."""
        return self._listeners.subscribe(on_snapshot)

    def finished(self) -> bool:
        """A live fleet always goes on."""
        return False

    def request_refresh(self) -> None:
        """Scrape every idle target now, and publish when all have been looked at."""
        self._call(self._refresh)

    def _call(self, function: Callable[[], None]) -> None:
        if self._loop is not None and not self._loop.is_closed():
            try:
                self._loop.call_soon_threadsafe(function)
            except RuntimeError:
                return  # closed in between: there is nothing left to tell it

    def _post_gpus(self, report: GpuReport) -> None:
        self._call(lambda: self._intake.take_gpus(report))

    @contextmanager
    def _going_on(self) -> Iterator[None]:
        """What breaks in here becomes visible, and the loop goes on."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - the next picture says it
            self._intake.note_fault(error)

    def _take_records(self, sink: Sink, found: Sequence[ClaimedRecord]) -> None:
        with self._going_on():
            sink(found)

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=EngineEventLoop) as runner:
                runner.run(self._watch_fleet())
        except Exception as error:  # noqa: BLE001 - a dead engine must say so on the screen
            self._intake.note_fault(error)
            self._publish()
        finally:
            self._running.set()

    async def _watch_fleet(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(self._on_stray_error)
        self._stopping = asyncio.Event()
        self._publish_early = Alarm()
        self._running.set()
        self._listeners.notify(self._intake.note_fault)
        self._fetcher = self._new_fetcher()
        wheel = Wheel(self._loop, self._clock.monotonic)
        self._haste = Haste(self._interval, wheel, self._clock.monotonic, self._publish_early.ring)
        self._beat = Beat(wheel, self._clock, patient_clock(), self._timeout)
        started_at = self._clock.monotonic()
        self._awaited = {target.url for target in self._targets}
        for target in self._targets:
            self._begin_watch(target, started_at, len(self._targets))
        ticking = self._begin_task(self._tick(started_at, self._publish_early))
        try:
            await self._stopping.wait()
        finally:
            ticking.cancel()
            wheel.stop()
            left = [task for watch in self._watches.values() if (task := watch.end()) is not None]
            await asyncio.gather(ticking, *left, return_exceptions=True)
            await self._fetcher.aclose()
            await asyncio.sleep(0)  # lets closed transports release their sockets

    def _begin_task(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        task.add_done_callback(self._on_task_end)
        return task

    def _begin_watch(self, target: Target, started_at: float, together: int) -> None:
        assert self._fetcher is not None
        assert self._beat is not None
        with self._going_on():  # the others are watched all the same
            scraper = Scraper(target, self._new_feed(target), self._fetcher, self._clock)
            schedule = TargetSchedule(target.url, self._interval, started_at, together)
            watch = self._watches[target.url] = Watch(scraper, schedule, self._beat, self._take)
            watch.begin()

    def _end_watch(self, url: str) -> None:
        watch = self._watches.pop(url, None)
        self._awaited.discard(url)
        if watch is not None:
            watch.end()
            if self._haste is not None:
                self._haste.forget(url)
            if self._fetcher is not None:
                self._begin_task(self._fetcher.forget(url))

    def _take_look(self, look: Look) -> None:
        if self._members is not None and self._fetcher is not None:
            with self._going_on():
                self._change(self._members[0].take(look, self._clock.now()))

    def _change(self, changes: Changes) -> None:
        """Follow the changes of who belongs to the fleet: watches end and begin, the tracker is told."""
        if not changes or self._members is None:
            return
        apply(changes, self._members[1], self._clock.now())
        for url in (*changes.dropped, *changes.left, *(url for url, _ in changes.moved)):
            self._end_watch(url)
        now = self._clock.monotonic()
        new = (*(target for _, target in changes.moved), *changes.joined)
        for target in new:
            self._begin_watch(target, now, len(new))
        if self._publish_early is not None:
            self._publish_early.ring()

    def _take(self, scrape: Scrape, turn: Turn, seconds: float) -> None:
        """Take a scrape, after which `turn` is due in so many seconds."""
        self._pace.count_turn(turn.dropped)
        self._intake.take(scrape, self._clock.now() + seconds)
        if self._haste is not None:
            self._haste.take(scrape)
        if self._awaited:
            self._awaited.discard(scrape.url)
            if not self._awaited and self._publish_early is not None:
                self._publish_early.ring()

    async def _tick(self, started_at: float, early: Alarm) -> None:
        due = started_at + self._interval
        while True:
            rung = await early.wait(due - self._clock.monotonic())
            self._publish()
            # An early picture that lasted until the turn is the turn's: its own would tell nothing else.
            if not rung or self._clock.monotonic() >= due:
                due += self._interval
                # A turn that is due by now is dropped: where a picture takes longer than an interval, the
                # next one at once would leave the loop no time for scrapes, nor to be stopped.
                late = self._clock.monotonic() - due
                missed = max(0, math.floor(late / self._interval) + 1)
                self._pace.late_ticks += missed
                due += missed * self._interval

    def _refresh(self) -> None:
        gap = min(_REFRESH_GAP_SECONDS, self._interval / 2)
        for watch in self._watches.values():
            if watch.rests(gap):
                self._awaited.add(watch.url)
                watch.look_now()

    def _publish(self) -> None:
        """Draw a picture and tell of it. Never raises: nobody would draw the next one."""
        now, cpu = self._clock.now(), time.thread_time()
        if self._members is not None:
            with self._going_on():
                self._change(self._members[0].expire(now))
        health = self._health()
        try:
            self._latest = self._finish(self._tracker.snapshot(now, health))
        except Exception as error:  # noqa: BLE001 - the last good picture, with the reason why it is old
            self._intake.note_fault(error)
            if self._latest is not None:
                health = replace(health, problem=self._intake.problem)
                sequence = self._latest.sequence + 1
                self._latest = replace(self._latest, sequence=sequence, collector=health)
        if self._haste is not None:
            self._haste.drawn(time.thread_time() - cpu)
        self._listeners.notify(self._intake.note_fault)

    def _health(self) -> CollectorHealth:
        """How the collector itself does, from all who have a say in it; one that breaks does not hide it."""
        try:
            health = self._pace.health(self._clock.monotonic(), self._intake.problem)
            if unanswered := self._unanswered():
                health = replace(health, unanswered=unanswered)
            if self._records is not None:
                health = self._records[0].reported(health)
            if self._members is not None:
                health = replace(health, discovery_problem=self._members[0].problem)
        except Exception as error:  # noqa: BLE001 - this picture says it
            self._intake.note_fault(error)
            return CollectorHealth(problem=self._intake.problem)
        return health

    def _unanswered(self) -> dict[str, float]:
        """Scrapes in flight that have waited longer than they should: seconds, by URL."""
        patience = max(self._interval * _OVERDUE_SHARE, _LEAST_OVERDUE_SECONDS)
        found = {}
        for watch in self._watches.values():
            if (waited := watch.overdue_seconds(patience)) is not None:
                found[watch.url] = waited
        return found

    def _on_task_end(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self._intake.note_fault(error)

    def _on_stray_error(self, _: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        error = context.get("exception")
        self._intake.note_fault(
            error if isinstance(error, Exception) else RuntimeError(context.get("message"))
        )
