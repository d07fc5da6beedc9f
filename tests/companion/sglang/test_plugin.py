"""What is hooked in which process, and when the companion steps aside."""

from __future__ import annotations

import logging
import os
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from enginetop_companion_sglang import plugin
from enginetop_companion_sglang.checked_parts import version_problem
from enginetop_companion_sglang.scheduler_side import PLACE, add_description, add_handlers, key_of
from tests.companion.sglang.fakes import SECRET, FakeController, FakeScheduler, Handler

OTHERS = {
    "sglang.srt.entrypoints.http_server._setup_and_run_http_server": "before",
    "sglang.srt.managers.tokenizer_manager.TokenizerManager.collect_metrics": "after",
    "sglang.srt.managers.tokenizer_manager.TokenizerManager._handle_abort_req": "before",
}
CONTROLLER = "sglang.srt.managers.scheduler_components.internal_state.SchedulerInternalStateController"


@pytest.fixture(autouse=True)
def switched_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINETOP_COMPANION", "1")
    monkeypatch.setenv(plugin.SECRET, "")  # so that what is left there goes with the test
    monkeypatch.delenv(plugin.SECRET)


def kinds(fake_sglang: Any) -> dict[str, str]:
    return {target: kind for target, (kind, _) in fake_sglang.registry.hooks.items()}


def as_child(monkeypatch: pytest.MonkeyPatch, *, scheduler: bool) -> None:
    monkeypatch.setenv(plugin.SECRET, SECRET)
    if scheduler:
        name = "sglang.srt.managers.scheduler"
        monkeypatch.setitem(sys.modules, name, ModuleType(name))


def test_the_server_process_leaves_a_secret_to_its_children(
    fake_sglang: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin.register()
    assert kinds(fake_sglang) == OTHERS
    first = os.environ[plugin.SECRET]
    assert len(first) == 32
    monkeypatch.delenv(plugin.SECRET)
    plugin.register()
    assert os.environ[plugin.SECRET] != first


def test_a_scheduler_is_given_handlers_and_a_word(fake_sglang: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    as_child(monkeypatch, scheduler=True)
    plugin.register()
    assert kinds(fake_sglang) == {
        f"{CONTROLLER}._update_handlers": "after",
        f"{CONTROLLER}.get_internal_state": "after",
    }


def test_the_detokenizer_is_left_alone(fake_sglang: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    as_child(monkeypatch, scheduler=False)
    plugin.register()
    assert kinds(fake_sglang) == {}


@pytest.mark.parametrize("value", ["", "0", "no", None])
def test_off_unless_asked_for(fake_sglang: Any, monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    monkeypatch.delenv("ENGINETOP_COMPANION")
    if value is not None:
        monkeypatch.setenv("ENGINETOP_COMPANION", value)
    plugin.register()
    assert kinds(fake_sglang) == {}
    assert plugin.SECRET not in os.environ


@pytest.mark.parametrize(
    "version", ["0.5.2", "0.5.15", "0.5.22", "0.5.24", "0.5.23.post1", "0.0.0.dev0", "x", ""]
)
def test_another_version_is_named_and_nothing_is_hooked(
    fake_sglang: Any, caplog: pytest.LogCaptureFixture, version: str
) -> None:
    fake_sglang.sglang.__version__ = version
    with caplog.at_level(logging.WARNING):
        plugin.register()
    assert kinds(fake_sglang) == {}
    assert f"SGLang {version} is not a version that was checked (0.5.23)" in caplog.text


def test_a_local_build_of_a_checked_version() -> None:
    assert version_problem("0.5.23+cpu") == ""


@pytest.mark.parametrize("gone", ["sglang", "sglang.srt.plugins.hook_registry"])
def test_without_sglangs_hooks_it_steps_aside(
    fake_sglang: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, gone: str
) -> None:
    monkeypatch.setitem(sys.modules, gone, None)
    with caplog.at_level(logging.WARNING):
        plugin.register()
    assert "steps aside" in caplog.text


def test_only_who_knows_the_secret_reaches_the_knobs(fake_sglang: Any) -> None:
    controller = FakeController(FakeScheduler(), fake_sglang.contexts)
    for name in ("chunked_prefill_size", "max_num_batched_tokens", "enginetop.max_num_batched_tokens"):
        assert not controller.set_internal_state({name: 64})
    assert not controller.set_internal_state({key_of("max_num_batched_tokens", "another"): 64})
    assert controller.scheduler.chunked_prefill_size == 256
    assert controller.set_internal_state({key_of("max_num_batched_tokens", SECRET): 64})
    assert controller.scheduler.chunked_prefill_size == 64


@pytest.mark.parametrize("value", [31, 257, 64.5, 0, -1, 1e300])
def test_a_scheduler_checks_for_itself(fake_sglang: Any, value: float) -> None:
    controller = FakeController(FakeScheduler(), fake_sglang.contexts)
    assert not controller.set_internal_state({key_of("max_num_batched_tokens", SECRET): value})
    assert controller.scheduler.chunked_prefill_size == 256


def test_one_bad_key_rejects_the_whole_body(fake_sglang: Any) -> None:
    controller = FakeController(FakeScheduler(), fake_sglang.contexts)
    body = {key_of("max_num_batched_tokens", SECRET): 64, key_of("max_prefill_tokens", SECRET): 1}
    assert not controller.set_internal_state(body)
    assert controller.scheduler.chunked_prefill_size == 256


@pytest.mark.parametrize("gone", ["scheduler_components.internal_state", "runtime_context"])
def test_hooks_never_raise(
    fake_sglang: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, gone: str
) -> None:
    module = "sglang.srt.runtime_context" if gone == "runtime_context" else f"sglang.srt.managers.{gone}"
    monkeypatch.setitem(sys.modules, module, None)
    controller = SimpleNamespace(scheduler=FakeScheduler())
    theirs = {"pp_max_micro_batch_size": Handler(print, print)}
    with caplog.at_level(logging.WARNING):
        assert add_handlers(SECRET)(theirs, controller) is theirs
    assert "no knobs in this scheduler" in caplog.text


def test_a_word_that_cannot_be_added_leaves_the_state_as_it_is(
    fake_sglang: Any, caplog: pytest.LogCaptureFixture
) -> None:
    output = SimpleNamespace(internal_state={"tp_size": 1})
    with caplog.at_level(logging.WARNING):
        assert add_description(output, SimpleNamespace()) is output
    assert output.internal_state == {"tp_size": 1}
    assert "no knobs in this scheduler" in caplog.text


def test_start_values_are_those_before_any_change(fake_sglang: Any) -> None:
    controller = FakeController(FakeScheduler(), fake_sglang.contexts)
    controller.set_internal_state({key_of("max_num_batched_tokens", SECRET): 64})
    rows = controller.get_internal_state().internal_state[PLACE]["knobs"]
    chunk = next(row for row in rows if row["name"] == "max_num_batched_tokens")
    assert (chunk["value"], chunk["start"]) == (64, 256)
