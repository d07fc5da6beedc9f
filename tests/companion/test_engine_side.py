"""The part in EngineCore, on a loop that blocks when idle as vLLM's does."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from enginetop_companion_vllm import engine_side
from tests.companion.fakes import FakeCore, FakeScheduler, RequestType, config_of, running

CHANGE = {"knob": "max_num_batched_tokens", "value": 128, "if_version": 0, "change": "a", "ticket": "t"}


@pytest.fixture
def core(fake_vllm: SimpleNamespace) -> Iterator[FakeCore]:
    core = FakeCore(config=config_of(reasoning=True))
    thread = running(core)
    yield core
    core.busy = False
    core.stop()
    thread.join(timeout=10)


def ask(core: FakeCore, verb: str, **asked: Any) -> dict[str, Any]:
    answer: dict[str, Any] = core.in_loop(lambda: engine_side.call(core, verb, asked))
    return answer


def next_wake_up(core: FakeCore) -> None:
    while core.seen.get(timeout=10) is not RequestType.WAKEUP:
        pass


def test_an_idle_engine_goes_back_by_itself(core: FakeCore, caplog: pytest.LogCaptureFixture) -> None:
    assert ask(core, "change", **CHANGE, ttl_seconds=0.05)["status"] == 200
    assert core.scheduler.max_num_scheduled_tokens == 128
    next_wake_up(core)  # nobody asks anything
    assert core.scheduler.max_num_scheduled_tokens == 512
    assert "max_num_batched_tokens is back at 512" in caplog.text


def test_a_busy_engine_goes_back_between_two_steps(core: FakeCore) -> None:
    core.busy = True
    ask(core, "view")
    for version in range(0, 10, 2):
        once = CHANGE | {"if_version": version, "change": f"c{version}", "ttl_seconds": 0.01}
        assert ask(core, "change", **once)["value"] == 128
        next_wake_up(core)
        assert core.scheduler.max_num_scheduled_tokens == 512
        core.in_loop(lambda: _forget_spacing(core))
    core.busy = False
    assert core.steps > 0
    assert core.torn_steps == 0


def _forget_spacing(core: FakeCore) -> None:
    for place in core._enginetop_companion._board._places.values():  # type: ignore[attr-defined]
        place.changed_at = float("-inf")


def test_a_renewed_change_outlives_its_first_lease(core: FakeCore) -> None:
    ask(core, "change", **CHANGE, ttl_seconds=0.3)
    ask(core, "change", **CHANGE | {"if_version": 1}, ttl_seconds=3600.0)
    ask(core, "change", **CHANGE | {"knob": "max_num_seqs", "value": 8}, ttl_seconds=0.4)
    next_wake_up(core)
    assert (core.scheduler.max_num_active_reqs, core.scheduler.max_num_scheduled_tokens) == (16, 128)


def test_sheet_and_view(core: FakeCore) -> None:
    sheet = ask(core, "sheet")
    assert sheet["status"] == 200
    assert len(sheet["instance"]) == 32
    assert [one["name"] for one in sheet["knobs"]] == [
        "max_num_batched_tokens",
        "max_num_seqs",
        "long_prefill_token_threshold",
        "kv_watermark_blocks",
        "num_speculative_tokens",
        "thinking_token_budget",
        "max_num_queued_reqs",
        "max_num_queued_tokens",
    ]
    ask(core, "objective", objective=[0.6, 0.05])
    ask(core, "change", **CHANGE | {"knob": "thinking_token_budget", "value": 10}, ttl_seconds=100.0)
    view = ask(core, "view")
    assert view["objective"] == [0.6, 0.05]
    assert set(view["served"]) == {"thinking_token_budget", "max_num_queued_reqs", "max_num_queued_tokens"}
    thinking = view["served"]["thinking_token_budget"]
    assert (thinking["value"], thinking["former"]) == (10, -1)
    assert 99.0 < thinking["expires_in_seconds"] <= 100.0
    assert view["served"]["max_num_queued_reqs"] == {"value": -1, "expires_in_seconds": None, "former": None}


def test_each_engine_is_its_own_instance(fake_vllm: SimpleNamespace) -> None:
    sheets = [engine_side.call(FakeCore(), "sheet", {}) for _ in range(2)]
    assert sheets[0]["instance"] != sheets[1]["instance"]


@pytest.mark.parametrize(
    "name", ["max_num_scheduled_tokens", "max_num_active_reqs", "dynamic_sd_lookup", "kv_cache_manager"]
)
def test_a_missing_part_is_named_and_nothing_is_touched(fake_vllm: SimpleNamespace, name: str) -> None:
    scheduler = FakeScheduler()
    delattr(scheduler, name)
    core = FakeCore(scheduler)
    answer = engine_side.call(core, "sheet", {})
    assert answer["status"] == 501
    assert name in answer["error"]
    assert "_handle_client_request" not in vars(core)


def test_a_missing_config_field_is_named(fake_vllm: SimpleNamespace) -> None:
    core = FakeCore()
    del core.scheduler.scheduler_config.long_prefill_token_threshold
    assert "scheduler_config.long_prefill_token_threshold" in engine_side.call(core, "sheet", {})["error"]


def test_an_engine_without_a_loop_of_its_own_still_answers(fake_vllm: SimpleNamespace) -> None:
    core = FakeCore()
    del core.input_queue
    engine_side.call(core, "change", CHANGE | {"ttl_seconds": 0.0})
    assert engine_side.call(core, "sheet", {})["knobs"][0]["value"] == 512


def test_nonsense_never_raises(core: FakeCore) -> None:
    for verb, asked in (("nothing", {}), ("change", {}), ("hold", {"knob": 1}), ("reset", {})):
        assert ask(core, verb, **asked)["status"] in {400, 501}
    assert ask(core, "sheet")["status"] == 200


def test_registers_only_when_switched_on(fake_vllm: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    engine_side.register()
    assert not hasattr(fake_vllm.EngineCore, "enginetop_companion")
    monkeypatch.setenv("ENGINETOP_COMPANION", "1")
    engine_side.register()
    assert fake_vllm.EngineCore.enginetop_companion is engine_side.call


@pytest.mark.parametrize("version", ["0.31.0", "0.34.0", "1.0", "dev", "", "0"])
def test_an_unknown_version_is_left_alone(
    fake_vllm: SimpleNamespace,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    version: str,
) -> None:
    monkeypatch.setenv("ENGINETOP_COMPANION", "1")
    fake_vllm.vllm.__version__ = version
    with caplog.at_level(logging.WARNING):
        engine_side.register()
    assert not hasattr(fake_vllm.EngineCore, "enginetop_companion")
    assert caplog.text.count("steps aside") == 1


def test_no_vllm_is_no_error(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("ENGINETOP_COMPANION", "1")
    engine_side.register()
    assert "steps aside" in caplog.text


def test_the_alarm_rings_again_when_ringing_failed() -> None:
    from enginetop_companion_vllm.alarm import Alarm

    rung, attempts = threading.Event(), []

    def ring() -> None:
        attempts.append(1)
        if len(attempts) == 1:
            raise OSError("queue closed")
        rung.set()

    alarm = Alarm(ring, patience=0.01)
    alarm.set(0.0)
    assert rung.wait(10)
    alarm.set(None)
    assert len(attempts) == 2
