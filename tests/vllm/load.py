"""Closed-loop load on one server, from a thread of its own."""

from __future__ import annotations

import asyncio
import json
import math
import random
import threading
import time
from types import TracebackType
from typing import Any

import httpx

WORDS = ("engine", "node", "cache", "block", "token", "batch", "queue", "prefill", "decode", "draft")


class Load:
    """Runs as a context: `concurrency` clients, each with one chat request after the other, streaming.

    With `per_second` instead a request at that pace, whatever became of those before. With `requests` so many
    and no more: the same ones each time.

    `failures` are answers that were not 200, told of an error in their stream or broke off; `usages` the
    usage of each completed one, and `first_tokens` and `durations` its seconds to the first token and to the
    end. A prompt has `prompt_bytes` tokens (a token is a byte) and those of the template.
    """

    def __init__(
        self,
        url: str,
        *,
        concurrency: int = 12,
        per_second: float | None = None,
        requests: int | None = None,
        max_tokens: int = 40,
        prompt_bytes: int = 60,
        **body: Any,
    ) -> None:
        self.failures: list[str] = []
        self.usages: list[dict[str, Any]] = []
        self.first_tokens: list[float] = []
        self.durations: list[float] = []
        self._url = url
        self._concurrency = concurrency
        self._per_second = per_second
        self._left = math.inf if requests is None else requests
        self._body = {
            "model": "tiny",
            "max_tokens": max_tokens,
            "temperature": 0.0,
            "ignore_eos": True,
        } | body
        self._prompt_bytes = prompt_bytes
        self._random = random.Random(3)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self.wait()

    def wait(self) -> None:
        """Until all requests are answered."""
        self._thread.join(timeout=120)
        assert not self._thread.is_alive()

    async def _run(self) -> None:
        # No connection is kept: one that the server closes while it is idle would look like a failed request.
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        async with httpx.AsyncClient(base_url=self._url, timeout=120.0, limits=limits) as web:
            if self._per_second is None:
                await asyncio.gather(*(self._client(web) for _ in range(self._concurrency)))
                return
            async with asyncio.TaskGroup() as sent:
                while not self._stop.is_set():
                    sent.create_task(self._one_or_failure(web))
                    await asyncio.sleep(1 / self._per_second)

    async def _client(self, web: httpx.AsyncClient) -> None:
        while not self._stop.is_set() and self._left:
            self._left -= 1
            await self._one_or_failure(web)

    async def _one_or_failure(self, web: httpx.AsyncClient) -> None:
        try:
            await self._one(web)
        except (httpx.HTTPError, ValueError) as error:
            self.failures.append(repr(error))

    async def _one(self, web: httpx.AsyncClient) -> None:
        text = " ".join(self._random.choices(WORDS, k=self._prompt_bytes))[: self._prompt_bytes]
        body = self._body | {
            "messages": [{"role": "user", "content": text}],
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        usage, error, first, began = None, None, 0.0, time.monotonic()
        async with web.stream("POST", "/v1/chat/completions", json=body) as answer:
            if answer.status_code != 200:
                self.failures.append(f"HTTP {answer.status_code}")
                return
            async for line in answer.aiter_lines():
                if line.startswith("data: {"):
                    event = json.loads(line.removeprefix("data: "))
                    usage = event.get("usage") or usage
                    error = event.get("error") or error
                    first = first or (_seconds_since(began) if _has_a_token(event) else 0.0)
        if error is not None:
            self.failures.append(f"HTTP {error.get('code')} in its stream")
        elif usage is None:
            self.failures.append("broke off")
        else:
            self.usages.append(usage)
            self.first_tokens.append(first)
            self.durations.append(_seconds_since(began))


def _has_a_token(event: dict[str, Any]) -> bool:
    """The first event of a stream may tell the role of the speaker alone; an error has no choices."""
    spoken = [choice["delta"] for choice in event.get("choices", ())]
    return any(delta.get("content") or delta.get("reasoning") for delta in spoken)


def _seconds_since(began: float) -> float:
    return time.monotonic() - began
