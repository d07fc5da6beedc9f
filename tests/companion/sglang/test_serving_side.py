"""The server process: within the application's lifespan, over a real socket, and when it cannot run."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from enginetop.fleet.knobs import parse_sheet
from enginetop_companion.truth import PrometheusMetrics
from enginetop_companion_sglang import serving_side
from tests.companion.sglang.fakes import SECRET, FakeController, FakeManager, FakeScheduler

TOKEN = "s3cret-token"
PORT = 30000
PATCH = {"knob": "max_num_batched_tokens", "value": 64, "if_version": 0, "ttl_seconds": 60, "change": "c"}


@pytest.fixture(autouse=True)
def place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("ENGINETOP_COMPANION_TOKEN_FILE", str(token))
    monkeypatch.setattr(serving_side, "process_metrics", lambda: PrometheusMetrics(CollectorRegistry()))


@pytest.fixture
def manager(fake_sglang: Any) -> FakeManager:
    return FakeManager(FakeController(FakeScheduler(), fake_sglang.contexts))


@contextlib.asynccontextmanager
async def bare(app: Any) -> AsyncIterator[Any]:
    """A lifespan as SGLang's own."""
    app.log.append("theirs starts")
    try:
        yield None
    finally:
        app.log.append("theirs ends")


def socket_of(tmp_path: Path) -> Path:
    return tmp_path / "run" / "enginetop" / f"sglang-{PORT}.sock"


async def appears(path: Path) -> None:
    async with asyncio.timeout(10):
        while not path.is_socket():
            await asyncio.sleep(0.005)


async def ask(path: Path, method: str, what: str, body: object = None, token: str = TOKEN) -> tuple[int, Any]:
    reader, writer = await asyncio.open_unix_connection(str(path))
    raw = b"" if body is None else json.dumps(body).encode()
    head = f"{method} {what} HTTP/1.1\r\nAuthorization: Bearer {token}\r\nContent-Length: {len(raw)}\r\n\r\n"
    writer.write(head.encode() + raw)
    answer = await reader.read()
    writer.close()
    first, _, rest = answer.partition(b"\r\n\r\n")
    return int(first.split()[1]), json.loads(rest)


def test_the_knob_api_within_the_lifespan(manager: FakeManager, tmp_path: Path) -> None:
    path = socket_of(tmp_path)

    async def all_of_it() -> None:
        app = SimpleNamespace(log=[])
        async with serving_side.within(bare, manager, PORT, SECRET)(app):
            await appears(path)
            status, document = await ask(path, "GET", "/enginetop/v1/knobs")
            sheet = parse_sheet(document)
            assert (status, sheet.engine, sheet.engine_version) == (200, "sglang", "0.5.23")
            assert (sheet.applied, sheet.total, len(sheet.knobs)) == (1, 1, 4)
            assert (await ask(path, "PATCH", "/enginetop/v1/knobs", PATCH, token="wrong"))[0] == 401
            assert manager.controllers[0].scheduler.chunked_prefill_size == 256
            status, row = await ask(path, "PATCH", "/enginetop/v1/knobs", PATCH)
            assert (status, row["value"], row["applied"], row["total"]) == (200, 64, 1, 1)
            assert manager.controllers[0].scheduler.chunked_prefill_size == 64
            assert (await ask(path, "PATCH", "/enginetop/v1/knobs", PATCH))[0] == 409
            put = {"ttft_seconds": 0.6, "tpot_seconds": 0.05}
            assert await ask(path, "PUT", "/enginetop/v1/slo", put) == (200, put)
            status, row = await ask(path, "DELETE", "/enginetop/v1/knobs/chunked_prefill_size")
            assert (status, row["value"]) == (200, 256)
        assert app.log == ["theirs starts", "theirs ends"]
        assert not path.exists()

    asyncio.run(all_of_it())


def test_a_failing_application_is_not_held_up(manager: FakeManager, tmp_path: Path) -> None:
    async def all_of_it() -> None:
        app = SimpleNamespace(log=[])

        async def fail() -> None:
            async with serving_side.within(bare, manager, PORT, SECRET)(app):
                await appears(socket_of(tmp_path))
                raise RuntimeError("theirs")

        with pytest.raises(RuntimeError, match="theirs"):
            await fail()
        assert app.log == ["theirs starts", "theirs ends"]

    asyncio.run(all_of_it())


def hooked(fake_sglang: Any, manager: FakeManager, **arguments: Any) -> Any:
    fake_sglang.app.router.lifespan_context = bare
    given = SimpleNamespace(**({"tokenizer_worker_num": 1, "port": PORT} | arguments))
    serving_side.before_serving(SECRET)(given, manager, "template manager", execute_warmup_func=print)
    return fake_sglang.app.router.lifespan_context


def test_the_hook_puts_itself_around_the_lifespan(fake_sglang: Any, manager: FakeManager) -> None:
    assert hooked(fake_sglang, manager) is not bare


def test_several_tokenizer_processes(
    fake_sglang: Any, manager: FakeManager, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert hooked(fake_sglang, manager, tokenizer_worker_num=4) is bare
    assert "several tokenizer processes" in caplog.text


def test_a_server_of_another_version(
    fake_sglang: Any, manager: FakeManager, caplog: pytest.LogCaptureFixture
) -> None:
    del fake_sglang.app.router
    with caplog.at_level(logging.WARNING):
        serving_side.before_serving(SECRET)(SimpleNamespace(tokenizer_worker_num=1, port=1), manager)
        serving_side.before_serving(SECRET)(SimpleNamespace(), manager)
    assert caplog.text.count("steps aside") == 2


async def run_shortly(manager: FakeManager) -> bool:
    """Run it until it ends by itself, or is cancelled; whether it ended by itself."""
    task = asyncio.ensure_future(serving_side.run(manager, PORT, SECRET))
    done, _ = await asyncio.wait({task}, timeout=0.3)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    return bool(done)


def test_a_scheduler_without_the_companion(
    fake_sglang: Any, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    ranks = (FakeController(FakeScheduler(), fake_sglang.contexts, hooked=one) for one in (True, False))
    with caplog.at_level(logging.WARNING):
        assert asyncio.run(run_shortly(FakeManager(*ranks)))
    assert "not every scheduler has it" in caplog.text
    assert not socket_of(tmp_path).exists()


def test_ranks_that_were_started_differently(fake_sglang: Any, caplog: pytest.LogCaptureFixture) -> None:
    ranks = [FakeController(FakeScheduler(), fake_sglang.contexts) for _ in range(2)]
    ranks[1].scheduler.chunked_prefill_size = 128
    with caplog.at_level(logging.WARNING):
        assert asyncio.run(run_shortly(FakeManager(*ranks)))
    assert "or they differ" in caplog.text


def test_what_is_absent_is_said(
    fake_sglang: Any, manager: FakeManager, caplog: pytest.LogCaptureFixture
) -> None:
    del manager.controllers[0].scheduler.new_token_ratio_tracker
    with caplog.at_level(logging.WARNING):
        assert not asyncio.run(run_shortly(manager))
    assert "new_token_ratio: not in this version" in caplog.text


def test_without_metrics_nothing_is_counted_and_knobs_are_there(
    manager: FakeManager, caplog: pytest.LogCaptureFixture
) -> None:
    manager.enable_metrics = False
    with caplog.at_level(logging.WARNING):
        assert not asyncio.run(run_shortly(manager))
    assert "without --enable-metrics" in caplog.text
    assert not hasattr(manager, "_enginetop_truth")


def test_without_a_token_there_are_counters_alone(
    manager: FakeManager,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    monkeypatch.delenv("ENGINETOP_COMPANION_TOKEN_FILE")
    with caplog.at_level(logging.WARNING):
        asyncio.run(run_shortly(manager))
    assert "no knob API, ENGINETOP_COMPANION_TOKEN_FILE is not set" in caplog.text
    assert hasattr(manager, "_enginetop_truth")
    assert not socket_of(tmp_path).exists()


@pytest.mark.parametrize("variable", ["ENGINETOP_COMPANION_LISTEN", "ENGINETOP_SLO"])
def test_a_variable_that_cannot_be_used(
    manager: FakeManager, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, variable: str
) -> None:
    monkeypatch.setenv(variable, "ttft=never")
    with caplog.at_level(logging.WARNING):
        assert asyncio.run(run_shortly(manager))
    assert variable in caplog.text
