"""The live engine: nobody waits for anybody, every fault is visible, and it stops without a trace."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from collectors.alarm import Alarm
from collectors.answer import Answer
from collectors.discovery.roster import Changes
from collectors.http import HttpFetcher
from collectors.loop import LiveEngine
from collectors.pace import Pace
from collectors.schedule import hashed_ratio
from enginetop.fleet.model import ReplicaState, Target
from enginetop.fleet.observation import FailureKind, Observation
from enginetop.fleet.snapshot import CollectorHealth, FleetSnapshot, GpuDevice, GpuReport
from tests.support.faulty_server import HANG, FaultyServer, Reply, Request, chunked, page, raw
from tests.support.small_fleet import (
    FakeFetcher,
    new_feeds,
    replica,
    target,
    tracker_of,
    vllm_page,
    wait_until,
)

INTERVAL = 0.1


@contextmanager
def running(fetcher: Any, urls: Sequence[str], **options: Any) -> Iterator[LiveEngine]:
    targets = [target(url) for url in urls]
    interval = options.pop("interval_seconds", INTERVAL)
    engine = LiveEngine(
        targets,
        tracker=options.pop("tracker", None) or tracker_of(targets, interval),
        new_feed=options.pop("new_feed", None) or new_feeds(),
        new_fetcher=lambda: fetcher,
        interval_seconds=interval,
        **options,
    )
    engine.start()
    try:
        yield engine
    finally:
        engine.stop()


def moving(number: int) -> bytes:
    return vllm_page(running=1, tokens=100 * number)


def state(url: str) -> Callable[[FleetSnapshot], ReplicaState]:
    return lambda snapshot: replica(snapshot, url).state


def only_metrics(reply: Reply | Callable[[Request], Reply]) -> Callable[[Request], Reply]:
    def script(request: Request) -> Reply:
        if request.path != "/metrics":
            return page(b"", status=404)
        return reply(request) if callable(reply) else reply

    return script


BAD: Mapping[str, tuple[Reply, ReplicaState, str]] = {
    "hung": (HANG, ReplicaState.DOWN, "no answer within"),
    "dropped": (Reply(close=True), ReplicaState.DOWN, "closed without an answer"),
    "html": (
        page(b"<html><title>Sign in</title></html>", content_type="text/html"),
        ReplicaState.NO_ENGINE_METRICS,
        "Sign in",
    ),
    "key needed": (page(b"", status=401), ReplicaState.UNAUTHORIZED, "401"),
    "loading": (
        page(b'{"error":{"message":"Loading model","code":503}}', 503, "application/json"),
        ReplicaState.LOADING,
        "Loading model",
    ),
    "huge": (
        raw(b"HTTP/1.1 200 OK\r\ncontent-length: 99999999\r\n\r\n"),
        ReplicaState.NO_ENGINE_METRICS,
        "MiB",
    ),
    "garbled": (page(bytes(range(256)) * 20), ReplicaState.NO_ENGINE_METRICS, ""),
    "stalled": (chunked(vllm_page(), end=b""), ReplicaState.DOWN, "no answer within"),
    "truncated": (
        Reply((b"HTTP/1.1 200 OK\r\ncontent-length: 9999\r\n\r\n" + vllm_page(),), close=True),
        ReplicaState.STALE,
        "closed in the middle",
    ),
    "empty": (page(b""), ReplicaState.NO_ENGINE_METRICS, "empty"),
    "not http": (raw(b"+OK POP3 ready\r\n"), ReplicaState.NO_ENGINE_METRICS, "not speak HTTP"),
}


def test_good_replicas_are_scraped_on_whatever_the_others_do() -> None:
    """Counts, not times: every good one gets its scrapes, every bad one its own state and reason."""
    rounds = 6
    with FaultyServer() as server:
        good = [server.replica(only_metrics(lambda request: page(moving(request.number)))) for _ in range(4)]
        bad = {name: server.replica(reply) for name, (reply, _, _) in BAD.items()}
        refused = "http://127.0.0.1:1"
        urls = [*(one.url for one in good), *(one.url for one in bad.values()), refused]

        def told(snapshot: FleetSnapshot) -> bool:
            return (
                all(one.count("/metrics") >= rounds for one in good)
                and all(state(one.url)(snapshot) is ReplicaState.OK for one in good)
                and all(state(bad[name].url)(snapshot) is expected for name, (_, expected, _) in BAD.items())
                and state(refused)(snapshot) is ReplicaState.DOWN
            )

        with running(HttpFetcher(), urls, interval_seconds=0.2) as engine:
            snapshot = wait_until(engine, told)
        for name, (_, _, said) in BAD.items():
            one = replica(snapshot, bad[name].url)
            assert one.reasons, name
            assert one.last_failure is not None
            assert said in one.last_failure.detail, name
        assert "refused" in " ".join(replica(snapshot, refused).reasons)
        # the hung one has had few tries, each over before the next began
        assert bad["hung"].count("/metrics") < max(one.count("/metrics") for one in good)
        assert snapshot.collector.problem == ""


def test_the_first_picture_needs_no_answer() -> None:
    with running(FakeFetcher({"http://a": None}), ["http://a"], interval_seconds=30.0) as engine:
        snapshot = engine.latest()
        assert snapshot is not None
        assert [one.state for one in snapshot.replicas] == [ReplicaState.UNKNOWN]


def test_a_picture_follows_as_soon_as_everyone_was_looked_at() -> None:
    urls = ["http://a", "http://b"]
    with running(FakeFetcher(dict.fromkeys(urls, moving)), urls, interval_seconds=30.0) as engine:
        snapshot = wait_until(engine, lambda seen: state("http://b")(seen) is ReplicaState.OK)
        assert state("http://a")(snapshot) is ReplicaState.OK


def test_a_failure_does_not_wait_for_the_next_picture() -> None:
    """The target's turns lie 1.4 s before those of the pictures."""
    url = next(f"http://{n}" for n in range(999) if 0.28 < hashed_ratio(f"http://{n}") < 0.32)
    fetcher = FakeFetcher({url: lambda number: moving(number) if number == 0 else FailureKind.REFUSED})
    with running(fetcher, [url], interval_seconds=2.0) as engine:
        shown = wait_until(engine, lambda snapshot: replica(snapshot, url).failed_looks == 1)
        doubtful = replica(shown, url)
        assert (doubtful.state, doubtful.reasons) == (ReplicaState.OK, ("refused once, just now",))
        assert doubtful.last_failure is not None
        assert shown.at - doubtful.last_failure.at < 0.7
        down = wait_until(engine, lambda snapshot: state(url)(snapshot) is ReplicaState.DOWN)
        failed_again = replica(down, url).last_failure
        assert failed_again is not None
        assert down.at - failed_again.at < 0.7


def test_an_answer_that_is_overdue_is_told_while_it_is_waited_for() -> None:
    fetcher = FakeFetcher({"http://a": lambda number: moving(number) if number == 0 else None})
    with running(fetcher, ["http://a"], interval_seconds=1.0, timeout_seconds=60.0) as engine:
        shown = wait_until(engine, lambda snapshot: replica(snapshot, "http://a").in_doubt)
    waits = replica(shown, "http://a")
    assert waits.state is ReplicaState.OK
    assert waits.failed_looks == 0
    assert waits.unanswered_seconds is not None
    assert waits.unanswered_seconds >= 0.5
    assert waits.reasons == (f"no answer for {waits.unanswered_seconds:.1f} s",)


def test_a_refresh_does_not_wait_for_the_next_turn() -> None:
    fetcher = FakeFetcher({"http://a": moving})
    with running(fetcher, ["http://a"], interval_seconds=60.0) as engine:
        wait_until(engine, lambda _: fetcher.counts.get("http://a", 0) >= 2, poke=engine.request_refresh)


def test_a_held_refresh_key_does_not_load_an_engine() -> None:
    fetcher = FakeFetcher({"http://a": moving})
    with running(fetcher, ["http://a"], interval_seconds=60.0) as engine:
        wait_until(engine, lambda seen: state("http://a")(seen) is ReplicaState.OK)
        began = time.monotonic()
        pause = threading.Event()
        for _ in range(30):
            engine.request_refresh()
            pause.wait(0.005)
    # one a half second at most, however long this machine took
    assert fetcher.counts["http://a"] <= 2 + (time.monotonic() - began) / 0.5


def test_a_fault_of_ours_is_that_targets_state_and_nobody_elses() -> None:
    class BrokenFeed:
        def next_path(self, answers: Sequence[Answer]) -> str | None:
            raise KeyError("a bug")

        def take(self, answers: Sequence[Answer], at: float, seconds: float) -> Observation:
            raise AssertionError

    feeds = new_feeds()
    fetcher = FakeFetcher({"http://good": moving})

    def new_feed(one: Target) -> Any:
        return BrokenFeed() if one.url == "http://bug" else feeds(one)

    with running(fetcher, ["http://bug", "http://good"], new_feed=new_feed) as engine:
        snapshot = wait_until(
            engine,
            lambda seen: (
                fetcher.counts.get("http://good", 0) >= 5
                and replica(seen, "http://bug").last_failure is not None
            ),
        )
    failure = replica(snapshot, "http://bug").last_failure
    assert failure is not None
    assert (failure.kind, failure.detail) == (FailureKind.COLLECTOR, "KeyError: 'a bug'")
    assert state("http://good")(snapshot) is ReplicaState.OK


def test_a_fault_of_the_fetcher_is_shown_too() -> None:
    class NoFiles(FakeFetcher):
        async def fetch(self, url: str, path: str, *, timeout_seconds: float) -> Answer:
            raise OSError(24, "Too many open files")

    with running(NoFiles({}), ["http://a"]) as engine:
        snapshot = wait_until(engine, lambda seen: replica(seen, "http://a").last_failure is not None)
    failure = replica(snapshot, "http://a").last_failure
    assert failure is not None
    assert failure.kind is FailureKind.COLLECTOR
    assert "Too many open files" in failure.detail


def test_a_listener_that_raises_stops_neither_the_loop_nor_the_others() -> None:
    def broken() -> None:
        raise ValueError("screen gone")

    fetcher = FakeFetcher({"http://a": moving})
    with running(fetcher, ["http://a"]) as engine:
        leave = engine.subscribe(broken)
        wait_until(engine, lambda seen: "screen gone" in seen.collector.problem)
        leave()
        before = fetcher.counts["http://a"]
        wait_until(engine, lambda _: fetcher.counts["http://a"] > before + 2)


def test_listeners_are_called_from_the_engines_thread_until_they_leave() -> None:
    threads: list[str] = []
    with running(FakeFetcher({"http://a": moving}), ["http://a"]) as engine:
        leave = engine.subscribe(lambda: threads.append(threading.current_thread().name))
        wait_until(engine, lambda _: len(threads) >= 2)
        leave()
        seen = len(threads)
        first = engine.latest()
        wait_until(engine, lambda snapshot: snapshot is not first)
        assert len(threads) <= seen + 1
    assert set(threads) == {"enginetop-engine"}


def test_snapshots_are_finished_by_the_caller_and_numbered() -> None:
    def finish(snapshot: FleetSnapshot) -> FleetSnapshot:
        return replace(snapshot, gpu_problem="finished")

    with running(FakeFetcher({"http://a": moving}), ["http://a"], finish=finish) as engine:
        first = engine.latest()
        assert first is not None
        assert first.gpu_problem == "finished"
        later = wait_until(engine, lambda seen: seen.sequence > first.sequence + 2)
    assert later.gpu_problem == "finished"


def test_a_finish_that_breaks_leaves_the_last_picture_and_says_why() -> None:
    calls = iter(range(1000))

    def finish(snapshot: FleetSnapshot) -> FleetSnapshot:
        if next(calls) > 2:
            raise ZeroDivisionError("advice")
        return snapshot

    with running(FakeFetcher({"http://a": moving}), ["http://a"], finish=finish) as engine:
        snapshot = wait_until(engine, lambda seen: "ZeroDivisionError" in seen.collector.problem)
    assert len(snapshot.replicas) == 1


class BreakingOnce:
    """Stands for all whom a tick asks: the one that `breaks` raises at its second call, the others work."""

    def __init__(self, breaks: str) -> None:
        self._breaks = breaks
        self._calls = 0
        self._joining = [Changes(joined=(target(f"http://{name}"),)) for name in "bc"]

    def _called(self, name: str) -> None:
        if name == self._breaks:
            self._calls += 1
            if self._calls == 2:
                raise ZeroDivisionError(f"in {name}")

    @property
    def problem(self) -> str:
        self._called("problem")
        return ""

    def record_scrape(self, url: str, at: float, answers: Sequence[Answer]) -> None:
        self._called("record_scrape")

    def start(self, now: Callable[[], float], sink: object) -> None:
        self.stop()

    def stop(self) -> None:
        return

    def reported(self, health: CollectorHealth) -> CollectorHealth:
        self._called("reported")
        return health

    def watch(self, on_look: object) -> None:
        return

    def expire(self, now: float) -> Changes:
        self._called("expire")
        return self._joining.pop() if self._joining else Changes()

    def follow(self, one: Target, at: float) -> None:
        self._called("follow")

    def new_feed(self, one: Target) -> Any:
        self._called("new_feed")
        return new_feeds()(one)


@pytest.mark.parametrize("name", ["problem", "record_scrape", "reported", "expire", "follow", "new_feed"])
def test_whatever_breaks_in_a_tick_is_told_and_the_next_one_comes(name: str) -> None:
    one = BreakingOnce(name)
    parts: dict[str, dict[str, Any]] = {
        "problem": {"recorder": one},
        "record_scrape": {"recorder": one},
        "reported": {"records": (one, None)},
        "expire": {"members": (one, one)},
        "follow": {"members": (one, one)},
        "new_feed": {"new_feed": one.new_feed},
    }
    fetcher = FakeFetcher({"http://a": moving, "http://b": moving})
    targets = ["http://a", "http://b"] if name == "new_feed" else ["http://a"]
    with running(fetcher, targets, interval_seconds=0.02, **parts[name]) as engine:
        told = wait_until(engine, lambda seen: f"ZeroDivisionError: in {name}" in seen.collector.problem)
        before = fetcher.counts.get("http://a", 0)
        wait_until(engine, lambda seen: seen.sequence > told.sequence + 2)
        wait_until(engine, lambda _: fetcher.counts.get("http://a", 0) > before + 2)


def test_an_engine_that_cannot_run_says_so() -> None:
    def new_fetcher() -> FakeFetcher:
        raise RuntimeError("no client")

    engine = LiveEngine(
        [target("http://a")],
        tracker=tracker_of([target("http://a")]),
        new_feed=new_feeds(),
        new_fetcher=new_fetcher,
    )
    engine.start()
    wait_until(engine, lambda seen: "no client" in seen.collector.problem)
    engine.stop()


def test_stopping_ends_everything_at_once() -> None:
    with FaultyServer() as server:
        urls = [server.replica(HANG).url, server.replica(only_metrics(page(vllm_page()))).url]
        before = threading.active_count()
        with running(HttpFetcher(), urls, interval_seconds=30.0) as engine:
            wait_until(engine, lambda _: True)
        assert threading.active_count() == before
        engine.stop()  # a second time does nothing
        engine.request_refresh()
        gc.collect()  # an unclosed socket would warn here, and warnings are errors


def test_an_engine_that_never_started_can_be_stopped() -> None:
    engine = LiveEngine([], tracker=tracker_of([]), new_feed=new_feeds(), new_fetcher=lambda: FakeFetcher({}))
    assert engine.latest() is None
    engine.request_refresh()
    engine.stop()


def test_the_fetcher_is_closed() -> None:
    fetcher = FakeFetcher({"http://a": moving})
    with running(fetcher, ["http://a"]) as engine:
        wait_until(engine, lambda _: True)
    assert fetcher.closed


# GPUs


class FakeGpus:
    def __init__(self, read: Callable[[float], Sequence[GpuReport]]) -> None:
        self._read = read
        self.calls: list[str] = []

    def open(self, targets: Sequence[Target]) -> None:
        self.calls.append("open")

    def read(self, now: float) -> Sequence[GpuReport]:
        return self._read(now)

    def close(self) -> None:
        self.calls.append("close")


def test_gpu_reports_reach_the_snapshot() -> None:
    gpus = FakeGpus(lambda now: [GpuReport("a", now, (GpuDevice(0, "GPU-1", "H200", power_watts=400.0),))])
    with running(FakeFetcher({"http://a": moving}), ["http://a"], gpu_source=gpus) as engine:
        snapshot = wait_until(engine, lambda seen: bool(replica(seen, "http://a").gpus))
    assert replica(snapshot, "http://a").gpus[0].power_watts == 400.0
    assert gpus.calls == ["open", "close"]


def test_a_gpu_library_that_breaks_is_a_line_not_an_end() -> None:
    def broken(now: float) -> Sequence[GpuReport]:
        raise RuntimeError("driver gone")

    fetcher = FakeFetcher({"http://a": moving})
    with running(fetcher, ["http://a"], gpu_source=FakeGpus(broken)) as engine:
        wait_until(engine, lambda seen: "driver gone" in seen.gpu_problem)
        wait_until(engine, lambda _: fetcher.counts["http://a"] >= 3)


def test_a_gpu_library_that_breaks_at_its_end_is_no_traceback() -> None:
    class Breaking(FakeGpus):
        def close(self) -> None:
            raise RuntimeError("nothing to shut down")

    gpus = Breaking(lambda now: [])
    with running(FakeFetcher({"http://a": moving}), ["http://a"], gpu_source=gpus):
        pass  # an exception that a thread ends with would be a warning here, and warnings are errors
    assert gpus.calls == ["open"]


def test_a_gpu_library_that_hangs_delays_no_scrape() -> None:
    release = threading.Event()

    def hangs(now: float) -> Sequence[GpuReport]:
        release.wait()
        return []

    fetcher = FakeFetcher({"http://a": moving})
    try:
        with running(fetcher, ["http://a"], gpu_source=FakeGpus(hangs)) as engine:
            wait_until(engine, lambda _: fetcher.counts.get("http://a", 0) >= 5)
            release.set()
    finally:
        release.set()


# Recording and pace


class StoppedRecorder:
    problem = "recording stopped: disk full"

    def record_scrape(self, url: str, at: float, answers: Sequence[Answer]) -> None:
        return

    def record_gpus(self, report: GpuReport) -> None:
        return


def test_a_recording_that_stopped_is_told() -> None:
    fetcher = FakeFetcher({"http://a": moving})
    with running(fetcher, ["http://a"], recorder=StoppedRecorder()) as engine:
        wait_until(engine, lambda seen: seen.collector.problem == "recording stopped: disk full")


def test_pace_counts_turns_over_the_window() -> None:
    pace = Pace(window_seconds=10.0)
    assert pace.health(0.0, "").asked_per_second is None
    for _ in range(20):
        pace.count_turn(dropped=0)
    health = pace.health(5.0, "")
    assert (health.asked_per_second, health.achieved_per_second, health.late_ticks) == (4.0, 4.0, 0)
    pace.count_turn(dropped=9)
    health = pace.health(10.0, "x")
    # 21 scrapes in 10 s, 30 turns were asked for
    assert (health.asked_per_second, health.achieved_per_second, health.late_ticks) == (3.0, 2.1, 9)
    assert health.problem == "x"
    # from t = 10 on nothing happened; the window has left what was before 10
    assert pace.health(20.0, "").achieved_per_second == 0.0


@pytest.mark.parametrize("turns", [1, 7])
def test_slow_scrapes_drop_turns_and_say_so(turns: int) -> None:
    """A timeout longer than the interval: turns are skipped, never queued."""
    in_flight = 0
    most = 0

    class Slow(FakeFetcher):
        async def fetch(self, url: str, path: str, *, timeout_seconds: float) -> Answer:
            nonlocal in_flight, most
            in_flight += 1
            most = max(most, in_flight)
            await asyncio.sleep(0.05 * turns)
            in_flight -= 1
            return Answer(path.partition("?")[0], 0.0, 0.0, 200, body=vllm_page())

    with running(Slow({}), ["http://a"], interval_seconds=0.02, timeout_seconds=5.0) as engine:
        # a busy machine is late before the first scrape has ended: both are waited for
        wait_until(engine, lambda seen: seen.collector.late_ticks >= turns and drops(seen.collector))
    assert most == 1


def test_pictures_that_take_longer_than_an_interval_leave_time_for_scrapes() -> None:
    fetcher = FakeFetcher({"http://a": moving})
    looks: list[int] = []

    def slow(snapshot: FleetSnapshot) -> FleetSnapshot:
        looks.append(fetcher.counts.get("http://a", 0))
        if len(looks) < 20:
            time.sleep(0.03)  # the work of a large fleet
        return snapshot

    with running(fetcher, ["http://a"], interval_seconds=0.02, finish=slow) as engine:
        wait_until(engine, lambda seen: len(looks) >= 20 and seen.collector.late_ticks > 0)
    assert looks[19] >= 3  # the loop got to an answer between pictures, again and again


class Moments:
    """A clock that is set."""

    at = 0.0

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at


def test_an_early_picture_that_lasts_until_the_turn_is_the_turns() -> None:
    """Another one at once told nothing else: the loop had got to no answer in between."""
    clock, drawn = Moments(), list[float]()

    def slow(snapshot: FleetSnapshot) -> FleetSnapshot:
        drawn.append(clock.at)
        clock.at += 1.5
        return snapshot

    async def story() -> None:
        early = Alarm()
        engine = LiveEngine(
            (),
            tracker=tracker_of((), 1.0),
            new_feed=new_feeds(),
            new_fetcher=lambda: FakeFetcher({}),
            interval_seconds=1.0,
            finish=slow,
            clock=clock,
        )
        clock.at = 0.0
        drawn.clear()
        ticking = asyncio.create_task(engine._tick(0.0, early))
        await asyncio.sleep(0)
        clock.at = 0.5
        early.ring()
        for _ in range(4):
            await asyncio.sleep(0)
        ticking.cancel()

    asyncio.run(story())
    assert drawn == [0.5]


def drops(collector: CollectorHealth) -> bool:
    """Whether more is asked than achieved."""
    return (collector.asked_per_second or 0) > (collector.achieved_per_second or 0)
