"""Looks at one real server, with what is then shown of it: no loop, no process."""

from __future__ import annotations

import time
from collections.abc import Callable

import httpx

from collectors.answer import Answer
from collectors.feed import TargetFeed
from collectors.layout import LayoutCache
from enginetop.fleet.fleet_tracker import FleetTracker
from enginetop.fleet.model import ReplicaState, Target
from enginetop.fleet.snapshot import Distribution, ReplicaSnapshot, Scalar, Slo

WINDOW_SECONDS = 600.0
PATIENCE_SECONDS = 180.0


class Watch:
    """Feed and tracker on a real server, with a plain GET in place of the collector's loop."""

    def __init__(self, url: str) -> None:
        self.asked: list[str] = []
        self._url = url
        target = Target(url, "s")
        self._feed = TargetFeed(target, LayoutCache())
        self._tracker = FleetTracker(
            [target],
            interval_seconds=0.5,
            window_seconds=WINDOW_SECONDS,
            slo_for=lambda _: Slo(),
            fixed_spacing_seconds=0.5,
        )
        self._web = httpx.Client(base_url=url, timeout=30.0)
        self.at = self.first_at = 0.0

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self._web.close()

    @property
    def seconds(self) -> float:
        """From the first look to the last."""
        return self.at - self.first_at

    def look(self) -> ReplicaSnapshot:
        """Ask for every page that is due; the row then."""
        answers: list[Answer] = []
        while (path := self._feed.next_path(answers)) is not None:
            self.asked.append(path)
            response = self._web.get(path)
            headers = {name.lower(): value for name, value in response.headers.items()}
            name = path.partition("?")[0]
            answers.append(Answer(name, time.time(), 0.01, response.status_code, headers, response.content))
        self.at = time.time()
        self.first_at = self.first_at or self.at
        self._tracker.observe(self._url, self._feed.take(answers, self.at, 0.1))
        return self._tracker.snapshot(self.at).replicas[0]

    def until(self, wanted: Callable[[ReplicaSnapshot], bool]) -> ReplicaSnapshot:
        """The first look of which that holds. AssertionError: none does for a while."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not wanted(replica := self.look()):
            assert time.monotonic() < deadline, f"not within {PATIENCE_SECONDS:g} s; last: {replica.state}"
            time.sleep(0.5)
        return replica

    def until_idle(self) -> ReplicaSnapshot:
        """The first look at an idle server; a scheduler may report its last steps late."""
        return self.until(lambda replica: replica.state is ReplicaState.IDLE)


def scalar(replica: ReplicaSnapshot, name: str) -> float:
    """The number of a signal, of the core or beyond it, that must have one."""
    signal = replica.signals[name] if name in replica.signals else replica.beyond[name]
    assert isinstance(signal, Scalar)
    assert signal.number is not None, (name, signal)
    return signal.number


def distribution(replica: ReplicaSnapshot, name: str) -> Distribution:
    """A signal that must be a distribution."""
    signal = replica.signals[name]
    assert isinstance(signal, Distribution)
    return signal
