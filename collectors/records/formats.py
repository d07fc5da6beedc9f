"""What request logs call the figures of a request: one table a format.

A path names a value in a JSON object: `usage.completion_tokens`; `choices[]` stands for each item of a list,
`output[message]` for each whose `type` is that.
Several paths: the first that holds a usable value counts. The tables name every key that is read: all else
of a line, above all the words of prompts and answers, is never kept; of a text only its length may be.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType

from enginetop.fleet.frozen import frozen

Paths = tuple[str, ...]

NUMBERS: Mapping[str, str] = MappingProxyType(
    {
        "ended_at": "Unix seconds",
        "began_at": "Unix seconds",
        "first_token_at": "Unix seconds",
        "prompt_tokens": "tokens",
        "output_tokens": "tokens",
        "reasoning_tokens": "tokens",
        "reasoning_chars": "characters",
        "answer_chars": "characters",
        "thinking_token_budget": "tokens",
        "ttft_seconds": "seconds",
        "tpot_seconds": "seconds",
        "e2e_seconds": "seconds",
        "decode_tokens_per_second": "tokens per second",
    }
)
"""Every figure that a table may name, and its unit."""

WORDS: tuple[str, ...] = ("finish", "target", "model", "api_base")
"""Every short text that a table may name; it is cut and cleaned, and `finish` alone is kept."""


@frozen
class RecordFormat:
    """How one kind of line is told from others and read.

    A line has the format when it holds all of `marks` (each a choice of paths). `wrappers` are keys under
    which the object may lie one level deeper. `numbers` and `words` map our names to paths; of what
    `lengths` names, lists included, the characters are counted.
    """

    name: str
    title: str
    marks: tuple[Paths, ...]
    numbers: Mapping[str, Paths]
    words: Mapping[str, Paths] = field(default_factory=lambda: MappingProxyType({}))
    lengths: Mapping[str, Paths] = field(default_factory=lambda: MappingProxyType({}))
    wrappers: Paths = ()


ENGINETOP = RecordFormat(
    "enginetop",
    "a recording's lines of kind `request`, as `enginetop probe --records-out` writes them",
    marks=(("kind",), ("t",), ("target",)),
    numbers={
        "ended_at": ("t",),
        **{
            name: (name,)
            for name in (
                "prompt_tokens",
                "output_tokens",
                "reasoning_tokens",
                "reasoning_chars",
                "answer_chars",
                "thinking_token_budget",
                "ttft_seconds",
                "tpot_seconds",
                "e2e_seconds",
            )
        },
    },
    words={"finish": ("finish",), "target": ("target",)},
)

SGLANG = RecordFormat(
    "sglang",
    "files of SGLang's `--export-metrics-to-file` (0.5.23: observability/request_metrics_exporter.py)",
    # the request's own parameters, prompt included, are a text under this key: it is never looked into
    marks=(("request_parameters",),),
    numbers={
        "ended_at": ("request_finished_ts", "response_sent_to_client_ts"),
        "began_at": ("request_received_ts",),
        "prompt_tokens": ("prompt_tokens",),
        "output_tokens": ("completion_tokens",),
        "reasoning_tokens": ("reasoning_tokens",),
        "ttft_seconds": ("first_token_latency",),
        "e2e_seconds": ("e2e_latency",),
        "decode_tokens_per_second": ("decode_throughput",),
    },
    words={"finish": ("finish_reason.type", "finish_reason")},
)

_CHAT_REASONING = ("reasoning_content", "reasoning")
_MESSAGE = "choices[].message."

LITELLM = RecordFormat(
    "litellm",
    "LiteLLM's standard logging payload (1.110: litellm/types/utils.py, StandardLoggingPayload)",
    marks=(("startTime",), ("endTime",), ("completion_tokens", "prompt_tokens", "response")),
    numbers={
        "ended_at": ("endTime",),
        "began_at": ("startTime",),
        "first_token_at": ("completionStartTime",),
        "prompt_tokens": ("prompt_tokens",),
        "output_tokens": ("completion_tokens",),
        "reasoning_tokens": (
            "metadata.usage_object.completion_tokens_details.reasoning_tokens",
            "hidden_params.usage_object.completion_tokens_details.reasoning_tokens",
            "response.usage.completion_tokens_details.reasoning_tokens",
            "response.usage.output_tokens_details.reasoning_tokens",
        ),
        "thinking_token_budget": ("model_parameters.thinking_token_budget",),
    },
    words={
        "finish": ("response.choices[].finish_reason", "status"),
        "model": ("model",),
        "api_base": ("api_base", "hidden_params.api_base"),
    },
    lengths={
        "reasoning_chars": tuple(f"response.{_MESSAGE}{key}" for key in _CHAT_REASONING),
        "answer_chars": (f"response.{_MESSAGE}content",),
    },
    wrappers=("standard_logging_object",),
)

OPENAI = RecordFormat(
    "openai",
    "answers of the chat, completions and responses APIs, or their `usage` objects",
    marks=(
        ("usage.completion_tokens", "usage.output_tokens", "completion_tokens", "output_tokens"),
        ("usage.prompt_tokens", "usage.input_tokens", "prompt_tokens", "input_tokens"),
    ),
    numbers={
        "ended_at": ("completed_at",),  # `created` is when it began, and answers that stream come late
        "prompt_tokens": ("usage.prompt_tokens", "usage.input_tokens", "prompt_tokens", "input_tokens"),
        "output_tokens": (
            "usage.completion_tokens",
            "usage.output_tokens",
            "completion_tokens",
            "output_tokens",
        ),
        "reasoning_tokens": (
            "usage.completion_tokens_details.reasoning_tokens",
            "usage.output_tokens_details.reasoning_tokens",
            "usage.reasoning_tokens",
            "completion_tokens_details.reasoning_tokens",
            "output_tokens_details.reasoning_tokens",
            "reasoning_tokens",
        ),
    },
    words={"finish": ("choices[].finish_reason", "status"), "model": ("model",)},
    lengths={
        "reasoning_chars": (
            *(f"{_MESSAGE}{key}" for key in _CHAT_REASONING),
            "output[reasoning].content[].text",
            "output[reasoning].summary[].text",
        ),
        "answer_chars": (f"{_MESSAGE}content", "choices[].text", "output[message].content[].text"),
    },
    wrappers=("response.body", "response"),
)

FORMATS: tuple[RecordFormat, ...] = (ENGINETOP, SGLANG, LITELLM, OPENAI)
"""Every format, the more particular ones first: the first whose marks a line bears is its format."""

BY_NAME: Mapping[str, RecordFormat] = MappingProxyType({one.name: one for one in FORMATS})

AUTO = "auto"
"""Instead of a format's name: tell by each line."""
