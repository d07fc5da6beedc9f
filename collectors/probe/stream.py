"""The answer to one chat request, event by event: when tokens came, how many, never which.

Events of the chat API of OpenAI, as vLLM, SGLang, llama.cpp and gateways send them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from collectors.fetch import one_line
from collectors.records.formats import OPENAI
from collectors.records.lines import RequestLine, read
from enginetop.fleet.foreign_json import decoded

_PREFIX = b"data:"
_DONE = b"[DONE]"
_REASONING_KEYS = ("reasoning_content", "reasoning")


class StreamedAnswer:
    """Takes the lines of one answer; `at` is a monotonic time in seconds, like `began`."""

    def __init__(self, began: float) -> None:
        self._began = began
        self._first: float | None = None
        self._last: float | None = None
        self._chars = {"reasoning": 0, "answer": 0}
        self._usage: object = None
        self._finish = ""
        self.done = False
        """Whether the server said that the answer is complete."""
        self.error = ""
        """What the server said went wrong, in one line; empty when nothing did."""

    def take(self, line: bytes, at: float) -> None:
        """Take one line. What is no event of an answer is passed over."""
        if not line.startswith(_PREFIX):
            return
        data = line.removeprefix(_PREFIX).strip()
        if data == _DONE:
            self.done = True
            return
        event = decoded(data.decode("utf-8", "replace"))
        if isinstance(event, dict):
            self._take_event(event, at)

    def record(self, ended: float) -> RequestLine:
        """What the answer comes to, at its end. Without `usage` no tokens are known: events are none."""
        counted = read({"usage": self._usage}, OPENAI)
        ttft = None if self._first is None else self._first - self._began
        tpot = None
        output = counted.output_tokens
        if self._first is not None and self._last is not None and output is not None and output > 1:
            tpot = (self._last - self._first) / (output - 1)
        return replace(
            counted,
            reasoning_chars=float(self._chars["reasoning"]),
            answer_chars=float(self._chars["answer"]),
            ttft_seconds=ttft,
            tpot_seconds=tpot,
            e2e_seconds=ended - self._began,
            finish=self._finish,
        )

    def _take_event(self, event: Mapping[str, Any], at: float) -> None:
        error = event.get("error")
        if error is not None:
            self.error = error_text(event)
        if event.get("usage") is not None:
            self._usage = event["usage"]
        choices = event.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict):
                self._take_choice(choice, at)

    def _take_choice(self, choice: Mapping[str, Any], at: float) -> None:
        finish = choice.get("finish_reason")
        if isinstance(finish, str):
            self._finish = one_line(finish)[:32]
        delta = choice.get("delta")
        if not isinstance(delta, dict):
            return
        thought = next((text for key in _REASONING_KEYS if isinstance(text := delta.get(key), str)), "")
        answer = delta.get("content")
        told = answer if isinstance(answer, str) else ""
        if thought or told or delta.get("tool_calls"):
            self._first = at if self._first is None else self._first
            self._last = at
        self._chars["reasoning"] += len(thought)
        self._chars["answer"] += len(told)


def error_text(document: object) -> str:
    """The message of an error answer in one line; empty when there is none."""
    error = document.get("error", document) if isinstance(document, dict) else None
    message = error.get("message") if isinstance(error, dict) else error
    return one_line(message) if isinstance(message, str) else ""
