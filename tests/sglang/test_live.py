"""A real SGLang under load: requests and tokens that enginetop shows are those that its clients counted."""

from __future__ import annotations

import time
from collections.abc import Iterator

import httpx
import pytest

from collectors.engines.sglang import SGLANG
from enginetop.fleet.model import EngineKind, ReplicaState
from tests.sglang.installation import SGLANG as VERSION
from tests.sglang.installation import install
from tests.sglang.server import CAPACITY_TOKENS, CHUNK_TOKENS, MAX_RUNNING, Server
from tests.support.watching import Watch, distribution, scalar
from tests.vllm.load import Load

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(1800)]

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

    assert load.failures == []
    ended = len(load.usages)
    prompt_tokens = sum(usage["prompt_tokens"] for usage in load.usages)
    output_tokens = sum(usage["completion_tokens"] for usage in load.usages)
    shown = {name: scalar(last, name) * watch.seconds for name in RATES}
    print(f"\nFIGURE ready_seconds: {server.ready_seconds:.0f}")
    print(f"FIGURE clients: {ended} requests, {prompt_tokens} prompt and {output_tokens} output tokens")
    print("FIGURE enginetop: " + ", ".join(f"{name} {value:.1f}" for name, value in shown.items()))
    assert ended > CLIENTS
    assert shown["requests_finished_per_second"] == pytest.approx(ended, rel=0.001)
    assert shown["prompt_tokens_per_second"] == pytest.approx(prompt_tokens, rel=0.001)
    # The live series counts decoded tokens: the first token of a request comes out of its prefill.
    assert shown["generation_tokens_per_second"] == pytest.approx(output_tokens - ended, rel=0.01)
    for name in ("ttft_seconds", "e2e_seconds", "tpot_seconds"):
        assert distribution(last, name).count == ended, name
    assert distribution(last, "output_tokens").sum == output_tokens

    assert max(running) == MAX_RUNNING
    assert max(waiting) > 0
    assert all(sum(pair) <= CLIENTS for pair in zip(running, waiting, strict=True))
    assert 0 < max(usage) <= 1
    assert (scalar(last, "requests_running"), scalar(last, "requests_waiting")) == (0, 0)


def test_retractions_are_those_of_the_servers_log(server: Server, watch: Watch) -> None:
    watch.look()
    before = server.retracted()
    # The scheduler counts on early ends of answers that may end by themselves, and lets in too many: none of
    # these ends early.
    load = Load(
        server.url,
        concurrency=MAX_RUNNING,
        max_tokens=LONG_TOKENS,
        min_tokens=LONG_TOKENS,
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
    # Random characters may break the lines that a client reads; a refusal would be an HTTP status.
    assert not [one for one in load.failures if one.startswith("HTTP")]
    assert retracted > 0
    print(f"\nFIGURE retractions: {retracted} in the log, {scalar(last, 'preemptions'):.0f} shown")
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
