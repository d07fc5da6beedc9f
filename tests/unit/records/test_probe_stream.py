"""The answer to a probe's request, event by event."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.probe.stream import StreamedAnswer, error_text
from collectors.records.lines import RequestLine

USAGE = {"prompt_tokens": 30, "completion_tokens": 5, "completion_tokens_details": {"reasoning_tokens": 3}}


def event(**content: Any) -> bytes:
    return b"data: " + json.dumps(content).encode()


def delta(**content: Any) -> bytes:
    return event(choices=[{"index": 0, "delta": content, "finish_reason": None}])


def streamed(*lines: bytes, ended: float = 110.0) -> tuple[StreamedAnswer, RequestLine]:
    """The first line comes a second after the request, each of the others half a second later."""
    answer = StreamedAnswer(100.0)
    for number, line in enumerate(lines):
        answer.take(line, 101.0 + 0.5 * number)
    return answer, answer.record(ended)


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning"])
def test_times_counts_and_lengths(key: str) -> None:
    answer, found = streamed(
        delta(role="assistant", content=""),  # no token yet
        delta(**{key: "let me"}),  # the first, at 101.5
        delta(**{key: " see"}),
        b": a comment",
        b"",
        delta(content="four"),  # the last, at 104
        event(choices=[{"delta": {}, "finish_reason": "stop"}]),
        event(choices=[], usage=USAGE),
        b"data: [DONE]",
        ended=106.0,
    )
    assert answer.done
    assert answer.error == ""
    assert (found.ttft_seconds, found.e2e_seconds, found.finish) == (1.5, 6.0, "stop")
    assert found.tpot_seconds == pytest.approx(2.0 / 4)  # 101.5 to 103.5 for four more tokens
    assert (found.prompt_tokens, found.output_tokens, found.reasoning_tokens) == (30, 5, 3)
    assert (found.reasoning_chars, found.answer_chars) == (10, 4)


def test_without_usage_events_are_not_taken_for_tokens() -> None:
    _, found = streamed(delta(reasoning="a"), delta(content="b"), b"data: [DONE]")
    assert (found.output_tokens, found.reasoning_tokens, found.tpot_seconds) == (None, None, None)
    assert (found.reasoning_chars, found.ttft_seconds) == (1, 1.0)


def test_a_zero_beside_reasoning_text_is_unknown() -> None:
    uncounted = {**USAGE, "completion_tokens_details": {"reasoning_tokens": 0}}
    _, found = streamed(delta(reasoning="hm"), event(choices=[], usage=uncounted))
    assert found.figures(1.0).known_reasoning is None
    _, quiet = streamed(delta(content="hm"), event(choices=[], usage=uncounted))
    assert quiet.figures(1.0).known_reasoning == 0


def test_an_error_in_the_middle_is_told() -> None:
    answer, _ = streamed(delta(content="a"), event(error={"message": "out of\nmemory\x1b[2J", "code": 500}))
    assert answer.error.startswith("out of memory")
    assert "\x1b" not in answer.error
    assert not answer.done


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ({"error": {"message": "no"}}, "no"),
        ({"error": "no"}, "no"),
        ({"message": "no"}, "no"),
        ({}, ""),
        ([], ""),
        (None, ""),
        ({"error": {"message": 7}}, ""),
    ],
)
def test_shapes_of_errors(document: object, text: str) -> None:
    assert error_text(document) == text


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["choices", "delta", "content", "reasoning", "usage", "error", "finish_reason"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=10,
)


@settings(max_examples=60, deadline=None)
@given(st.lists(JSON.map(lambda value: b"data: " + json.dumps(value).encode()) | st.binary(max_size=9)))
def test_nothing_that_a_server_sends_breaks_it(lines: list[bytes]) -> None:
    _, found = streamed(*lines, b"data: \xff", b"data: {" + b'"a":[' * 5000)
    assert found.e2e_seconds == 10.0
    assert (found.output_tokens or 0) >= 0
