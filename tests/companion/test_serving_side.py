"""Starting in an API server process, and what of it runs when something is missing."""

from __future__ import annotations

import asyncio
import http.client
import json
import logging
import os
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from enginetop_companion.settings import Objective
from enginetop_companion.truth import PrometheusMetrics
from enginetop_companion_vllm import engine_side, serving_side
from enginetop_companion_vllm.ranks import Ranks
from enginetop_companion_vllm.serving_side import EnginetopEndpoint, EngineView
from tests.companion.fakes import FakeCore, config_of

CHANGE: dict[str, Any] = {"knob": "thinking_token_budget", "value": 10, "if_version": None, "change": "a"}


class FakeServing:
    _include_reasoning_tokens_details = False

    async def create_chat_completion(self, request: Any, raw_request: Any = None) -> Any:
        return request.thinking_token_budget

    async def create_completion(self, request: Any, raw_request: Any = None) -> Any:
        return request.thinking_token_budget


class FakeServer:
    """An API server process: vLLM's client of the engine, its output processor, its application state."""

    def __init__(self, core: FakeCore | None = None, *, log_stats: bool = True, ranks: int = 1) -> None:
        self.core = core or FakeCore(config=config_of(reasoning=True))
        self.state = SimpleNamespace(
            openai_serving_chat=FakeServing(),
            anthropic_serving_messages=None,
            openai_serving_completion=FakeServing(),
        )

        async def call_utility_all_async(method: str, *args: Any) -> list[dict[str, Any]]:
            assert method == "enginetop_companion"
            return [engine_side.call(self.core, *args)]

        processor = SimpleNamespace(
            log_stats=log_stats,
            _update_stats_from_finished=lambda one, reason, stats: None,
            abort_requests=lambda ids, internal: list(ids),
        )
        self.client = SimpleNamespace(
            engine_core=SimpleNamespace(call_utility_all_async=call_utility_all_async),
            vllm_config=config_of(ranks=ranks),
            output_processor=processor,
            scheduler_config=SimpleNamespace(max_num_queued_reqs=None, max_num_queued_tokens=500),
        )

    async def start(self) -> None:
        await EnginetopEndpoint().init_state(self.client, self.state, SimpleNamespace(port=8000))

    async def budget_of_a_request(self) -> int | None:
        serving = self.state.openai_serving_chat
        budget: int | None = await serving.create_chat_completion(
            SimpleNamespace(thinking_token_budget=None, model_fields_set=frozenset())
        )
        return budget


@pytest.fixture
def registry(
    fake_vllm: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> CollectorRegistry:
    registry = CollectorRegistry()
    monkeypatch.setattr(serving_side, "process_metrics", lambda: PrometheusMetrics(registry))
    monkeypatch.setenv("ENGINETOP_COMPANION", "1")
    monkeypatch.setenv("ENGINETOP_COMPANION_LISTEN", f"unix:{tmp_path}/s")
    monkeypatch.setenv("ENGINETOP_COMPANION_TOKEN_FILE", str(tmp_path / "token"))
    (tmp_path / "token").write_text("t0ken")
    return registry


class Caller(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost")
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(self._path))


def call(path: Path, method: str, target: str, body: object = None) -> tuple[int, Any]:
    caller = Caller(path)
    headers = {"Authorization": "Bearer t0ken"}
    caller.request(method, f"/enginetop/v1/{target}", None if body is None else json.dumps(body), headers)
    answer = caller.getresponse()
    found = answer.status, json.loads(answer.read())
    caller.close()
    return found


def test_the_whole_of_it(registry: CollectorRegistry, tmp_path: Path) -> None:
    server = FakeServer()

    async def scene() -> None:
        await server.start()
        assert await server.budget_of_a_request() is None
        status, row = await asyncio.to_thread(
            call, tmp_path / "s", "PATCH", "knobs", CHANGE | {"ttl_seconds": 100, "reason": ""}
        )
        assert (status, row["value"], row["applied"], row["total"]) == (200, 10, 1, 1)
        assert await server.budget_of_a_request() == 10  # by the process that took it: at once
        status, slo = await asyncio.to_thread(
            call, tmp_path / "s", "PUT", "slo", {"ttft_seconds": 0.6, "tpot_seconds": 0.05}
        )
        assert (status, slo["ttft_seconds"]) == (200, 0.6)
        await asyncio.to_thread(call, tmp_path / "s", "DELETE", "knobs/thinking_token_budget")
        assert await server.budget_of_a_request() is None

    asyncio.run(scene())
    labels = {"ttft_seconds": "0.6", "tpot_seconds": "0.05"}
    assert registry.get_sample_value("enginetop_requests_within_slo_total", labels) == 0.0


def test_a_second_api_server_serves_no_knobs_but_follows(
    registry: CollectorRegistry,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(serving_side, "LOOK_SECONDS", 0.01)
    first = FakeServer()
    second = FakeServer(first.core)
    metrics = PrometheusMetrics(registry)
    monkeypatch.setattr(serving_side, "process_metrics", lambda: metrics)

    async def scene() -> None:
        await first.start()
        await second.start()
        await asyncio.to_thread(call, tmp_path / "s", "PATCH", "knobs", CHANGE | {"ttl_seconds": 100})
        async with asyncio.timeout(10):
            while await second.budget_of_a_request() != 10:
                await asyncio.sleep(0.01)

    with caplog.at_level(logging.INFO):
        asyncio.run(scene())
    assert caplog.text.count("is served by another process") == 1


def test_an_api_server_cut_off_from_the_engine_still_ends_the_lease(registry: CollectorRegistry) -> None:
    core = FakeCore(config=config_of(reasoning=True))
    answers = True

    async def call_all(verb: str, asked: dict[str, Any]) -> list[dict[str, Any]]:
        if not answers:
            raise ConnectionError
        return [engine_side.call(core, verb, asked)]

    async def scene() -> None:
        nonlocal answers
        ranks = Ranks(call_all, 1)
        await ranks.change(CHANGE | {"ttl_seconds": 0.2})
        view = EngineView(ranks, Objective())
        await view.refresh()
        assert view.thinking_budget() == 10
        answers = False
        await view.refresh()
        async with asyncio.timeout(10):
            while view.thinking_budget() is not None:
                await asyncio.sleep(0.01)

    asyncio.run(scene())


def test_queue_limits_are_put_where_this_process_looks_and_go_back_without_the_engine(
    registry: CollectorRegistry,
) -> None:
    core = FakeCore()
    core.scheduler.scheduler_config.max_num_queued_tokens = 500
    config = SimpleNamespace(max_num_queued_reqs=None, max_num_queued_tokens=500)
    answers = True

    async def call_all(verb: str, asked: dict[str, Any]) -> list[dict[str, Any]]:
        if not answers:
            raise ConnectionError
        return [engine_side.call(core, verb, asked)]

    async def scene() -> None:
        nonlocal answers
        ranks = Ranks(call_all, 1)
        view = EngineView(ranks, Objective(), config)
        await view.refresh()
        assert vars(config) == {"max_num_queued_reqs": None, "max_num_queued_tokens": 500}
        for knob, value, ttl in (("max_num_queued_reqs", 40, 0.2), ("max_num_queued_tokens", -1, None)):
            asked = {"knob": knob, "value": value, "if_version": None, "change": "a", "ttl_seconds": ttl}
            assert (await ranks.change(asked)).status == 200
        await view.refresh()
        assert vars(config) == {"max_num_queued_reqs": 40, "max_num_queued_tokens": None}
        answers = False
        async with asyncio.timeout(10):
            while config.max_num_queued_reqs is not None:
                await view.refresh()
                await asyncio.sleep(0.01)
        assert config.max_num_queued_tokens is None  # that one has no lease

    asyncio.run(scene())


def started(server: FakeServer, caplog: pytest.LogCaptureFixture) -> str:
    with caplog.at_level(logging.INFO):
        asyncio.run(server.start())
    return caplog.text


def untouched(server: FakeServer) -> bool:
    return "create_chat_completion" not in vars(server.state.openai_serving_chat)


def test_off_means_off(registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ENGINETOP_COMPANION")
    server = FakeServer()
    asyncio.run(server.start())
    assert untouched(server)
    assert not hasattr(server.state, "enginetop_companion")


@pytest.mark.parametrize("version", ["0.31.2", "0.40.0", "main"])
def test_an_unknown_version_is_served_as_ever(
    registry: CollectorRegistry, fake_vllm: SimpleNamespace, caplog: pytest.LogCaptureFixture, version: str
) -> None:
    fake_vllm.vllm.__version__ = version
    server = FakeServer()
    text = started(server, caplog)
    assert untouched(server)
    assert text.count("steps aside") == 1
    assert version in text


def test_a_missing_attribute_is_served_as_ever(
    registry: CollectorRegistry, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    core = FakeCore()
    del core.scheduler.dynamic_sd_lookup
    server = FakeServer(core)
    text = started(server, caplog)
    assert untouched(server)
    assert "dynamic_sd_lookup" in text
    assert "knob API" not in text


def test_no_client_of_an_engine(registry: CollectorRegistry, caplog: pytest.LogCaptureFixture) -> None:
    asyncio.run(EnginetopEndpoint().init_state(None, SimpleNamespace(), SimpleNamespace()))
    asyncio.run(EnginetopEndpoint().init_state(SimpleNamespace(), SimpleNamespace(), SimpleNamespace()))
    assert caplog.text.count("steps aside") == 1


@pytest.mark.parametrize("kind", ["unset", "missing", "empty"])
def test_no_token_no_route(
    registry: CollectorRegistry,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
    kind: str,
) -> None:
    if kind == "unset":
        monkeypatch.delenv("ENGINETOP_COMPANION_TOKEN_FILE")
    elif kind == "missing":
        (tmp_path / "token").unlink()
    else:
        (tmp_path / "token").write_text("\n")
    server = FakeServer()
    text = started(server, caplog)
    assert "no knob API" in text
    assert "knob API at" not in text
    assert not untouched(server)  # requests are counted all the same
    assert registry.get_sample_value("enginetop_requests_total", {"outcome": "stop"}) == 0.0


def test_without_statistics_the_knobs_still_work(
    registry: CollectorRegistry, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    text = started(FakeServer(log_stats=False), caplog)
    assert "no request is counted" in text
    assert f"knob API at unix:{tmp_path}/s" in text
    assert not (tmp_path / "s").exists()  # given back with the end of the loop


def test_a_folder_that_cannot_be_made(
    registry: CollectorRegistry,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("ENGINETOP_COMPANION_LISTEN", f"unix:{tmp_path}/token/below/s")
    assert "no knob API at unix:" in started(FakeServer(), caplog)


def test_other_machines_are_warned_of(
    registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("0.0.0.0", 0)) as free:
        port = free.getsockname()[1]
    monkeypatch.setenv("ENGINETOP_COMPANION_LISTEN", f"0.0.0.0:{port}")
    assert "can be reached from other machines" in started(FakeServer(), caplog)


def test_the_token_is_never_logged(registry: CollectorRegistry, caplog: pytest.LogCaptureFixture) -> None:
    assert "t0ken" not in started(FakeServer(), caplog)
    assert os.environ["ENGINETOP_COMPANION_TOKEN_FILE"]
