"""The completions of the OpenAI API, answered by the engine model: real requests with made-up words.

What is asked for is read from the body; how long the model thinks and answers is drawn as for its own
traffic, unless `ignore_eos` makes it go on to `max_tokens`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from enginetop.fleet.frozen import frozen
from enginetop.simulator.request import Request
from enginetop.simulator.scenario import EngineSettings
from enginetop.simulator.traffic import NO_PREFIX, DrawnRequest

_CHARACTERS_PER_TOKEN = 4
_TOKENS_PER_MESSAGE = 4
_DEFAULT_COMPLETION_TOKENS = 16
_WORDS = ("the", "engine", "takes", "a", "step", "and", "every", "request", "gets", "one", "token", "more")
_DONE = b"data: [DONE]\n\n"


class CompletionError(ValueError):
    """A request that cannot be served; the text names the key and what is wrong with it."""


@frozen
class Asked:
    """One request for a completion. `thinking_token_budget` None: the engine's default counts."""

    chat: bool
    stream: bool
    usage: bool
    prompt_tokens: int
    max_tokens: int
    ignore_eos: bool
    thinking_token_budget: int | None


def parse(body: bytes, settings: EngineSettings, *, chat: bool, reasons: bool) -> Asked:
    """Read the body of a request; keys that mean nothing here are passed over, as engines do.

    `reasons` tells whether the model thinks. Raises CompletionError.
    """
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        raise CompletionError("the body is not JSON") from None
    if not isinstance(document, dict):
        raise CompletionError("the body is not an object")
    model = document.get("model", settings.model)
    if model != settings.model:
        raise CompletionError(f"model: there is only {settings.model}")
    prompt = _chat_tokens(document) if chat else _prompt_tokens(document.get("prompt"))
    room = settings.max_model_len - prompt
    if room < 1:
        raise CompletionError(f"the prompt leaves no room within {settings.max_model_len} tokens")
    limit = document.get("max_completion_tokens", document.get("max_tokens"))
    if limit is None:
        limit = room if chat else min(room, _DEFAULT_COMPLETION_TOKENS)
    if not _is_whole(limit) or not 1 <= limit <= room:
        raise CompletionError(f"max_tokens: not a whole number from 1 to {room}")
    budget = document.get("thinking_token_budget")
    if budget is not None and (not _is_whole(budget) or budget < -1):
        raise CompletionError("thinking_token_budget: not a whole number from -1")
    if budget is not None and not reasons:
        raise CompletionError("thinking_token_budget: this server has no reasoning parser")
    options = document.get("stream_options")
    return Asked(
        chat=chat,
        stream=document.get("stream") is True,
        usage=not (isinstance(options, Mapping) and options.get("include_usage") is False),
        prompt_tokens=prompt,
        max_tokens=limit,
        ignore_eos=document.get("ignore_eos") is True,
        thinking_token_budget=budget,
    )


def request_for(asked: Asked, drawn: DrawnRequest, arrival_at: float) -> DrawnRequest:
    """What the engine is given: `drawn` from its own traffic, with all that was asked for put in."""
    return replace(
        drawn,
        arrival_at=arrival_at,
        prompt_tokens=asked.prompt_tokens,
        answer_tokens=asked.max_tokens if asked.ignore_eos else drawn.answer_tokens,
        max_tokens=asked.max_tokens,
        prefix=NO_PREFIX,
        prefix_tokens=0,
        abort_point=None,
        thinking_token_budget=asked.thinking_token_budget,
    )


@frozen
class Wording:
    """How one completion is told. `reasoning_key` is the engine's field for thinking."""

    asked: Asked
    id: str
    model: str
    created: int
    reasons: bool
    reasoning_key: str

    def whole(self, request: Request) -> dict[str, Any]:
        """The answer in one piece, of a request that has ended."""
        reasoning, answer = self._texts(request, 0, request.generated_tokens)
        text = (
            {"message": {"role": "assistant", "content": answer, self.reasoning_key: reasoning or None}}
            if self.asked.chat
            else {"text": reasoning + answer}
        )
        kind = "chat.completion" if self.asked.chat else "text_completion"
        choice = {"index": 0, **text, "finish_reason": request.finish_reason}
        return {**self._head(kind), "choices": [choice], "usage": self.usage(request)}

    def begin(self) -> Iterator[bytes]:
        """The events before the first token."""
        if self.asked.chat:
            yield self._event({"delta": {"role": "assistant", "content": ""}}, None)

    def tokens(self, request: Request, since: int, until: int) -> Iterator[bytes]:
        """The events with the tokens from `since` on, up to but without `until`."""
        reasoning, answer = self._texts(request, since, until)
        if not self.asked.chat:
            yield self._event({"text": reasoning + answer}, None)
            return
        if reasoning:
            yield self._event({"delta": {self.reasoning_key: reasoning}}, None)
        if answer:
            yield self._event({"delta": {"content": answer}}, None)

    def end(self, request: Request) -> Iterator[bytes]:
        """The events after the last token."""
        yield self._event({"delta": {}} if self.asked.chat else {"text": ""}, request.finish_reason)
        if self.asked.usage:
            yield _sent({**self._head(self._chunk_kind), "choices": [], "usage": self.usage(request)})
        yield _DONE

    def usage(self, request: Request) -> dict[str, Any]:
        """What the request took, in tokens."""
        prompt, output = request.drawn.prompt_tokens, request.generated_tokens
        counted: dict[str, Any] = {
            "prompt_tokens": prompt,
            "completion_tokens": output,
            "total_tokens": prompt + output,
        }
        if self.reasons:
            reasoning = min(request.reasoning_tokens, output)
            counted["completion_tokens_details"] = {"reasoning_tokens": reasoning}
        return counted

    @property
    def _chunk_kind(self) -> str:
        return "chat.completion.chunk" if self.asked.chat else "text_completion"

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}

    def _event(self, content: dict[str, Any], finish_reason: str | None) -> bytes:
        choice = {"index": 0, **content, "finish_reason": finish_reason}
        return _sent({**self._head(self._chunk_kind), "choices": [choice]})

    @staticmethod
    def _texts(request: Request, since: int, until: int) -> tuple[str, str]:
        """Thinking and answer among the tokens from `since` up to `until`."""
        turn = min(max(since, request.reasoning_tokens), until)
        return _words(since, turn), _words(turn, until)


def _words(since: int, until: int) -> str:
    return "".join(f" {_WORDS[place % len(_WORDS)]}" for place in range(since, until))


def _sent(document: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(document, separators=(",", ":")).encode() + b"\n\n"


def _prompt_tokens(prompt: object) -> int:
    if isinstance(prompt, str):
        return _tokens_of(prompt)
    if isinstance(prompt, list) and prompt and all(map(_is_whole, prompt)):
        return len(prompt)
    raise CompletionError("prompt: not a text or a list of token ids")


def _chat_tokens(document: Mapping[str, Any]) -> int:
    messages = document.get("messages")
    if not isinstance(messages, list) or not messages:
        raise CompletionError("messages: not a list of at least one message")
    return sum(map(_message_tokens, messages))


def _message_tokens(message: object) -> int:
    content = message.get("content") if isinstance(message, Mapping) else None
    if isinstance(content, str):
        return _TOKENS_PER_MESSAGE + _tokens_of(content)
    if isinstance(content, list):
        texts = (part.get("text", "") if isinstance(part, Mapping) else "" for part in content)
        return _TOKENS_PER_MESSAGE + sum(_tokens_of(text) for text in texts if isinstance(text, str))
    raise CompletionError("messages: a message without content")


def _tokens_of(text: str) -> int:
    """A rough count, at least 1, that needs no tokenizer."""
    return max(1, math.ceil(len(text) / _CHARACTERS_PER_TOKEN))


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
