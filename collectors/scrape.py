"""One look at one target: pages asked in the feed's order, inside one deadline, made into an observation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic as steady_time
from typing import Protocol

from collectors.answer import Answer
from collectors.fetch import Asked, Fetcher, PromptFetcher, one_line
from collectors.patience import patient_time
from enginetop.fleet.changing import changed
from enginetop.fleet.model import Target
from enginetop.fleet.observation import CONNECTION_FAILURES, Failure, FailureKind, Observation
from enginetop.fleet.quickly_made import quickly_made
from enginetop.fleet.snapshot import CollectorHealth, FleetSnapshot, GpuReport

DEADLINE_SHARE = 0.9
"""Without a timeout of its own a scrape ends this share of an interval after it began."""

_PAGE_SHARE = 0.8
"""Of what is left of the deadline one page may use this much: after a page that hangs there is time to ask
another one, which tells a busy server from a dead one."""

_MAX_PAGES = 32

_FAULT_SECONDS = 60.0
"""So long a fault of our own is told after it was met last: it stands in the place of the fleet's verdict.
One that lasts is met at every look."""


class Feed(Protocol):
    """What `feed.TargetFeed` offers: which page to ask next, and what the answers mean."""

    def next_path(self, answers: Sequence[Answer]) -> str | None:
        """The next path with its query, given the answers of this scrape so far; None ends the scrape."""

    def take(self, answers: Sequence[Answer], at: float, seconds: float) -> Observation:
        """What the answers of one scrape amount to."""


class Tracker(Protocol):
    """What `enginetop.fleet.FleetTracker` offers."""

    def observe(self, url: str, observation: Observation, next_try_at: float | None = None) -> None:
        """Take in one observation of the target `url`."""

    def observe_gpus(self, report: GpuReport) -> None:
        """Take in the GPUs of one host."""

    def snapshot(self, now: float, collector: CollectorHealth) -> FleetSnapshot:
        """The fleet at `now`."""


class ScrapeSink(Protocol):
    """Somewhere that raw pages are kept: a recorder."""

    @property
    def problem(self) -> str:
        """Why nothing is kept any more; empty while all is well."""

    def record_scrape(self, url: str, at: float, answers: Sequence[Answer]) -> None:
        """Keep the answers of one scrape. Never raises and never waits."""

    def record_gpus(self, report: GpuReport) -> None:
        """Keep one GPU report. Never raises and never waits."""


class Clock(Protocol):
    """Unix time and a steady clock."""

    def now(self) -> float:
        """Unix seconds, never running backwards."""

    def monotonic(self) -> float:
        """Seconds of a steady clock."""


@quickly_made(eq=False)
class Scrape:
    """The answers of one scrape and what they amount to."""

    url: str
    answers: tuple[Answer, ...]
    observation: Observation

    @property
    def unanswered(self) -> bool:
        """Nothing answered at all: the target may be asked less often for a while."""
        failure = self.observation.failure
        if failure is None or failure.answered:
            return False
        return failure.kind in CONNECTION_FAILURES or failure.kind is FailureKind.COLLECTOR


@dataclass(slots=True, eq=False)
class _Look:
    """A scrape under way: its deadline by `patient_time`, its beginning, and what was answered so far."""

    patient_time: Callable[[], float]
    deadline: float
    began: float
    answers: list[Answer] = field(default_factory=list)

    def take(self, answer: Answer) -> None:
        # one time for all pages of a scrape, as a replay knows it
        self.answers.append(changed(answer, at=self.began))


class Scraper:
    """Scrapes one target, one scrape at a time."""

    def __init__(self, target: Target, feed: Feed, fetcher: Fetcher, clock: Clock) -> None:
        self.target = target
        self._feed = feed
        self._fetcher = fetcher
        self._prompt = fetcher if isinstance(fetcher, PromptFetcher) else None
        self._clock = clock
        self._under_way: Asked | asyncio.Task[None] | None = None

    async def scrape(self, timeout_seconds: float) -> Scrape:
        """One scrape, over after `timeout_seconds` of `patient_time`. A fault of our own is a failure too."""
        return await self._rest(_Look(patient_time, patient_time() + timeout_seconds, self._clock.now()))

    def begin(
        self, timeout_seconds: float, time: Callable[[], float], tell: Callable[[Scrape], None]
    ) -> None:
        """As `scrape`, but what came is told, from the event loop or at once. `time` is its `patient_time`.

        It takes no task where pages come over connections that stand, as nearly all do: a task with its
        futures costs a large fleet as much as the pages themselves. `tell` must not raise.
        """
        self._go_on(_Look(time, time() + timeout_seconds, self._clock.now()), tell)

    def call_off(self) -> asyncio.Task[None] | None:
        """End what `begin` began and tell nothing; its task, if there is one, is cancelled and returned."""
        under_way, self._under_way = self._under_way, None
        if isinstance(under_way, asyncio.Task):
            under_way.cancel()
            return under_way
        if under_way is not None:
            under_way.call_off()
        return None

    def _go_on(self, look: _Look, tell: Callable[[Scrape], None]) -> None:
        """Ask the next page, or tell what all of them amount to."""

        def take(answer: Answer | None) -> None:
            self._under_way = None
            if answer is None:
                self._go_the_long_way(look, tell)
            else:
                look.take(answer)
                self._go_on(look, tell)

        try:
            path, seconds = self._next(look)
            if path is None:
                scrape = self._made_of(look)
            elif self._prompt is None or (
                (asked := self._prompt.ask(self.target.url, path, timeout_seconds=seconds, tell=take)) is None
            ):
                self._go_the_long_way(look, tell)
                return
            else:
                self._under_way = asked
                return
        except Exception as error:  # noqa: BLE001 - one target's trouble is shown as its state
            scrape = self._fault(error)
        tell(scrape)

    def _go_the_long_way(self, look: _Look, tell: Callable[[Scrape], None]) -> None:
        async def rest() -> None:
            scrape = await self._rest(look)
            self._under_way = None
            tell(scrape)

        self._under_way = asyncio.get_running_loop().create_task(rest())

    async def _rest(self, look: _Look) -> Scrape:
        """The scrape, its remaining pages asked by `fetch`."""
        try:
            while True:
                path, seconds = self._next(look)
                if path is None:
                    return self._made_of(look)
                look.take(await self._fetcher.fetch(self.target.url, path, timeout_seconds=seconds))
        except Exception as error:  # noqa: BLE001 - one target's trouble is shown as its state
            return self._fault(error)

    def _next(self, look: _Look) -> tuple[str | None, float]:
        """The path to ask now, None if there is none, and how long it may take."""
        left = look.deadline - look.patient_time()
        if left <= 0 or len(look.answers) >= _MAX_PAGES:
            return None, left
        return self._feed.next_path(look.answers), left * _PAGE_SHARE

    def _made_of(self, look: _Look) -> Scrape:
        at = self._clock.now()
        # the sum of the pages, not the time of the loop: a replay knows the pages alone
        seconds = sum([answer.seconds for answer in look.answers])
        answers = tuple(look.answers)
        return Scrape(self.target.url, answers, self._feed.take(answers, at, seconds))

    def _fault(self, error: Exception) -> Scrape:
        at = self._clock.now()
        failure = Failure(FailureKind.COLLECTOR, at, one_line(f"{type(error).__name__}: {error}"))
        return Scrape(self.target.url, (), Observation(at, 0.0, failure=failure))


class Intake:
    """Where scrapes go: to the recorder, then to the tracker. A fault in there is kept as `problem`."""

    def __init__(
        self,
        tracker: Tracker,
        recorder: ScrapeSink | None,
        monotonic: Callable[[], float] = steady_time,
    ) -> None:
        self._tracker = tracker
        self._recorder = recorder
        self._monotonic = monotonic
        self._fault = ""
        self._fault_at = 0.0

    @property
    def problem(self) -> str:
        """What is wrong with the collector itself; empty when nothing is."""
        if self._fault and self._monotonic() - self._fault_at > _FAULT_SECONDS:
            self._fault = ""
        return self._fault or (self._recorder.problem if self._recorder is not None else "")

    def take(self, scrape: Scrape, next_try_at: float | None) -> None:
        """Record and observe one scrape. Never raises."""
        try:
            if self._recorder is not None and scrape.answers:
                self._recorder.record_scrape(scrape.url, scrape.observation.at, scrape.answers)
            self._tracker.observe(scrape.url, scrape.observation, next_try_at)
        except Exception as error:  # noqa: BLE001 - becomes visible, the loop goes on
            self.note_fault(error)

    def take_gpus(self, report: GpuReport) -> None:
        """Record and observe the GPUs of one host. Never raises."""
        try:
            if self._recorder is not None:
                self._recorder.record_gpus(report)
            self._tracker.observe_gpus(report)
        except Exception as error:  # noqa: BLE001 - becomes visible, the loop goes on
            self.note_fault(error)

    def note_fault(self, error: Exception) -> None:
        """Make a fault of our own visible from the next snapshot on, for a while."""
        self._fault_at = self._monotonic()
        self._fault = one_line(f"a fault of the collector: {type(error).__name__}: {error}")


def unchanged(snapshot: FleetSnapshot) -> FleetSnapshot:
    """The `finish` of an engine whose snapshots need nothing added."""
    return snapshot
