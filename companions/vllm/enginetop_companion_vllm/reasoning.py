"""Chat requests on their way in and out: the default thinking budget, and the number of reasoning tokens.

The budget is set on the parsed request, before vLLM turns it into sampling parameters. The count is the one
that vLLM's parser made for `usage`; responses pass through as they are, chunk by chunk, whether the client
asked for usage or not.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

from enginetop_companion.truth import RequestTruth

_REASONING_TEXT = '"reasoning":"'
"""Part of a chunk that carries reasoning. Quotes inside of a JSON text are escaped, so it is nowhere else."""


def set_default(request: Any, budget: int | None) -> None:
    """Give the request a thinking budget if it says nothing of one. Nothing else of it is touched.

    vLLM reads -1 as None, so that only the set of fields that the client sent tells the two apart.
    """
    silent = "thinking_token_budget" not in request.model_fields_set
    if budget is not None and silent and getattr(request, "thinking_token_budget", budget) is None:
        request.thinking_token_budget = budget


def watch_completions(serving: Any, budget: Callable[[], int | None]) -> None:
    """Wrap `create_completion` of this serving object: the default budget, nothing else."""
    theirs = serving.create_completion

    async def create_completion(request: Any, raw_request: Any = None) -> Any:
        set_default(request, budget())
        return await theirs(request, raw_request)

    serving.create_completion = create_completion


def watch_chat(serving: Any, budget: Callable[[], int | None], truth: RequestTruth | None) -> None:
    """Wrap `create_chat_completion` of this serving object: the default budget and the reasoning count.

    `truth` None, or a server without a reasoning parser: nothing is counted and no stream is wrapped.
    """
    theirs = serving.create_chat_completion
    counts = truth if getattr(serving, "_include_reasoning_tokens_details", False) else None

    async def create_chat_completion(request: Any, raw_request: Any = None) -> Any:
        set_default(request, budget())
        result = await theirs(request, raw_request)
        if counts is None or raw_request is None or (getattr(request, "n", None) or 1) != 1:
            return result
        if hasattr(result, "__aiter__"):
            return _passed_on(result, request, raw_request, counts)
        if getattr(result, "choices", None):
            text_seen = _may_hide(request) or any(choice.message.reasoning for choice in result.choices)
            counts.reasoned(_reasoning_tokens(result.usage), text_seen=text_seen)
        return result

    serving.create_chat_completion = create_chat_completion


async def _passed_on(
    chunks: AsyncGenerator[str, None], request: Any, raw_request: Any, truth: RequestTruth
) -> AsyncGenerator[str, None]:
    text_seen = _may_hide(request)
    async with aclosing(chunks):
        async for chunk in chunks:
            if not text_seen and _REASONING_TEXT in chunk:
                text_seen = True
            yield chunk
    metadata = getattr(raw_request.state, "request_metadata", None)
    truth.reasoned(_reasoning_tokens(getattr(metadata, "final_usage_info", None)), text_seen=text_seen)


def _may_hide(request: Any) -> bool:
    """Whether the client asked not to be shown the reasoning: then a count of 0 tells nothing."""
    return not getattr(request, "include_reasoning", True)


def _reasoning_tokens(usage: Any) -> int | None:
    details = getattr(usage, "completion_tokens_details", None)
    tokens = getattr(details, "reasoning_tokens", None)
    return tokens if isinstance(tokens, int) else None
