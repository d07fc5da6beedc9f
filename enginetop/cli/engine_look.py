"""One engine seen from beside it: whether it is ready, and how many requests it has."""

from __future__ import annotations

import math
import time

import httpx

from collectors.answer import Answer
from collectors.feed import TargetFeed
from collectors.fetch import Credentials, FetchError
from collectors.full_http import tls_context
from collectors.layout import LayoutCache
from enginetop.fleet.model import Target
from enginetop.fleet.observation import CONNECTION_FAILURES, FailureKind
from enginetop.fleet.reading import Part, Reading
from tuners.control.restart_board import Load

_HEALTH = "/health"
_TIMEOUT_SECONDS = 2.0
_REQUESTS = ("requests_running", "requests_waiting")
_NOT_READY = CONNECTION_FAILURES | {FailureKind.LOADING}
_NOTHING = Load(ready=False, requests=None)


class EngineLook:
    """Looks at `target` once a call, with plain GETs; blocks for some seconds at most. Faults are data."""

    def __init__(self, target: Target, credentials: Credentials) -> None:
        self._target = target
        self._credentials = credentials
        self._feed = TargetFeed(target, LayoutCache())

    def __call__(self) -> Load:
        """What can be seen now."""
        try:
            key = self._credentials.bearer()
            with httpx.Client(
                base_url=self._target.url,
                headers={} if key is None else {"Authorization": f"Bearer {key}"},
                verify=tls_context(self._credentials) if self._target.url.startswith("https") else False,
                timeout=_TIMEOUT_SECONDS,
                trust_env=False,
            ) as client:
                if client.get(_HEALTH).status_code >= httpx.codes.INTERNAL_SERVER_ERROR:
                    return _NOTHING
                return self._read(client)
        except (httpx.HTTPError, httpx.InvalidURL, OSError, FetchError):
            return _NOTHING

    def _read(self, client: httpx.Client) -> Load:
        answers: list[Answer] = []
        began = time.monotonic()
        while (wanted := self._feed.next_path(answers)) is not None:
            response = client.get(wanted)
            path = wanted.partition("?")[0]
            headers = {name.lower(): value for name, value in response.headers.items()}
            seconds = time.monotonic() - began
            answers.append(
                Answer(path, time.time(), seconds, response.status_code, headers, response.content)
            )
        seen = self._feed.take(answers, time.time(), time.monotonic() - began)
        if seen.reading is not None:
            return Load(ready=True, requests=_requests(seen.reading))
        return Load(ready=seen.failure is not None and seen.failure.kind not in _NOT_READY, requests=None)


def _requests(reading: Reading) -> int | None:
    """Running and waiting, over all ranks; None: the page does not tell who runs."""
    found: dict[str, float] = {}
    for series, value in zip(reading.columns.series, reading.values, strict=True):
        if series.measure in _REQUESTS and series.part is Part.VALUE and not math.isnan(value):
            found[series.measure] = found.get(series.measure, 0.0) + value
    return round(sum(found.values())) if _REQUESTS[0] in found else None
