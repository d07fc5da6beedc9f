"""A real engine with a reasoning parser and two API server processes: the default budget and the counts."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.vllm.load import Load
from tests.vllm.server import Server, wait_for

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1800)]

THINKING = "thinking_token_budget"
COUNT = "enginetop_reasoning_tokens"
SLACK = 2
"""The forced end of the reasoning may itself be counted."""


@pytest.fixture(autouse=True)
def no_default(reasoning: Server) -> None:
    assert reasoning.reset(THINKING).status_code == 200
    time.sleep(1.2)  # what the API server that did not take it needs to hear of it


def ask(server: Server, path: str = "/v1/chat/completions", **body: Any) -> dict[str, Any]:
    question = {"model": "tiny", "messages": [{"role": "user", "content": "engine"}], "max_tokens": 60}
    answer = server.web.post(path, json=question | {"temperature": 0.0, "ignore_eos": True} | body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def reasoned(answer: dict[str, Any]) -> int:
    tokens: int = answer["usage"]["completion_tokens_details"]["reasoning_tokens"]
    return tokens


def test_a_default_thinking_budget_live(reasoning: Server, record: dict[str, object]) -> None:
    with Load(reasoning.url, max_tokens=60) as load:
        wait_for(lambda: len(load.usages) >= 30)
    free = sorted(reasoned({"usage": usage}) for usage in load.usages)
    assert free[0] > 10 + SLACK
    assert reasoning.change(THINKING, 10).json()["applied"] == 1
    time.sleep(1.2)
    before = reasoning.page()
    with Load(reasoning.url, max_tokens=60) as load:
        wait_for(lambda: len(load.usages) >= 60)
    page = reasoning.page()
    assert load.failures == []
    held = sorted(reasoned({"usage": usage}) for usage in load.usages)
    assert 0 < held[-1] <= 10 + SLACK
    # Both processes together: every response, with the count that its client was told.
    assert page.value(f"{COUNT}_count") - before.value(f"{COUNT}_count") == len(held)
    assert page.value(f"{COUNT}_sum") - before.value(f"{COUNT}_sum") == sum(held)
    assert page.above(COUNT, 12.0) == before.above(COUNT, 12.0)
    record["default thinking budget 10: reasoning tokens p50 before, after; largest after"] = [
        free[len(free) // 2],
        held[len(held) // 2],
        held[-1],
    ]


def test_only_requests_that_set_none(reasoning: Server) -> None:
    unlimited = reasoned(ask(reasoning))
    assert reasoning.change(THINKING, 10).status_code == 200
    time.sleep(1.2)
    for _ in range(4):  # whichever process answers
        assert reasoned(ask(reasoning)) <= 10 + SLACK
        assert 10 + SLACK < reasoned(ask(reasoning, thinking_token_budget=30)) <= 30 + SLACK
        assert reasoned(ask(reasoning, thinking_token_budget=-1)) == unlimited
        assert reasoned(ask(reasoning, thinking_token_budget=0)) <= SLACK


def test_the_response_is_the_one_that_the_same_budget_in_the_request_gives(reasoning: Server) -> None:
    wanted = ask(reasoning, thinking_token_budget=10)
    assert reasoning.change(THINKING, 10).status_code == 200
    time.sleep(1.2)
    given = ask(reasoning)
    for varying in ("id", "created"):
        del wanted[varying], given[varying]
    assert given == wanted


def test_a_stream_without_usage_is_counted_and_gets_no_usage(reasoning: Server) -> None:
    before = reasoning.page().value(f"{COUNT}_count")
    body = {
        "model": "tiny",
        "messages": [{"role": "user", "content": "x"}],
        "max_tokens": 20,
        "stream": True,
        "ignore_eos": True,
    }
    with reasoning.web.stream("POST", "/v1/chat/completions", json=body) as answer:
        lines = [line for line in answer.iter_lines() if line.startswith("data: {")]
    assert all("usage" not in json.loads(line.removeprefix("data: ")) for line in lines)
    assert reasoning.page().value(f"{COUNT}_count") == before + 1


def test_messages_are_reasoned_and_counted_too(reasoning: Server) -> None:
    before = reasoning.page()
    assert reasoning.change(THINKING, 10).status_code == 200
    time.sleep(1.2)
    ask(reasoning, "/v1/messages")
    page = reasoning.page()
    assert page.value(f"{COUNT}_count") == before.value(f"{COUNT}_count") + 1
    assert page.value(f"{COUNT}_sum") - before.value(f"{COUNT}_sum") <= 10 + SLACK


def test_the_default_ends_with_its_lease(reasoning: Server) -> None:
    unlimited = reasoned(ask(reasoning))
    assert reasoning.change(THINKING, 10, ttl=3.0).status_code == 200
    time.sleep(1.2)
    assert reasoned(ask(reasoning)) <= 10 + SLACK
    time.sleep(3.0)
    assert {reasoned(ask(reasoning)) for _ in range(4)} == {unlimited}


def test_one_of_two_processes_serves_the_knobs(reasoning: Server) -> None:
    assert reasoning.log().count("enginetop companion: knob API at") == 1
    assert reasoning.log().count("is served by another process") == 1
    assert "num_speculative_tokens" not in {
        one["name"] for one in reasoning.knobs("GET", "knobs").json()["knobs"]
    }
