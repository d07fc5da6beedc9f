"""One engine seen from beside it: whether it is ready, and how many requests it has."""

from __future__ import annotations

import asyncio
import math

from collectors.clock import SteadyClock
from collectors.event_loop import EngineEventLoop
from collectors.feed import TargetFeed
from collectors.fetch import Credentials
from collectors.http import HttpFetcher
from collectors.layout import LayoutCache
from collectors.scrape import Scraper
from enginetop.fleet.model import Target
from enginetop.fleet.observation import CONNECTION_FAILURES, FailureKind, Observation
from enginetop.fleet.reading import Part, Reading
from tuners.control.restartable import Load

_HEALTH = "/health"
_SERVER_ERROR = 500
_TIMEOUT_SECONDS = 2.0
_REQUESTS = ("requests_running", "requests_waiting")
_NOT_READY = CONNECTION_FAILURES | {FailureKind.LOADING, FailureKind.COLLECTOR}
_NOTHING = Load(ready=False, requests=None)


class EngineLook:
    """Looks at `target` once a call, with plain GETs; blocks for some seconds at most. Faults are data.

    For threads without an event loop of their own. Each look has connections of its own: the process may be
    another one.
    """

    def __init__(self, target: Target, credentials: Credentials) -> None:
        self._target = target
        self._credentials = credentials
        self._feed = TargetFeed(target, LayoutCache())
        self._clock = SteadyClock()

    def __call__(self) -> Load:
        """What can be seen now."""
        with asyncio.Runner(loop_factory=EngineEventLoop) as runner:
            seen = runner.run(self._look())
        if seen is None:
            return _NOTHING
        if seen.reading is not None:
            return Load(ready=True, requests=_requests(seen.reading))
        return Load(ready=seen.failure is not None and seen.failure.kind not in _NOT_READY, requests=None)

    async def _look(self) -> Observation | None:
        """Its pages; None: it does not answer, or says itself that it is not healthy."""
        fetcher = HttpFetcher({self._target.url: self._credentials})
        try:
            health = await fetcher.fetch(self._target.url, _HEALTH, timeout_seconds=_TIMEOUT_SECONDS)
            if health.error is not None or health.status >= _SERVER_ERROR:
                return None
            scraper = Scraper(self._target, self._feed, fetcher, self._clock)
            return (await scraper.scrape(_TIMEOUT_SECONDS)).observation
        finally:
            await fetcher.aclose()


def _requests(reading: Reading) -> int | None:
    """Running and waiting, over all ranks; None: the page does not tell who runs."""
    found: dict[str, float] = {}
    for series, value in zip(reading.columns.series, reading.values, strict=True):
        if series.measure in _REQUESTS and series.part is Part.VALUE and not math.isnan(value):
            found[series.measure] = found.get(series.measure, 0.0) + value
    return round(sum(found.values())) if _REQUESTS[0] in found else None
