"""One scrape: the deadline is shared between its pages, and so is its time."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence
from itertools import count

from collectors.answer import Answer
from collectors.clock import SteadyClock
from collectors.http import HttpFetcher
from collectors.patience import patient_time
from collectors.scrape import Intake, Scrape, Scraper
from enginetop.fleet.model import Target
from enginetop.fleet.observation import Failure, FailureKind, Observation
from enginetop.fleet.snapshot import GpuReport
from tests.support.faulty_server import FaultyServer, page
from tests.support.small_fleet import new_feeds, tracker_of, vllm_page


class TwoPages:
    """Asks two pages, whatever the answers are."""

    def __init__(self, paths: Sequence[str] = ("/a", "/b")) -> None:
        self._paths = paths
        self.taken: list[Answer] = []

    def next_path(self, answers: Sequence[Answer]) -> str | None:
        return self._paths[len(answers)] if len(answers) < len(self._paths) else None

    def take(self, answers: Sequence[Answer], at: float, seconds: float) -> Observation:
        self.taken = list(answers)
        return Observation(at, seconds)


class Silent:
    """Takes all the time it is given; each answer has a later time."""

    def __init__(self) -> None:
        self.given: list[float] = []
        self._times = count(1.0)

    async def fetch(self, url: str, path: str, *, timeout_seconds: float) -> Answer:
        self.given.append(timeout_seconds)
        await asyncio.sleep(timeout_seconds)
        return Answer(path, next(self._times), timeout_seconds, error=FailureKind.TIMEOUT)

    async def forget(self, url: str) -> None:
        return

    async def aclose(self) -> None:
        return


def scrape(feed: TwoPages, fetcher: Silent, timeout_seconds: float = 0.2) -> Scrape:
    scraper = Scraper(Target("http://a", "a"), feed, fetcher, SteadyClock())
    return asyncio.run(scraper.scrape(timeout_seconds))


def test_after_a_page_that_hangs_there_is_time_for_another() -> None:
    feed, fetcher = TwoPages(), Silent()
    scrape(feed, fetcher)
    assert [answer.path for answer in feed.taken] == ["/a", "/b"]
    assert sum(fetcher.given) <= 0.2
    assert fetcher.given[0] >= 0.15


def test_all_pages_of_a_scrape_have_one_time() -> None:
    feed = TwoPages()
    done = scrape(feed, Silent())
    assert len({answer.at for answer in feed.taken}) == 1
    assert done.observation.seconds == sum(answer.seconds for answer in feed.taken)


def test_a_feed_that_never_ends_is_ended() -> None:
    class Endless(TwoPages):
        def next_path(self, answers: Sequence[Answer]) -> str | None:
            return f"/{len(answers)}"

    class Quick(Silent):
        async def fetch(self, url: str, path: str, *, timeout_seconds: float) -> Answer:
            return Answer(path, 0.0)

    done = scrape(Endless(), Quick(), timeout_seconds=5.0)
    assert len(done.answers) <= 100


def test_what_counts_as_no_answer_at_all() -> None:
    def unanswered(kind: FailureKind, answered: bool = False) -> bool:
        failure = Failure(kind, 0.0, "", answered=answered)
        return Scrape("http://a", (), Observation(0.0, 0.0, failure=failure)).unanswered

    silent = {kind for kind in FailureKind if unanswered(kind)}
    assert silent == {
        FailureKind.TIMEOUT,
        FailureKind.REFUSED,
        FailureKind.TLS,
        FailureKind.DNS,
        FailureKind.COLLECTOR,
    }
    assert not unanswered(FailureKind.TIMEOUT, answered=True)
    assert not Scrape("http://a", (), Observation(0.0, 0.0)).unanswered


def test_a_sink_that_breaks_its_promise_is_a_visible_fault() -> None:
    class Broken:
        problem = ""

        def record_scrape(self, url: str, at: float, answers: Sequence[Answer]) -> None:
            raise OSError("gone")

        def record_gpus(self, report: GpuReport) -> None:
            raise OSError("gone")

    intake = Intake(tracker_of([]), Broken())
    intake.take_gpus(GpuReport("h", 0.0, ()))
    assert intake.problem == "a fault of the collector: OSError: gone"


def test_a_fault_that_comes_no_more_is_told_for_a_minute() -> None:
    now = [100.0]
    intake = Intake(tracker_of([]), None, lambda: now[0])
    told = "a fault of the collector: OSError: once"
    intake.note_fault(OSError("once"))
    now[0] = 150.0
    assert intake.problem == told
    intake.note_fault(OSError("once"))
    now[0] = 209.0
    assert intake.problem == told
    now[0] = 211.0
    assert intake.problem == ""


def test_no_page_outlives_its_scrape() -> None:
    """Over a connection that stands, in callbacks: a cycle among these would keep whole pages for minutes."""

    async def answers_alive(url: str) -> int:
        fetcher = HttpFetcher()
        one = Target(url, "a")
        scraper = Scraper(one, new_feeds()(one), fetcher, SteadyClock())
        try:
            for _ in range(6):
                over = asyncio.Event()
                scraper.begin(5.0, patient_time, lambda _, over=over: over.set())  # type: ignore[misc]
                await over.wait()
                await asyncio.sleep(0)
            return sum(isinstance(held, Answer) and len(held.body) > 0 for held in gc.get_objects())
        finally:
            await fetcher.aclose()
            await asyncio.sleep(0)

    with FaultyServer() as server:
        replica = server.replica(page(vllm_page()))
        gc.collect()
        gc.disable()
        try:
            assert asyncio.run(answers_alive(replica.url)) == 0
        finally:
            gc.enable()
