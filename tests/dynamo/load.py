"""A load of known size: so many requests of known length, and what the clients saw of their answers."""

from __future__ import annotations

import asyncio
import json
import random
import string
from collections import Counter
from dataclasses import dataclass, field

import httpx

from tests.dynamo.fleet import MODEL


@dataclass(slots=True)
class Served:
    """What clients saw: answers by status, and the usage of those that were complete."""

    statuses: Counter[int] = field(default_factory=Counter)
    prompt_tokens: int = 0
    output_tokens: int = 0

    @property
    def complete(self) -> int:
        return self.statuses[200]


def serve(url: str, requests: int, *, at_once: int, prompt_bytes: int, output_tokens: int) -> Served:
    """Send the requests, `at_once` of them at any time, and wait for all answers."""
    return asyncio.run(_serve(url, requests, at_once, prompt_bytes, output_tokens))


async def _serve(url: str, requests: int, at_once: int, prompt_bytes: int, output_tokens: int) -> Served:
    served = Served()
    rng = random.Random(11)
    slots = asyncio.Semaphore(at_once)
    prompts = ["".join(rng.choices(string.ascii_lowercase, k=prompt_bytes)) for _ in range(requests)]
    async with httpx.AsyncClient(timeout=300.0, limits=httpx.Limits(max_connections=None)) as client:
        await asyncio.gather(*(_one(client, url, slots, prompt, output_tokens, served) for prompt in prompts))
    return served


async def _one(
    client: httpx.AsyncClient,
    url: str,
    slots: asyncio.Semaphore,
    prompt: str,
    output_tokens: int,
    served: Served,
) -> None:
    body = {
        "model": MODEL,
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": output_tokens,
        "ignore_eos": True,
        "messages": [{"role": "user", "content": prompt}],
    }
    async with slots, client.stream("POST", f"{url}/v1/chat/completions", json=body) as answer:
        served.statuses[answer.status_code] += 1
        async for line in answer.aiter_lines():
            data = line.removeprefix("data: ")
            if data == line or data == "[DONE]":
                continue
            usage = json.loads(data).get("usage")
            if usage:
                served.prompt_tokens += usage["prompt_tokens"]
                served.output_tokens += usage["completion_tokens"]
