"""A real llama.cpp router whose model is loaded with other arguments, through the path and over HTTP.

Opt-in: `ENGINETOP_LLAMA_SERVER` names a `llama-server` (its libraries in `LD_LIBRARY_PATH`); the suite's own
llama.cpp is a library, which cannot start a router's children.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from collectors.fetch import NO_CREDENTIALS
from enginetop.cli.engine_apis import EngineApiPath
from enginetop.cli.targets import parse_target
from enginetop.fleet.knobs import FAILED, KnobRow
from enginetop.fleet.restart_tables import EngineApiTable
from tests.support.launching import free_port
from tests.support.tiny_gguf import UNPRINTABLE_TOKENS, write_tiny_model
from tuners.control.knob_api import HttpKnobClient

SERVER = os.environ.get("ENGINETOP_LLAMA_SERVER", "")
pytestmark = pytest.mark.skipif(not SERVER, reason="ENGINETOP_LLAMA_SERVER names no llama-server")

SEATS, THINKING = "max_num_seqs", "thinking_token_budget"
BARRED = [[token, False] for token in range(UNPRINTABLE_TOKENS)]


class Router:
    """A router with two models, and the path to the first."""

    def __init__(self, folder: Path) -> None:
        write_tiny_model(folder / "tiny.gguf")
        self.preset = folder / "models.ini"
        section = f"model = {folder / 'tiny.gguf'}\nctx-size = 2048\nthreads = 1\n"
        self.text = f"version = 1\n\n[a]\n{section}parallel = 2\nubatch-size = 256\n\n[b]\n{section}np = 1\n"
        self.preset.write_text(self.text)
        self.url = f"http://127.0.0.1:{free_port()}"
        table = EngineApiTable(
            path="llamacpp_router", model="a", preset=str(self.preset), drain_seconds=60, ready_seconds=30
        )
        self.client = HttpKnobClient(EngineApiPath(table, parse_target(self.url), NO_CREDENTIALS, folder))

    def get(self, path: str) -> httpx.Response:
        return httpx.get(self.url + path, timeout=10.0, trust_env=False)

    def load(self, model: str) -> None:
        httpx.post(f"{self.url}/models/load", json={"model": model}, timeout=10.0, trust_env=False)
        until(lambda: self.state(model) == "loaded")

    def state(self, model: str) -> str:
        try:
            listed = self.get("/models").json()["data"]
        except httpx.HTTPError:
            return ""
        return next(str(one["status"]["value"]) for one in listed if one["id"] == model)

    def slots(self) -> int:
        """How many requests model `a` serves at a time, by its own word."""
        return len(self.get("/slots?model=a&autoload=false").json())

    def row(self, knob: str = SEATS) -> KnobRow:
        sheet = self.client.read().sheet
        assert sheet is not None
        found = sheet.knob(knob)
        assert found is not None
        return found

    def put(self, value: int, knob: str = SEATS, ttl: float | None = 600.0) -> KnobRow:
        reply = self.client.write(knob, value, if_version=None, ttl_seconds=ttl, change="c", reason="r")
        assert reply.kind.value == "ok", reply.detail
        until(lambda: not self.row(knob).moves)
        return self.row(knob)


def until(true: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "never"
        time.sleep(0.05)


@pytest.fixture
def router(tmp_path: Path) -> Iterator[Router]:
    made = Router(tmp_path)
    port = made.url.rpartition(":")[2]
    command = [SERVER, "--host", "127.0.0.1", "--port", port, "--offline", "--metrics", "--slots", "--no-ui"]
    command += ["--models-preset", str(made.preset), "--models-max", "2"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            until(lambda: made.state("a") == "unloaded")
            made.load("a")
            made.load("b")
            yield made
        finally:
            process.terminate()


def test_loaded_with_other_arguments_drained_and_back_again(router: Router) -> None:
    assert (router.row().value, router.slots()) == (2, 2)
    ended: list[int] = []

    def complete() -> None:
        body = {"model": "a", "prompt": "monitor " * 30, "n_predict": 60, "ignore_eos": True}
        response = httpx.post(
            f"{router.url}/completion", json={**body, "logit_bias": BARRED}, timeout=120.0, trust_env=False
        )
        ended.append(response.json()["tokens_predicted"] if response.status_code == httpx.codes.OK else -1)

    clients = [threading.Thread(target=complete) for _ in range(3)]
    for client in clients:
        client.start()
    until(lambda: any(slot["is_processing"] for slot in router.get("/slots?model=a").json()))
    began = time.monotonic()
    row = router.put(3)
    took = time.monotonic() - began
    for client in clients:
        client.join()
    assert ended == [60, 60, 60]  # drained, none cut
    assert (row.value, row.note, router.slots()) == (3, "", 3)
    assert router.preset.read_text() == router.text.replace("parallel = 2", "parallel = 3")
    assert router.state("b") == "loaded"  # nobody else was touched
    began = time.monotonic()
    row = router.put(2, ttl=None)
    print(f"drained and loaded in {took:.1f} s, back in {time.monotonic() - began:.1f} s")
    assert (row.value, router.slots(), router.preset.read_text()) == (2, 2, router.text)


def test_a_value_that_the_model_does_not_start_with_goes_back(router: Router) -> None:
    row = router.put(2000)
    assert (row.value, row.phase) == (2, "")
    assert "max_num_seqs 2000 did not work: a ended with exit code 1" in row.note
    assert (router.slots(), router.preset.read_text()) == (2, router.text)


def test_a_model_that_does_not_come_back_is_left_with_the_command(router: Router) -> None:
    model = router.preset.parent / "tiny.gguf"
    model.rename(model.with_suffix(".gone"))
    row = router.put(3)
    assert row.phase == FAILED
    assert f"curl -fsS {router.url}/models?reload=1" in row.note.replace("'", "")
    model.with_suffix(".gone").rename(model)
    assert router.put(2, ttl=None).phase == ""
    assert (router.slots(), router.preset.read_text()) == (2, router.text)


THINKS = """{%- for message in messages -%}
{%- if message.role == 'assistant' and message.reasoning_content -%}<think>
{{ message.reasoning_content }}
</think>
{%- endif -%}
[{{ message.role }}] {{ message.content }}
{% endfor -%}
{%- if add_generation_prompt -%}[assistant] <think>
{% endif -%}
"""
"""The lines around the thought are how llama.cpp learns what ends one."""


def test_a_default_thinking_budget_comes_and_goes(router: Router) -> None:
    (router.preset.parent / "think.jinja").write_text(THINKS)
    template = f"[a]\njinja = 1\nreasoning = on\nchat-template-file = {router.preset.parent}/think.jinja\n"
    router.preset.write_text(router.text.replace("[a]\n", template))
    router.get("/models?reload=1")
    router.load("a")

    def thought() -> int:
        asked = {"model": "a", "messages": [{"role": "user", "content": "monitor"}], "max_tokens": 60}
        body = {**asked, "logit_bias": BARRED, "ignore_eos": True, "temperature": 0.0}
        answer = httpx.post(
            f"{router.url}/v1/chat/completions", json=body, timeout=60.0, trust_env=False
        ).json()
        return len(answer["choices"][0]["message"].get("reasoning_content") or "")

    free = thought()
    row = router.row(THINKING)
    assert (row.value, row.start) == (None, None)
    assert router.put(12, THINKING).value == 12
    held = thought()
    print(f"thoughts of {free} characters, {held} with a budget of 12 tokens")
    assert held <= 12 < free
    assert router.client.reset(THINKING).kind.value == "ok"
    until(lambda: not router.row(THINKING).moves)
    assert (router.row(THINKING).value, thought()) == (None, free)


def test_what_lies_still_lies(router: Router) -> None:
    """Unload and load alone do not read the file anew, and `extra_args` are accepted and ignored."""
    router.preset.write_text(router.text.replace("parallel = 2", "parallel = 3"))
    httpx.post(f"{router.url}/models/unload", json={"model": "a"}, timeout=10.0, trust_env=False)
    until(lambda: router.state("a") == "unloaded")
    asked = {"model": "a", "extra_args": ["--parallel", "4"]}
    answer = httpx.post(f"{router.url}/models/load", json=asked, timeout=10.0, trust_env=False)
    assert answer.json() == {"success": True}
    until(lambda: router.state("a") == "loaded")
    assert router.slots() == 2
