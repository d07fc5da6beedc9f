"""A fleet in memory for tests of the engine: real feeds and trackers, pages by hand, no sockets."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from collectors.answer import Answer
from collectors.feed import TargetFeed
from collectors.layout import LayoutCache
from enginetop.fleet.fleet_tracker import FleetTracker
from enginetop.fleet.model import Target
from enginetop.fleet.observation import FailureKind
from enginetop.fleet.ports import FleetSource
from enginetop.fleet.snapshot import FleetSnapshot, ReplicaSnapshot, Slo

MODEL = 'engine="0",model_name="m"'


def vllm_page(running: int = 1, tokens: int = 0) -> bytes:
    """A small page of vLLM: two gauges, one counter."""
    return (
        "# TYPE vllm:num_requests_running gauge\n"
        f"vllm:num_requests_running{{{MODEL}}} {running}\n"
        "# TYPE vllm:num_requests_waiting gauge\n"
        f"vllm:num_requests_waiting{{{MODEL}}} 0\n"
        "# TYPE vllm:generation_tokens counter\n"
        f"vllm:generation_tokens_total{{{MODEL}}} {tokens}\n"
    ).encode()


def target(url: str) -> Target:
    """The target of a base URL, named after it."""
    return Target(url, url.partition("://")[2])


def tracker_of(targets: Sequence[Target], spacing_seconds: float | None = None) -> FleetTracker:
    """A tracker with a window of a minute."""
    return FleetTracker(
        targets,
        interval_seconds=2.0,
        window_seconds=60.0,
        slo_for=lambda _: Slo(),
        fixed_spacing_seconds=spacing_seconds,
    )


def new_feeds() -> Callable[[Target], TargetFeed]:
    """Feeds that share their layouts."""
    layouts = LayoutCache()
    return lambda target: TargetFeed(target, layouts)


Page = bytes | int | FailureKind | None
"""A body, a status without one, an error word, or None: no answer before the deadline."""


@dataclass(slots=True)
class FakeFetcher:
    """Answers from `pages`, by base URL and path; a function is called with the number of the request.

    `absent`: servers of which every path fails as their page does.
    """

    pages: Mapping[str, Page | Callable[[int], Page]]
    paths: Mapping[str, bytes] = field(default_factory=dict)
    absent: frozenset[str] = frozenset()
    counts: dict[str, int] = field(default_factory=dict)
    closed: bool = False

    async def fetch(self, url: str, path: str, *, timeout_seconds: float) -> Answer:
        """The page of `url` at `/metrics`, 404 elsewhere."""
        asked = path.partition("?")[0]
        if asked != "/metrics" and url not in self.absent:
            body = self.paths.get(asked)
            return Answer(asked, time.time(), 0.001, 404 if body is None else 200, body=body or b"")
        number = self.counts.get(url, 0)
        self.counts[url] = number + 1
        page = self.pages[url]
        if callable(page):
            page = page(number)
        if page is None:
            await asyncio.sleep(timeout_seconds)
            page = FailureKind.TIMEOUT
        if isinstance(page, FailureKind):
            return Answer(asked, time.time(), 0.001, error=page, detail=str(page))
        if isinstance(page, int):
            return Answer(asked, time.time(), 0.001, page)
        return Answer(asked, time.time(), 0.001, 200, {"content-type": "text/plain"}, page)

    async def forget(self, url: str) -> None:
        """Forget how often it was asked."""
        self.counts.pop(url, None)

    async def aclose(self) -> None:
        """Note it."""
        self.closed = True


def wait_until(
    source: FleetSource,
    holds: Callable[[FleetSnapshot], bool],
    *,
    timeout_seconds: float = 60.0,
    poke: Callable[[], None] | None = None,
) -> FleetSnapshot:
    """The first snapshot that `holds`; AssertionError when there is none in time."""
    fresh = threading.Event()
    leave = source.subscribe(fresh.set)
    try:
        until = time.monotonic() + timeout_seconds
        while time.monotonic() < until:
            fresh.clear()
            snapshot = source.latest()
            if snapshot is not None and holds(snapshot):
                return snapshot
            if poke is not None:
                poke()
            fresh.wait(0.1)
    finally:
        leave()
    raise AssertionError(f"never happened; last: {[(r.state, r.reasons) for r in snapshot.replicas]}")  # type: ignore[union-attr]


def replica(snapshot: FleetSnapshot, url: str) -> ReplicaSnapshot:
    """The replica of a base URL."""
    return next(found for found in snapshot.replicas if found.target.url == url)
