"""Bodies of completion requests, and how an answer is told, piece by piece or at once."""

from __future__ import annotations

import contextlib
import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enginetop.simulator.completions import Asked, CompletionError, Wording, parse, request_for
from enginetop.simulator.request import Request
from enginetop.simulator.traffic import DrawnRequest
from tests.unit.simulator.knob_engine import SETTINGS

HELLO = {"messages": [{"role": "user", "content": "0123456789"}]}
"""10 characters: 3 tokens, and 4 of the template."""


def read(document: object, *, chat: bool = True, reasons: bool = True) -> Asked:
    return parse(json.dumps(document).encode(), SETTINGS, chat=chat, reasons=reasons)


def test_a_chat_request() -> None:
    asked = read({**HELLO, "model": "m", "stream": True, "max_tokens": 50, "thinking_token_budget": 7})
    assert asked == Asked(
        chat=True,
        stream=True,
        usage=True,
        prompt_tokens=7,
        max_tokens=50,
        ignore_eos=False,
        thinking_token_budget=7,
    )


@pytest.mark.parametrize(
    ("prompt", "tokens"), [("", 1), ("abc", 1), ("abcd", 1), ("abcde", 2), ([5, 6, 7], 3), ("x" * 400, 100)]
)
def test_a_prompt_is_measured(prompt: object, tokens: int) -> None:
    asked = read({"prompt": prompt}, chat=False)
    assert (asked.prompt_tokens, asked.max_tokens, asked.stream) == (tokens, 16, False)


def test_contents_in_parts_and_a_limit_under_its_newer_name() -> None:
    parts = [{"type": "text", "text": "abcdefgh"}, {"type": "image_url", "image_url": {"url": "x"}}, "y"]
    asked = read({"messages": [{"content": parts}], "max_completion_tokens": 9, "max_tokens": 3})
    # 2 for the text, 1 each for what has none, 4 of the template
    assert (asked.prompt_tokens, asked.max_tokens) == (8, 9)
    # Without a limit a chat may go on to the end of the context of 1000 tokens.
    assert read(HELLO).max_tokens == 993


@pytest.mark.parametrize(
    ("document", "chat", "problem"),
    [
        ([], True, "the body is not an object"),
        ({}, True, "messages: not a list"),
        ({"messages": []}, True, "messages: not a list"),
        ({"messages": ["hello"]}, True, "messages: a message without content"),
        ({"messages": [{"content": None}]}, True, "messages: a message without content"),
        ({}, False, "prompt: not a text"),
        ({"prompt": []}, False, "prompt: not a text"),
        ({"prompt": [1, "a"]}, False, "prompt: not a text"),
        ({"prompt": [True]}, False, "prompt: not a text"),
        ({"prompt": "x" * 4000}, False, "the prompt leaves no room within 1000 tokens"),
        ({"prompt": "x", "model": "other"}, False, "model: there is only m"),
        ({"prompt": "x", "max_tokens": 0}, False, "max_tokens: not a whole number from 1 to 999"),
        ({"prompt": "x", "max_tokens": 1000}, False, "max_tokens: not a whole number from 1 to 999"),
        ({"prompt": "x", "max_tokens": "9"}, False, "max_tokens: not a whole number"),
        ({"prompt": "x", "thinking_token_budget": -2}, False, "thinking_token_budget: not a whole"),
        ({"prompt": "x", "thinking_token_budget": 1.5}, False, "thinking_token_budget: not a whole"),
    ],
)
def test_what_is_refused(document: object, chat: bool, problem: str) -> None:
    with pytest.raises(CompletionError, match=problem):
        read(document, chat=chat)


def test_a_budget_needs_a_model_that_thinks() -> None:
    with pytest.raises(CompletionError, match="no reasoning parser"):
        read({**HELLO, "thinking_token_budget": 10}, reasons=False)


@given(st.binary(max_size=60) | st.just(b"[" * 5000))
@settings(max_examples=80, deadline=None)
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    for chat in (True, False):
        with contextlib.suppress(CompletionError):
            parse(body, SETTINGS, chat=chat, reasons=True)


def drawn() -> DrawnRequest:
    return DrawnRequest(1.0, 500, answer_tokens=4, reasoning_tokens=3, prefix=0, prefix_tokens=16)


def test_what_the_engine_is_given() -> None:
    given_ = request_for(read({**HELLO, "max_tokens": 50}), drawn(), 12.5)
    assert given_ == DrawnRequest(12.5, 7, answer_tokens=4, reasoning_tokens=3, max_tokens=50)
    on = request_for(
        read({**HELLO, "max_tokens": 50, "ignore_eos": True, "thinking_token_budget": 2}), drawn(), 0
    )
    request = Request(on, thinking_token_budget=0)
    assert (on.answer_tokens, on.thinking_token_budget) == (50, 2)
    assert (request.output_tokens, request.finish_reason) == (50, "length")


def wording(**more: Any) -> Wording:
    asked = read({**HELLO, **more}) if more.pop("chat", True) else read({"prompt": "x", **more}, chat=False)
    return Wording(asked, "id-1", "m", 1700, True, "reasoning")


def ended(tokens: int = 7) -> Request:
    request = Request(drawn())
    request.generated_tokens = tokens
    return request


def events(parts: list[bytes]) -> list[Any]:
    assert all(part.startswith(b"data: ") and part.endswith(b"\n\n") for part in parts)
    return [part[6:-2] if part == b"data: [DONE]\n\n" else json.loads(part[6:-2]) for part in parts]


def test_an_answer_in_one_piece() -> None:
    document = wording().whole(ended())
    assert document["object"] == "chat.completion"
    assert (document["id"], document["model"], document["created"]) == ("id-1", "m", 1700)
    assert document["choices"] == [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": " a step and every",
                "reasoning": " the engine takes",
            },
            "finish_reason": "stop",
        }
    ]
    assert document["usage"] == {
        "prompt_tokens": 500,
        "completion_tokens": 7,
        "total_tokens": 507,
        "completion_tokens_details": {"reasoning_tokens": 3},
    }


def test_a_chat_in_events() -> None:
    told, request = wording(), ended()
    parts = [
        *told.begin(),
        *told.tokens(request, 0, 2),
        *told.tokens(request, 2, 5),
        *told.tokens(request, 5, 7),
        *told.end(request),
    ]
    *chunks, usage, done = events(parts)
    assert [chunk["choices"][0]["delta"] for chunk in chunks] == [
        {"role": "assistant", "content": ""},
        {"reasoning": " the engine"},
        {"reasoning": " takes"},
        {"content": " a step"},
        {"content": " and every"},
        {},
    ]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * 5 + ["stop"]
    assert {chunk["object"] for chunk in [*chunks, usage]} == {"chat.completion.chunk"}
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens_details"] == {"reasoning_tokens": 3}
    assert done == b"[DONE]"


def test_usage_can_be_left_out() -> None:
    told = wording(stream_options={"include_usage": False})
    assert [b"usage" in part for part in told.end(ended())] == [False, False]


@given(st.lists(st.integers(0, 7), max_size=6), st.booleans())
@settings(max_examples=50, deadline=None)
def test_pieces_make_up_the_whole(cuts: list[int], chat: bool) -> None:
    told = Wording(
        read(HELLO) if chat else read({"prompt": "x"}, chat=False), "id", "m", 0, True, "reasoning"
    )
    request = ended()
    edges = [0, *sorted(cuts), 7]
    parts = [
        part
        for since, until in pairwise(edges)
        if since < until
        for part in told.tokens(request, since, until)
    ]
    choices = [event["choices"][0] for event in events(parts)]
    whole = told.whole(request)["choices"][0]
    if chat:
        assert "".join(c["delta"].get("reasoning", "") for c in choices) == whole["message"]["reasoning"]
        assert "".join(c["delta"].get("content", "") for c in choices) == whole["message"]["content"]
    else:
        assert "".join(c["text"] for c in choices) == whole["text"] == " the engine takes a step and every"
