"""A few scrapes of every target and one snapshot: the engine of one-shot commands."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from collectors.clock import SteadyClock
from collectors.event_loop import EngineEventLoop
from collectors.fetch import Fetcher
from collectors.gpu_thread import gpu_threads
from collectors.records.reader import RecordReader, Sink
from collectors.scrape import DEADLINE_SHARE, Clock, Feed, Intake, Scraper, Tracker, unchanged
from enginetop.fleet.attribution import ClaimedRecord
from enginetop.fleet.model import Target
from enginetop.fleet.ports import GpuSource
from enginetop.fleet.snapshot import CollectorHealth, FleetSnapshot, GpuReport


def sample_fleet(
    targets: Sequence[Target],
    *,
    tracker: Tracker,
    new_feed: Callable[[Target], Feed],
    new_fetcher: Callable[[], Fetcher],
    samples: int = 2,
    interval_seconds: float = 2.0,
    timeout_seconds: float | None = None,
    finish: Callable[[FleetSnapshot], FleetSnapshot] = unchanged,
    gpu_source: GpuSource | None = None,
    gpu_exporters: GpuSource | None = None,
    records: tuple[RecordReader, Sink] | None = None,
    clock: Clock | None = None,
) -> FleetSnapshot:
    """Scrape every target `samples` times, `interval_seconds` apart, and return the snapshot.

    All targets are scraped at the same time, and failed scrapes count like good ones, so that the whole takes
    (samples - 1) intervals and one timeout, or `samples` timeouts where those are longer. Call it outside of
    any event loop. `records` reads logs of requests: all that is there by the end goes to the sink, in the
    caller's thread.
    """
    clock = clock or SteadyClock()
    intake = Intake(tracker, None)
    timeout = timeout_seconds or interval_seconds * DEADLINE_SHARE
    reports: list[GpuReport] = []
    sources = (gpu_source, gpu_exporters)
    threads = gpu_threads(sources, targets, interval_seconds, clock.now, reports.append)
    for thread in threads:
        thread.start()
    found: list[ClaimedRecord] = []
    if records is not None:
        records[0].start(clock.now, found.extend)
    try:
        with asyncio.Runner(loop_factory=EngineEventLoop) as runner:
            rounds = _Rounds(samples, interval_seconds, timeout, clock, intake)
            runner.run(rounds.scrape(targets, new_feed, new_fetcher))
        for thread in threads:
            thread.wait_for_first(timeout)
    finally:
        for thread in threads:
            thread.stop()
        if records is not None:
            records[0].stop(drain_seconds=timeout)
    for report in tuple(reports):
        intake.take_gpus(report)
    health = CollectorHealth(problem=intake.problem)
    if records is not None:
        reader, sink = records
        sink(tuple(found))
        health = reader.reported(health)
    return finish(tracker.snapshot(clock.now(), health))


class _Rounds:
    """The scrapes of all targets, a round every interval."""

    def __init__(self, samples: int, interval: float, timeout: float, clock: Clock, intake: Intake) -> None:
        self._samples = samples
        self._interval = interval
        self._timeout = timeout
        self._clock = clock
        self._intake = intake

    async def scrape(
        self,
        targets: Sequence[Target],
        new_feed: Callable[[Target], Feed],
        new_fetcher: Callable[[], Fetcher],
    ) -> None:
        fetcher = new_fetcher()
        try:
            async with asyncio.TaskGroup() as group:
                for target in targets:
                    group.create_task(self._target(Scraper(target, new_feed(target), fetcher, self._clock)))
        finally:
            await fetcher.aclose()
            await asyncio.sleep(0)  # lets closed transports release their sockets

    async def _target(self, scraper: Scraper) -> None:
        due = self._clock.monotonic()
        for sample in range(self._samples):
            if sample:
                due = max(due + self._interval, self._clock.monotonic())
                await asyncio.sleep(due - self._clock.monotonic())
            self._intake.take(await scraper.scrape(self._timeout), None)
