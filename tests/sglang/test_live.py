"""A real SGLang under load: requests and tokens that enginetop shows are those that its clients counted."""

from __future__ import annotations

import time
from collections.abc import Iterator

import httpx
import pytest

from collectors.answer import Answer
from collectors.engines.sglang import SGLANG
from collectors.feed import TargetFeed
from collectors.layout import LayoutCache
from enginetop.fleet.fleet_tracker import FleetTracker
from enginetop.fleet.model import EngineKind, ReplicaState, Target
from enginetop.fleet.snapshot import Distribution, ReplicaSnapshot, Scalar, Slo
from tests.sglang.installation import SGLANG as VERSION
from tests.sglang.installation import install
from tests.sglang.server import CAPACITY_TOKENS, CHUNK_TOKENS, MAX_RUNNING, Server
from tests.vllm.load import Load

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(900)]

WINDOW_SECONDS = 600.0
LOAD_SECONDS = 40.0
CLIENTS = 12
MAX_TOKENS = 60
LONG_TOKENS = 400
RATES = ("requests_finished_per_second", "prompt_tokens_per_second", "generation_tokens_per_second")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = Server(install(), tmp_path_factory.mktemp("sglang"))
    try:
        running.wait_until_ready()
        yield running
    finally:
        running.stop()


@pytest.fixture
def watch(server: Server) -> Iterator[Watch]:
    with Watch(server.url) as one:
        yield one


class Watch:
    """Feed and tracker on a real server, with a plain GET in place of the collector's loop."""

    def __init__(self, url: str) -> None:
        self.asked: list[str] = []
        self._url = url
        target = Target(url, "s")
        self._feed = TargetFeed(target, LayoutCache())
        self._tracker = FleetTracker(
            [target],
            interval_seconds=0.5,
            window_seconds=WINDOW_SECONDS,
            slo_for=lambda _: Slo(),
            fixed_spacing_seconds=0.5,
        )
        self._web = httpx.Client(base_url=url, timeout=30.0)
        self.at = self.first_at = 0.0

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self._web.close()

    def look(self) -> ReplicaSnapshot:
        answers: list[Answer] = []
        while (path := self._feed.next_path(answers)) is not None:
            self.asked.append(path)
            response = self._web.get(path)
            headers = {name.lower(): value for name, value in response.headers.items()}
            name = path.partition("?")[0]
            answers.append(Answer(name, time.time(), 0.01, response.status_code, headers, response.content))
        self.at = time.time()
        self.first_at = self.first_at or self.at
        self._tracker.observe(self._url, self._feed.take(answers, self.at, 0.1))
        return self._tracker.snapshot(self.at).replicas[0]

    def until_idle(self, seconds: float = 60.0) -> ReplicaSnapshot:
        """The first look at an idle server; the scheduler reports its last steps late."""
        deadline = time.monotonic() + seconds
        while (replica := self.look()).state is not ReplicaState.IDLE and time.monotonic() < deadline:
            time.sleep(0.5)
        return replica


def scalar(replica: ReplicaSnapshot, name: str) -> float:
    signal = replica.signals[name]
    assert isinstance(signal, Scalar)
    assert isinstance(signal.value, float | int), (name, signal)
    return signal.value


def count(replica: ReplicaSnapshot, name: str) -> float:
    signal = replica.signals[name]
    assert isinstance(signal, Distribution)
    return signal.count or 0


def test_what_is_shown_is_what_its_clients_counted(server: Server, watch: Watch) -> None:
    first = watch.look()
    assert first.engine is EngineKind.SGLANG
    assert (first.engine_version, first.model) == (VERSION, "tiny")
    settings = {name: setting.value for name, setting in first.config.items()}
    assert settings["max_num_seqs"] == MAX_RUNNING
    assert settings["max_num_batched_tokens"] == CHUNK_TOKENS
    assert settings["block_size"] == 1
    # Fresh figures: a server that has served nothing has no gauges on its metrics page.
    assert (scalar(first, "requests_running"), scalar(first, "requests_waiting")) == (0, 0)
    assert scalar(first, "kv_capacity_tokens") == CAPACITY_TOKENS

    running: list[float] = []
    waiting: list[float] = []
    usage: list[float] = []
    began = time.monotonic()
    with Load(server.url, concurrency=CLIENTS, max_tokens=MAX_TOKENS) as load:
        while time.monotonic() - began < LOAD_SECONDS:
            replica = watch.look()
            running.append(scalar(replica, "requests_running"))
            waiting.append(scalar(replica, "requests_waiting"))
            usage.append(scalar(replica, "kv_usage_ratio"))
            assert replica.state in (ReplicaState.OK, ReplicaState.IDLE)
            time.sleep(0.5)  # the pace of a collector, not a wait for anything
    last = watch.until_idle()
    seconds = watch.at - watch.first_at

    assert load.failures == []
    ended = len(load.usages)
    prompt_tokens = sum(usage["prompt_tokens"] for usage in load.usages)
    output_tokens = sum(usage["completion_tokens"] for usage in load.usages)
    shown = {name: scalar(last, name) * seconds for name in RATES}
    print(f"\nFIGURE ready_seconds: {server.ready_seconds:.0f}")
    print(f"FIGURE clients: {ended} requests, {prompt_tokens} prompt and {output_tokens} output tokens")
    print("FIGURE enginetop: " + ", ".join(f"{name} {value:.1f}" for name, value in shown.items()))
    assert ended > CLIENTS
    assert shown["requests_finished_per_second"] == pytest.approx(ended, rel=0.001)
    assert shown["prompt_tokens_per_second"] == pytest.approx(prompt_tokens, rel=0.001)
    # The live series counts decoded tokens: the first token of a request comes out of its prefill.
    assert shown["generation_tokens_per_second"] == pytest.approx(output_tokens - ended, rel=0.01)
    for name in ("ttft_seconds", "e2e_seconds", "tpot_seconds"):
        assert count(last, name) == ended, name
    lengths = last.signals["output_tokens"]
    assert isinstance(lengths, Distribution)
    assert lengths.sum == output_tokens

    assert max(running) == MAX_RUNNING
    assert max(waiting) > 0
    assert all(sum(pair) <= CLIENTS for pair in zip(running, waiting, strict=True))
    assert 0 < max(usage) <= 1
    assert (scalar(last, "requests_running"), scalar(last, "requests_waiting")) == (0, 0)


def test_retractions_are_those_of_the_servers_log(server: Server, watch: Watch) -> None:
    watch.look()
    before = server.retracted()
    # The scheduler counts on early ends of answers that may end by themselves, and lets in too many.
    load = Load(
        server.url,
        concurrency=MAX_RUNNING,
        max_tokens=LONG_TOKENS,
        ignore_eos=False,
        temperature=1.0,
    )
    with load:
        began = time.monotonic()
        while server.retracted() == before and time.monotonic() - began < 90.0:
            watch.look()
            time.sleep(0.5)
    last = watch.until_idle()
    retracted = server.retracted() - before
    print(f"\nFIGURE retractions: {retracted} in the log, {scalar(last, 'preemptions'):.0f} shown")
    # Random characters may break the lines that a client reads; a refusal would be an HTTP status.
    assert not [one for one in load.failures if one.startswith("HTTP")]
    assert retracted > 0
    assert scalar(last, "preemptions") == retracted


def test_a_pause_and_its_end(server: Server, watch: Watch) -> None:
    with Load(server.url, concurrency=2, max_tokens=LONG_TOKENS) as load:
        while scalar(watch.look(), "requests_running") == 0:
            time.sleep(0.2)
        paused = httpx.post(f"{server.url}/pause_generation", json={"mode": "in_place"}, timeout=30.0)
        assert paused.status_code == 200
        states = [watch.look().state for _ in range(3)]
        resumed = httpx.post(f"{server.url}/continue_generation", json={}, timeout=30.0)
        assert resumed.status_code == 200
        later = watch.look().state
    assert states == [ReplicaState.PAUSED] * 3
    assert later is not ReplicaState.PAUSED
    assert load.failures == []


def test_only_safe_paths_are_asked(server: Server, watch: Watch) -> None:
    for _ in range(3):
        watch.look()
    refused = {path for path, _ in SGLANG.never}
    assert not refused & {path.partition("?")[0] for path in watch.asked}
    assert watch.asked[-3:] == ["/metrics", "/v1/loads", "/ready"]
    requests = httpx.get(f"{server.url}/metrics", timeout=10.0).text
    assert 'endpoint="/health_generate"' not in requests
    assert 'endpoint="/health"' not in requests
