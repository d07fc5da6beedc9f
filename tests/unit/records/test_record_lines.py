"""Lines of request logs; the shapes are those of the sources that the tables name, the figures by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.records.formats import AUTO, BY_NAME, FORMATS, NUMBERS, WORDS
from collectors.records.lines import RecordLineError, RequestLine, parse_line

FIXTURES = Path(__file__).parents[2] / "fixtures"
SECRET = "the words of the prompt"

SGLANG = {
    "request_parameters": json.dumps({"text": SECRET, "reasoning_tokens": 9999}),
    "id": "5b1d",
    "finish_reason": {"type": "length", "length": 101},
    "prompt_tokens": 900,
    "weight_version": "default",
    "num_retractions": 0,
    "queue_time": 0.002,
    "reasoning_tokens": 60,
    "completion_tokens": 101,
    "cached_tokens": 16,
    "e2e_latency": 4.5,
    "request_received_ts": 1000.0,
    "first_token_latency": 0.5,
    "request_finished_ts": 1004.5,
    "decode_throughput": 25.0,
}
LITELLM: dict[str, Any] = {
    "id": "chatcmpl-1",
    "call_type": "acompletion",
    "stream": True,
    "status": "success",
    "total_tokens": 1001,
    "prompt_tokens": 900,
    "completion_tokens": 101,
    "startTime": 1000.0,
    "endTime": 1004.5,
    "completionStartTime": 1000.5,
    "model": "hosted_vllm/qwen3",
    "api_base": "http://r1:8000/v1",
    "metadata": {"usage_object": {"completion_tokens_details": {"reasoning_tokens": 60}}},
    "messages": [{"role": "user", "content": SECRET}],
    "response": {
        "choices": [{"finish_reason": "stop", "message": {"content": "four", "reasoning_content": "because"}}]
    },
}
CHAT: dict[str, Any] = {
    "object": "chat.completion",
    "created": 1000,
    "model": "qwen3",
    "choices": [
        {"index": 0, "message": {"content": "four", "reasoning_content": SECRET}, "finish_reason": "stop"}
    ],
    "usage": {
        "prompt_tokens": 900,
        "completion_tokens": 101,
        "completion_tokens_details": {"reasoning_tokens": 60},
    },
}
RESPONSES: dict[str, Any] = {
    "object": "response",
    "created_at": 1000,
    "completed_at": 1004.5,
    "model": "qwen3",
    "status": "completed",
    "output": [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": SECRET}]},
        {"type": "message", "content": [{"type": "output_text", "text": "four"}]},
    ],
    "usage": {
        "input_tokens": 900,
        "output_tokens": 101,
        "output_tokens_details": {"reasoning_tokens": 60},
    },
}
OWN: dict[str, Any] = {
    "t": 1004.5,
    "target": "http://r1:8000",
    "kind": "request",
    "prompt_tokens": 900,
    "output_tokens": 101,
    "reasoning_tokens": 60,
    "ttft_seconds": 0.5,
    "tpot_seconds": 0.04,
    "e2e_seconds": 4.5,
    "finish": "stop",
}
SAMPLES: Mapping[str, dict[str, Any]] = {
    "sglang": SGLANG,
    "litellm": LITELLM,
    "openai": CHAT,
    "enginetop": OWN,
}


def parsed(document: object, form: str = AUTO) -> RequestLine:
    found = parse_line(json.dumps(document), form)
    assert found is not None
    return found


def record_or_reason(text: str) -> RequestLine | str | None:
    try:
        return parse_line(text)
    except RecordLineError as error:
        return str(error)


def without(document: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key not in keys}


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("told", [True, False])
def test_every_format_is_known_by_itself_and_by_its_name(name: str, told: bool) -> None:
    found = parsed(SAMPLES[name], name if told else AUTO)
    assert (found.prompt_tokens, found.output_tokens, found.reasoning_tokens) == (900, 101, 60)


@pytest.mark.parametrize("document", [SGLANG, LITELLM, OWN])
def test_times_of_a_request(document: dict[str, Any]) -> None:
    found = parsed(document)
    assert found.ended_at == 1004.5
    assert found.e2e_seconds == 4.5
    assert found.ttft_seconds == 0.5
    assert found.tpot_seconds == pytest.approx(0.04)  # 4 s for the 100 tokens after the first; 1 / 25


def test_nothing_of_the_words_is_kept() -> None:
    for document in (SGLANG, LITELLM, CHAT, RESPONSES, {**OWN, "prompt": SECRET, "finish": "stop"}):
        assert SECRET not in repr(parsed(document))
    assert parsed(CHAT).reasoning_chars == len(SECRET)
    assert parsed(CHAT).answer_chars == len("four")
    assert parsed(LITELLM).reasoning_chars == len("because")
    assert parsed(RESPONSES).reasoning_chars == len(SECRET)
    assert parsed(RESPONSES).answer_chars == len("four")
    told = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]}
    uncounted = {**RESPONSES["usage"], "output_tokens_details": {"reasoning_tokens": 0}}
    hidden = parsed({**RESPONSES, "output": [told, RESPONSES["output"][1]], "usage": uncounted})
    assert (hidden.reasoning_chars, hidden.figures(1.0).known_reasoning) == (2, None)


def test_sglang_without_metrics_tells_tokens_and_the_whole_time_only() -> None:
    dark = without(
        SGLANG,
        "request_received_ts",
        "first_token_latency",
        "request_finished_ts",
        "decode_throughput",
        "queue_time",
    )
    found = parsed({**dark, "response_sent_to_client_ts": 1004.75})
    assert (found.ttft_seconds, found.tpot_seconds, found.ended_at) == (None, None, 1004.75)
    assert found.e2e_seconds == 4.5
    received = parsed({**dark, "request_received_ts": 1000.0})
    assert received.ended_at == 1004.5  # received, and 4.5 s later


def captured(path: str) -> list[RequestLine]:
    text = (FIXTURES / path).read_text(encoding="utf-8")
    return [found for line in text.splitlines() if (found := parse_line(line)) is not None]


def test_lines_that_sglangs_exporter_wrote() -> None:
    whole, aborted = captured("sglang/0.5.23/sglang-0.5.23-collector-request-metrics.log")
    assert whole == RequestLine(
        ended_at=1764446404.5,
        prompt_tokens=900,
        output_tokens=101,
        reasoning_tokens=60,
        ttft_seconds=0.5,
        tpot_seconds=0.04,
        e2e_seconds=4.5,
        finish="stop",
    )
    assert aborted == RequestLine(
        ended_at=1764446406.0,
        prompt_tokens=900,
        output_tokens=7,
        reasoning_tokens=0,
        e2e_seconds=1.0,
        finish="abort",
    )


def test_lines_that_litellm_wrote() -> None:
    whole, streamed, failed = captured("litellm/1.110.2/litellm-1.110.2-standard-logging.jsonl")
    for found in (whole, streamed):
        assert (found.prompt_tokens, found.output_tokens, found.reasoning_tokens) == (7, 40, 40)
        assert (found.finish, found.reasoning_chars, found.answer_chars) == ("length", 205, 0)
        assert found.api_base == "http://10.0.0.1:8000/v1/chat/completions"
        assert "SECRET WORDS" not in repr(found)
    assert (whole.ttft_seconds, whole.tpot_seconds) == (None, None)
    assert streamed.ended_at == 1796002831.09855
    assert streamed.ttft_seconds == pytest.approx(0.012459, abs=1e-6)  # ...30.498401 - ...30.485942
    assert streamed.tpot_seconds == pytest.approx(0.600149 / 39, abs=1e-6)  # ...31.098550 - ...30.498401
    assert (failed.finish, failed.reasoning_tokens) == ("failure", None)
    assert not failed.figures(1.0).completed


@pytest.mark.parametrize(
    ("reason", "finish", "completed"),
    [
        ({"type": "stop", "matched": 151645}, "stop", True),
        ({"type": "abort", "message": "client gone"}, "abort", False),
        ("stop", "stop", True),
        (None, "", True),
    ],
)
def test_how_sglang_says_that_a_request_ended(reason: object, finish: str, completed: bool) -> None:
    found = parsed({**SGLANG, "finish_reason": reason})
    assert (found.finish, found.figures(1.0).completed) == (finish, completed)


def test_litellm_gives_an_answer_in_one_piece_no_first_token() -> None:
    whole = parsed({**LITELLM, "stream": False, "completionStartTime": 1004.5})
    assert (whole.ttft_seconds, whole.tpot_seconds, whole.e2e_seconds) == (None, None, 4.5)


def test_litellm_names_failures_and_servers() -> None:
    failed = parsed({**LITELLM, "status": "failure", "response": None})
    assert (failed.finish, failed.figures(1.0).completed) == ("failure", False)
    assert (failed.api_base, failed.model) == ("http://r1:8000/v1", "hosted_vllm/qwen3")
    wrapped = parsed({"event": "success", "standard_logging_object": LITELLM})
    assert wrapped == parsed(LITELLM)


@pytest.mark.parametrize(
    "document",
    [
        CHAT,
        RESPONSES,
        CHAT["usage"],
        RESPONSES["usage"],
        {"usage": CHAT["usage"], "created": 5},
        {"custom_id": "7", "response": {"status_code": 200, "body": CHAT}},
        {"response": RESPONSES},
        {"prompt_tokens": 900, "completion_tokens": 101, "reasoning_tokens": 60},
        {"usage": {"prompt_tokens": 900, "completion_tokens": 101, "reasoning_tokens": 60}},
    ],
)
def test_spellings_of_usage(document: dict[str, Any]) -> None:
    found = parsed(document)
    assert (found.prompt_tokens, found.output_tokens, found.reasoning_tokens) == (900, 101, 60)


def test_an_answer_of_the_chat_api_does_not_say_when_it_ended() -> None:
    assert parsed(CHAT).ended_at is None
    assert parsed(RESPONSES).ended_at == 1004.5


def test_a_count_that_is_not_there_is_not_zero() -> None:
    silent = parsed(
        {"usage": {"prompt_tokens": 9, "completion_tokens": 7, "completion_tokens_details": None}}
    )
    assert (silent.output_tokens, silent.reasoning_tokens) == (7, None)


@pytest.mark.parametrize(
    "garbage",
    ["-1", "true", '"60"', "null", "NaN", "Infinity", "-Infinity", "1e400", "1" * 400, "[60]", "{}"],
)
@pytest.mark.parametrize("name", SAMPLES)
def test_what_is_no_number_is_not_known_and_the_rest_goes_on(name: str, garbage: str) -> None:
    text = json.dumps(SAMPLES[name]).replace('"reasoning_tokens": 60', f'"reasoning_tokens": {garbage}')
    found = parse_line(text, name)
    assert found is not None
    assert (found.reasoning_tokens, found.output_tokens) == (None, 101)


def test_milliseconds_for_seconds_are_no_time() -> None:
    assert parsed({**SGLANG, "request_finished_ts": 1.7e12, "request_received_ts": 1.7e12}).ended_at is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "not JSON"),
        ("not json at all", "not JSON"),
        ('{"a": ' * 100_000, "not JSON"),
        ("1" * 5000, "not JSON"),
        ("[1, 2]", "not a JSON object"),
        ("17", "not a JSON object"),
        ("{}", "no request record of a known format"),
        ('{"usage": null, "choices": []}', "no request record of a known format"),
        ('{"request_parameters": "{}"}', "no figure of a request"),
        ('{"kind": "request", "t": "now", "target": "http://r1", "output_tokens": 3}', "no time"),
        ('{"kind": "request", "t": 1, "target": "http://r1"}', "no figure of a request"),
    ],
)
def test_lines_that_are_no_record_say_why(text: str, why: str) -> None:
    with pytest.raises(RecordLineError, match=why):
        parse_line(text)


def test_a_line_of_another_format_than_the_named_one() -> None:
    with pytest.raises(RecordLineError, match="no request record of the format sglang"):
        parsed(LITELLM, "sglang")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  \r",
        "\x00\x00",
        '{"enginetop_recording": 1, "created": 1}',
        '{"t": 1, "target": "http://r1", "path": "/metrics", "body": "usage"}',
        '{"t": 1, "target": "gpu://h", "kind": "gpu", "gpus": []}',
    ],
)
def test_lines_that_need_no_word(text: str) -> None:
    assert parse_line(text) is None


def test_nul_bytes_and_a_byte_order_mark_do_not_hide_a_line() -> None:
    assert parse_line(f"\x00\x00\ufeff{json.dumps(OWN)}\r\n") == parsed(OWN)


def test_words_are_cut_and_cleaned() -> None:
    found = parsed({**OWN, "finish": "\x1b[2J" + "x" * 500, "target": "http://r1\x1b[0m"})
    assert "\x1b" not in found.finish + found.target
    assert len(found.finish) <= 32


def test_the_tables_name_known_figures_and_words_only() -> None:
    for form in FORMATS:
        assert set(form.numbers) <= set(NUMBERS)
        assert set(form.words) <= set(WORDS)
        assert set(form.lengths) <= {"reasoning_chars", "answer_chars"}
    assert list(BY_NAME) == ["enginetop", "sglang", "litellm", "openai"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(SAMPLES)), st.data())
def test_any_value_at_any_key_is_a_figure_or_nothing(name: str, data: st.DataObject) -> None:
    document = dict(SAMPLES[name])
    for key in data.draw(st.lists(st.sampled_from(sorted(document)), max_size=4)):
        document[key] = data.draw(JSON)
    found = record_or_reason(json.dumps(document))
    if isinstance(found, RequestLine):
        for figure in NUMBERS:
            value = getattr(found, figure, None)
            assert value is None or 0 <= value < 1e10 + 1


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=60) | st.binary(max_size=60).map(lambda raw: raw.decode("utf-8", "replace")))
def test_any_text_is_a_record_or_a_reason(text: str) -> None:
    assert record_or_reason(text) != ""


@settings(max_examples=60, deadline=None)
@given(
    st.floats(0, 1e9),
    st.floats(0.001, 100),
    st.floats(0.001, 1000),
    st.integers(2, 100_000),
)
def test_times_add_up(began: float, ttft: float, decode: float, tokens: int) -> None:
    found = parsed(
        {
            "startTime": began,
            "endTime": began + ttft + decode,
            "completionStartTime": began + ttft,
            "completion_tokens": tokens,
        }
    )
    assert found.ttft_seconds == pytest.approx(ttft, abs=1e-6)
    assert found.tpot_seconds is not None
    assert found.tpot_seconds * (tokens - 1) == pytest.approx(decode, abs=1e-6)
