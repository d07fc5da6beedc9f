"""The default budget on its way in, the response on its way out: the same objects, the count beside them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any

import pytest

from enginetop_companion_vllm.reasoning import set_default, watch_chat, watch_completions

REASONING = 'data: {"choices":[{"delta":{"reasoning":"hm"}}]}\n\n'
CONTENT = 'data: {"choices":[{"delta":{"content":"say \\"reasoning\\":\\"x\\" twice"}}]}\n\n'


class Seen:
    """Stands for RequestTruth."""

    def __init__(self) -> None:
        self.counts: list[tuple[int | None, bool]] = []

    def reasoned(self, tokens: int | None, *, text_seen: bool) -> None:
        self.counts.append((tokens, text_seen))


def usage(tokens: int | None) -> Any:
    details = None if tokens is None else SimpleNamespace(reasoning_tokens=tokens)
    return SimpleNamespace(completion_tokens_details=details)


class FakeChat:
    """vLLM's OpenAIServingChat: answers with a stream of `chunks`, or with a response object."""

    def __init__(self, chunks: list[str] | None, tokens: int | None, *, parser: bool = True) -> None:
        self._include_reasoning_tokens_details = parser
        self.chunks = chunks
        self.tokens = tokens
        self.requests: list[Any] = []
        self.closed = False
        self.result: Any = None

    async def create_chat_completion(self, request: Any, raw_request: Any = None) -> Any:
        self.requests.append(request)
        if self.chunks is None:
            reasoning = "hm" if request.thinks else None
            choice = SimpleNamespace(message=SimpleNamespace(reasoning=reasoning))
            self.result = SimpleNamespace(choices=[choice], usage=usage(self.tokens))
        else:
            self.result = self._stream(raw_request)
        return self.result

    async def _stream(self, raw_request: Any) -> AsyncGenerator[str, None]:
        try:
            for chunk in self.chunks or []:
                yield chunk
            raw_request.state.request_metadata = SimpleNamespace(final_usage_info=usage(self.tokens))
        finally:
            self.closed = True


def request(**given: Any) -> Any:
    """As vLLM parses it: of a budget of -1 only the set of given fields is left."""
    fields = {"thinking_token_budget": None, "thinks": True, "n": 1, "include_reasoning": True} | given
    if fields["thinking_token_budget"] == -1:
        fields["thinking_token_budget"] = None
    return SimpleNamespace(**fields, model_fields_set=frozenset(given))


def raw() -> Any:
    return SimpleNamespace(state=SimpleNamespace())


async def consume(stream: AsyncGenerator[str, None], limit: int | None = None) -> list[str]:
    got: list[str] = []
    async for chunk in stream:
        got.append(chunk)
        if len(got) == limit:
            await stream.aclose()
            break
    return got


@pytest.mark.parametrize(
    ("chunks", "count", "expected"),
    [
        ([REASONING, CONTENT], 9, (9, True)),
        ([CONTENT], 0, (0, False)),
        ([REASONING], 0, (0, True)),
        ([REASONING], None, (None, True)),
        ([], 0, (0, False)),
    ],
)
def test_a_stream_passes_as_it_is(chunks: list[str], count: int | None, expected: tuple[int, bool]) -> None:
    serving, seen = FakeChat(chunks, count), Seen()
    watch_chat(serving, lambda: None, seen)  # type: ignore[arg-type]

    async def scene() -> list[str]:
        return await consume(await serving.create_chat_completion(request(), raw()))

    got = asyncio.run(scene())
    assert all(one is other for one, other in zip(got, chunks, strict=True))
    assert seen.counts == [expected]


def test_a_client_that_goes_away_closes_vllms_stream_and_counts_nothing() -> None:
    serving, seen = FakeChat([REASONING, CONTENT, CONTENT], 9), Seen()
    watch_chat(serving, lambda: None, seen)  # type: ignore[arg-type]

    async def scene() -> None:
        await consume(await serving.create_chat_completion(request(), raw()), limit=1)
        assert serving.closed

    asyncio.run(scene())
    assert seen.counts == []


@pytest.mark.parametrize(("thinks", "shown"), [(True, True), (False, False)])
def test_a_response_object_passes_as_it_is(thinks: bool, shown: bool) -> None:
    serving, seen = FakeChat(None, 5), Seen()
    watch_chat(serving, lambda: None, seen)  # type: ignore[arg-type]
    result = asyncio.run(serving.create_chat_completion(request(thinks=thinks), raw()))
    assert result is serving.result
    assert seen.counts == [(5, shown)]


def test_hidden_reasoning_makes_a_zero_unknown() -> None:
    serving, seen = FakeChat(None, 0), Seen()
    watch_chat(serving, lambda: None, seen)  # type: ignore[arg-type]
    asyncio.run(serving.create_chat_completion(request(thinks=False, include_reasoning=False), raw()))
    assert seen.counts == [(0, True)]


@pytest.mark.parametrize(("parser", "n"), [(False, 1), (True, 2)])
def test_without_a_parser_or_with_several_answers_the_stream_is_not_wrapped(parser: bool, n: int) -> None:
    serving, seen = FakeChat([REASONING], 9, parser=parser), Seen()
    watch_chat(serving, lambda: None, seen)  # type: ignore[arg-type]

    async def scene() -> Any:
        stream = await serving.create_chat_completion(request(n=n), raw())
        await stream.aclose()
        return stream

    assert asyncio.run(scene()) is serving.result
    assert seen.counts == []


@pytest.mark.parametrize(
    ("own", "default", "after"),
    [
        ({}, 10, 10),
        ({}, None, None),
        ({}, 0, 0),
        ({"thinking_token_budget": 5}, 10, 5),
        ({"thinking_token_budget": 0}, 10, 0),
        ({"thinking_token_budget": -1}, 10, None),
        ({"thinking_token_budget": None}, 10, None),
    ],
)
def test_only_requests_without_a_budget_get_one(
    own: dict[str, int | None], default: int | None, after: int | None
) -> None:
    serving = FakeChat(None, 5)
    watch_chat(serving, lambda: default, None)
    asked = request(**own)
    others = {key: value for key, value in vars(asked).items() if key != "thinking_token_budget"}
    asyncio.run(serving.create_chat_completion(asked, raw()))
    assert serving.requests[0] is asked
    assert vars(asked) == {**others, "thinking_token_budget": after}


def test_a_request_that_knows_no_budget_is_left_alone() -> None:
    asked = SimpleNamespace(prompt="x", model_fields_set=frozenset({"prompt"}))
    before = dict(vars(asked))
    set_default(asked, 10)
    assert vars(asked) == before


def test_completions_get_the_default_too() -> None:
    class FakeCompletion:
        async def create_completion(self, request: Any, raw_request: Any = None) -> Any:
            return request.thinking_token_budget

    serving = FakeCompletion()
    watch_completions(serving, lambda: 7)
    assert asyncio.run(serving.create_completion(request(), raw())) == 7
