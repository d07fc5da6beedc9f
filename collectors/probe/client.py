"""Sends the requests of a probe: so many, so long, so many at a time, and no more once one is refused.

httpx is imported at the first request. Redirects are not followed, so that no key reaches another host.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from collectors.fetch import Credentials, FetchError, client_words, connection_fault, one_line
from collectors.full_http import proxy_of, server_name, tls_context
from collectors.origin import Origin
from collectors.probe.stream import StreamedAnswer, error_text
from collectors.records.formats import OPENAI
from collectors.records.lines import RequestLine, read
from collectors.records.open_file import LineCutter
from collectors.secrets import bytes_without_these
from enginetop.fleet.foreign_json import decoded
from enginetop.fleet.frozen import frozen

if TYPE_CHECKING:
    import httpx

MOST_REQUESTS = 100
MOST_TOKENS = 16384
MOST_AT_ONCE = 4

_CHAT, _MODELS = "/v1/chat/completions", "/v1/models"
_MOST_BYTES = 64 * 1024 * 1024
_MOST_LINE_BYTES = 1024 * 1024
_MOST_SHORT_BYTES = 1024 * 1024


class ProbeError(Exception):
    """A probe that cannot begin; the text says why in one clean line."""


@frozen
class ProbePlan:
    """What a probe may do. Raises ValueError beyond the caps, whoever asks."""

    url: str
    model: str
    prompts: Sequence[str]
    requests: int = 8
    max_tokens: int = 2048
    at_once: int = 1
    timeout_seconds: float = 300.0

    def __post_init__(self) -> None:
        for name, most in (
            ("requests", MOST_REQUESTS),
            ("max_tokens", MOST_TOKENS),
            ("at_once", MOST_AT_ONCE),
        ):
            if not 1 <= getattr(self, name) <= most:
                raise ValueError(f"{name} lies between 1 and {most}")


@frozen
class ProbeAnswer:
    """How one request went: ended at Unix time `at`, with a record, or with `error` in one line."""

    at: float
    record: RequestLine | None
    error: str = ""


class ProbeClient:
    """Talks to one target, with its key read anew for every request."""

    def __init__(
        self,
        credentials: Credentials,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._credentials = credentials
        self._secrets: tuple[str, ...] = ()
        self._clock = clock
        self._now = now

    def only_model(self, url: str, timeout_seconds: float) -> str:
        """The first model that the server names. Raises ProbeError."""
        return asyncio.run(self._only_model(url, timeout_seconds))

    def run(self, plan: ProbePlan, on_answer: Callable[[ProbeAnswer], None]) -> None:
        """Send the requests and tell of each as it ends. Returns early when the server refuses one."""
        asyncio.run(self._run(plan, on_answer))

    async def _only_model(self, url: str, timeout_seconds: float) -> str:
        import httpx

        try:
            async with (
                asyncio.timeout(timeout_seconds),
                self._open(url) as client,
                self._stream(client, "GET", url, _MODELS) as response,
            ):
                listed = decoded(self._clean(await _beginning(response)))
        except (httpx.HTTPError, httpx.InvalidURL, FetchError, OSError) as error:
            raise ProbeError(f"{url}{_MODELS}: {self._said(error)}; name one with --model") from None
        models = listed.get("data") if isinstance(listed, dict) else None
        for model in models if isinstance(models, list) else ():
            if isinstance(model, dict) and isinstance(model.get("id"), str) and model["id"]:
                return str(model["id"])
        said = f"status {response.status_code}" if response.status_code != 200 else "no model in the answer"
        raise ProbeError(f"{url}{_MODELS}: {said}; name one with --model")

    async def _run(self, plan: ProbePlan, on_answer: Callable[[ProbeAnswer], None]) -> None:
        waiting = list(range(plan.requests))[::-1]

        async def work(client: httpx.AsyncClient) -> None:
            while waiting:
                number = waiting.pop()
                answer, refused = await self._ask(client, plan, plan.prompts[number % len(plan.prompts)])
                on_answer(answer)
                if refused:
                    waiting.clear()

        try:
            async with self._open(plan.url) as client, asyncio.TaskGroup() as group:
                for _ in range(plan.at_once):
                    group.create_task(work(client))
        except FetchError as fault:
            on_answer(ProbeAnswer(self._now(), None, fault.detail))

    async def _ask(self, client: httpx.AsyncClient, plan: ProbePlan, prompt: str) -> tuple[ProbeAnswer, bool]:
        """One request, and whether the server will have no more of them."""
        import httpx

        body = {
            "model": plan.model,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": plan.max_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        began = self._clock()
        try:
            async with (
                asyncio.timeout(plan.timeout_seconds),
                self._stream(client, "POST", plan.url, _CHAT, body) as response,
            ):
                if response.status_code != 200:
                    refused = 400 <= response.status_code < 500 and response.status_code not in (408, 429)
                    return self._failed(await self._refusal(response)), refused
                return await self._answer(response, began), False
        except TimeoutError:
            return self._failed(f"no end within {plan.timeout_seconds:g} s"), False
        except FetchError as fault:
            return self._failed(fault.detail), True
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            return self._failed(self._said(error)), False

    async def _answer(self, response: httpx.Response, began: float) -> ProbeAnswer:
        answer, cutter = StreamedAnswer(began), LineCutter(max_line_bytes=_MOST_LINE_BYTES)
        size, whole = 0, b""
        streams = "json" not in response.headers.get("content-type", "")
        async for part in response.aiter_bytes():
            size += len(part)
            if size > _MOST_BYTES:
                return self._failed(f"an answer of more than {_MOST_BYTES // 2**20} MiB")
            if streams:
                at = self._clock()
                for line in cutter.take(part):
                    answer.take(self._clean(line.data), at)
            else:
                whole += part
        if answer.error:
            return self._failed(answer.error)
        if streams:
            if not answer.done:
                return self._failed("the answer broke off")
            return ProbeAnswer(self._now(), answer.record(self._clock()))
        document = decoded(self._clean(whole))  # a server that does not stream: no first token is seen
        if not isinstance(document, dict) or "choices" not in document:
            return self._failed(error_text(document) or "no answer of the chat API")
        return ProbeAnswer(self._now(), read(document, OPENAI))

    async def _refusal(self, response: httpx.Response) -> str:
        said = error_text(decoded(self._clean(await _beginning(response))))
        return f"status {response.status_code}" + (f": {said}" if said else "")

    def _failed(self, reason: str) -> ProbeAnswer:
        return ProbeAnswer(self._now(), None, one_line(reason))

    def _said(self, error: Exception) -> str:
        import httpx

        if isinstance(error, FetchError):
            return error.detail
        if isinstance(error, TimeoutError | httpx.TimeoutException):
            return "no answer in time"
        try:
            return connection_fault(error).detail
        except (OSError, httpx.HTTPError, httpx.InvalidURL) as own:
            return client_words(own) or type(own).__name__

    def _clean(self, data: bytes) -> bytes:
        """What a server sent without the secrets that it was sent."""
        return bytes_without_these(data, self._secrets)

    def _stream(
        self, client: httpx.AsyncClient, method: str, url: str, path: str, body: object = None
    ) -> AbstractAsyncContextManager[httpx.Response]:
        """A request with the key, and `body` as JSON. Raises as `Credentials.authorization`."""
        parts = urlsplit(url)
        origin = Origin.of(parts)
        headers = {"Host": origin.authority}
        authorization = self._credentials.authorization()
        if authorization is not None:
            headers["Authorization"], self._secrets = authorization
        return client.stream(
            method,
            origin.dialled + parts.path + path,
            json=body,
            headers=headers,
            extensions=server_name(origin, self._credentials),
        )

    def _open(self, url: str) -> httpx.AsyncClient:
        import httpx

        parts = urlsplit(url)
        return httpx.AsyncClient(
            verify=tls_context(self._credentials) if parts.scheme == "https" else False,
            proxy=proxy_of(self._credentials, parts.scheme, parts.hostname or ""),
            trust_env=False,
            timeout=None,  # noqa: S113 - one deadline spans the whole request
        )


async def _beginning(response: httpx.Response) -> bytes:
    """The body of a short answer; of a long one its beginning, which is no JSON."""
    body = b""
    async for part in response.aiter_bytes():
        body += part
        if len(body) > _MOST_SHORT_BYTES:
            break
    return body
