"""A real llama.cpp server under load: what we show equals what its clients counted."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from collectors.answer import Answer
from collectors.feed import TargetFeed
from collectors.layout import LayoutCache
from enginetop.fleet.fleet_tracker import FleetTracker
from enginetop.fleet.model import EngineKind, Quality, ReplicaState, Target
from enginetop.fleet.observation import FailureKind, Observation
from enginetop.fleet.snapshot import ReplicaSnapshot, Slo
from tests.support.engine_pages import total
from tests.support.llama_server import llama_server
from tests.support.tiny_gguf import UNPRINTABLE_TOKENS, write_tiny_model

SLOTS = 4
REQUESTS = 12
OUTPUT_TOKENS = 90
BARRED = [[token, False] for token in range(UNPRINTABLE_TOKENS)]
PATIENCE_SECONDS = 120.0


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    write_tiny_model(path)
    return path


@pytest.fixture(scope="module")
def server(model: Path) -> Iterator[str]:
    with llama_server(
        model, endpoint_metrics=True, endpoint_slots=True, n_parallel=SLOTS, n_ctx=SLOTS * 1024
    ) as url:
        yield url


class Watcher:
    """Feed and tracker on a real server, with a plain GET in place of the collector's loop."""

    def __init__(self, url: str, client: httpx.AsyncClient) -> None:
        self._client = client
        target = Target(url, "llama")
        self._feed = TargetFeed(target, LayoutCache())
        self._tracker = FleetTracker(
            [target],
            interval_seconds=0.1,
            window_seconds=60.0,
            slo_for=lambda model: Slo(),
            fixed_spacing_seconds=0.1,
        )
        self._url = url
        self.asked: list[str] = []
        self.page = ""
        """The metrics page of the last look."""

    async def look(self) -> Observation:
        answers: list[Answer] = []
        began = time.monotonic()
        while (path := self._feed.next_path(answers)) is not None:
            self.asked.append(path)
            response = await self._client.get(self._url + path)
            headers = {name.lower(): value for name, value in response.headers.items()}
            answers.append(Answer(path, time.time(), 0.0, response.status_code, headers, response.content))
            if path == "/metrics":
                self.page = response.text
        observation = self._feed.take(answers, time.time(), time.monotonic() - began)
        self._tracker.observe(self._url, observation)
        return observation

    async def look_until(self, wanted: Callable[[Observation], bool]) -> Observation:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            observation = await self.look()
            if wanted(observation):
                return observation
            assert time.monotonic() < deadline, f"not seen in time; last: {observation}"
            await asyncio.sleep(0.02)

    def snapshot(self) -> ReplicaSnapshot:
        (replica,) = self._tracker.snapshot(time.time()).replicas
        return replica


@dataclass
class Usage:
    """Tokens as one client saw them."""

    prompt: int = 0
    output: int = 0


async def complete(client: httpx.AsyncClient, url: str, prompt: str) -> Usage:
    """One streaming request; the last event holds the server's own count for it."""
    body = {
        "prompt": prompt,
        "n_predict": OUTPUT_TOKENS,
        "stream": True,
        "ignore_eos": True,
        "logit_bias": BARRED,
    }
    timings: dict[str, int] = {}
    async with client.stream("POST", url + "/completion", json=body) as response:
        async for line in response.aiter_lines():
            if line.startswith("data: {"):
                timings = json.loads(line.removeprefix("data: ")).get("timings", timings)
    return Usage(timings["prompt_n"] + timings["cache_n"], timings["predicted_n"])


async def ask_on(client: httpx.AsyncClient, url: str, number: int, enough: asyncio.Event) -> list[Usage]:
    """One request after the other until it is enough: a busy machine looks seldom."""
    usages = [await complete(client, url, f"request {number} " + "monitor " * number)]
    while not enough.is_set():
        usages.append(await complete(client, url, f"request {number} " + "monitor " * number))
    return usages


def finish_counter(page: str) -> float:
    """The tokens of requests that have ended, as llama.cpp counts them."""
    (line,) = [line for line in page.splitlines() if line.startswith("llamacpp:tokens_predicted_total ")]
    return float(line.split()[1])


def shown(observation: Observation, measure: str) -> float:
    assert observation.reading is not None, observation.failure
    return total(observation.reading, measure)


def client() -> httpx.AsyncClient:
    # The server closes kept connections at a time of its own choosing.
    limits = httpx.Limits(max_connections=REQUESTS + 2, max_keepalive_connections=0)
    return httpx.AsyncClient(limits=limits, timeout=PATIENCE_SECONDS, trust_env=False)


def test_load_is_seen_live_and_counted_exactly(server: str) -> None:
    async def scenario() -> None:
        async with client() as http:
            watcher = Watcher(server, http)
            before = await watcher.look()
            seen_enough = asyncio.Event()
            load = asyncio.gather(*(ask_on(http, server, number, seen_enough) for number in range(REQUESTS)))

            busy = await watcher.look_until(
                lambda seen: shown(seen, "requests_running") == SLOTS and shown(seen, "requests_waiting") > 0
            )
            live = await watcher.look_until(
                lambda seen: (
                    shown(seen, "generation_tokens") > shown(busy, "generation_tokens")
                    and shown(seen, "requests_running") == SLOTS
                )
            )
            seen_enough.set()
            # Tokens flow before their requests end: the server's own counter, on the same page, has fewer.
            replica = watcher.snapshot()
            assert finish_counter(watcher.page) < shown(live, "generation_tokens")
            rate = replica.scalar("generation_tokens_per_second")
            assert rate.number is not None
            assert rate.number > 0
            assert replica.state is ReplicaState.OK
            assert 0 < shown(live, "kv_usage_ratio") < 1

            usages = [usage for asked in await load for usage in asked]
            after = await watcher.look_until(lambda seen: shown(seen, "requests_running") == 0)
            for measure, used in (
                ("generation_tokens", sum(usage.output for usage in usages)),
                ("prompt_tokens_processed", sum(usage.prompt for usage in usages)),
            ):
                assert shown(after, measure) - shown(before, measure) == used
            assert len(usages) >= REQUESTS
            assert {usage.output for usage in usages} == {OUTPUT_TOKENS}

            replica = watcher.snapshot()
            assert replica.engine is EngineKind.LLAMACPP
            assert replica.scalar("requests_finished_per_second").quality is Quality.UNSUPPORTED
            assert replica.config["max_num_seqs"].value == SLOTS
            assert replica.state is ReplicaState.IDLE

    asyncio.run(scenario())


def test_an_idle_server_is_left_to_fall_asleep_and_is_not_woken(model: Path) -> None:
    async def scenario(url: str) -> None:
        async with client() as http:
            watcher = Watcher(url, http)
            await watcher.look_until(
                lambda seen: seen.reading is not None and seen.reading.flags.sleeping is True
            )
            watcher.asked.clear()
            for _ in range(5):
                await watcher.look()
            assert set(watcher.asked) == {"/props"}
            assert (await http.get(url + "/props")).json()["is_sleeping"] is True
            assert watcher.snapshot().state is ReplicaState.SLEEPING
            await complete(http, url, "wake")
            awake = await watcher.look()
            assert awake.reading is not None
            assert awake.reading.flags.sleeping is False

    with llama_server(
        model, endpoint_metrics=True, endpoint_slots=True, n_parallel=1, n_ctx=1024, sleep_idle_seconds=1
    ) as url:
        asyncio.run(scenario(url))


@pytest.mark.parametrize(
    ("settings", "kind", "words"),
    [
        ({"endpoint_metrics": False}, FailureKind.DISABLED, "--metrics"),
        ({"endpoint_metrics": True, "api_keys": ["secret"]}, FailureKind.UNAUTHORIZED, "401"),
    ],
)
def test_what_keeps_the_page_from_us_is_named(
    model: Path, settings: dict[str, object], kind: FailureKind, words: str
) -> None:
    async def scenario(url: str) -> None:
        async with client() as http:
            failure = (await Watcher(url, http).look()).failure
            assert failure is not None
            assert failure.kind is kind
            assert words in failure.detail

    with llama_server(model, n_parallel=1, n_ctx=512, **settings) as url:
        asyncio.run(scenario(url))
