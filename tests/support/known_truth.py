"""A simulated fleet whose every observation is kept, so that what pages tell can be held against it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pytest

from collectors.answer import Answer
from collectors.feed import TargetFeed
from collectors.layout import LayoutCache
from enginetop.fleet.fleet_tracker import FleetTracker
from enginetop.fleet.model import UP_STATES
from enginetop.fleet.signals import PERCENTILES
from enginetop.fleet.snapshot import Quantile, ReplicaSnapshot
from enginetop.simulator.metrics import Histogram
from enginetop.simulator.scenario import Scenario
from enginetop.simulator.stepped import SteppedWorld

STEP_SECONDS = 10.0
WINDOW_SECONDS = 60.0
KEPT_AS: Mapping[str, str] = {
    "ttft_seconds": "time_to_first_token",
    "tpot_seconds": "time_per_output_token",
    "e2e_seconds": "e2e_latency",
    "queue_seconds": "queue_time",
}
"""Where the simulator counts what is compared."""

_HEADERS = {"content-type": "text/plain; version=0.0.4"}


class Observations:
    """Every value that a histogram of the simulator was given, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._kept: dict[int, tuple[Histogram, list[float]]] = {}
        observe = Histogram.observe

        def observed(histogram: Histogram, value: float, times: int = 1) -> None:
            self.of(histogram).extend([value] * times)
            observe(histogram, value, times)

        monkeypatch.setattr(Histogram, "observe", observed)

    def of(self, histogram: Histogram) -> list[float]:
        """The values so far; the histogram is kept too, so that no other one gets its place."""
        return self._kept.setdefault(id(histogram), (histogram, []))[1]


@dataclass
class _Page:
    at: float
    gained: dict[str, list[float]]
    """What each measure was given since the page before; of a new life all of it."""


@dataclass
class _Target:
    pages: list[_Page] = field(default_factory=list)
    seen: dict[int, int] = field(default_factory=dict)
    """Values of each histogram on the last page."""

    def window(self, now: float, measure: str) -> list[float]:
        """What the measure was given from the baseline to the last page, sorted."""
        start = max(
            (place for place, page in enumerate(self.pages) if page.at <= now - WINDOW_SECONDS), default=0
        )
        start = min(start, len(self.pages) - 2)
        return sorted(value for page in self.pages[start + 1 :] for value in page.gained[measure])


def check_scenario(
    scenario: Scenario, replicas: int, seed: int, steps: int, monkeypatch: pytest.MonkeyPatch
) -> Counter[str]:
    """Run the scenario through its real pages and compare every window of every replica with the truth.

    The result counts what was compared, by measure and `joint`.
    """
    observations = Observations(monkeypatch)
    world = SteppedWorld(scenario, replicas, seed, tick_seconds=STEP_SECONDS, warm_up_seconds=0.0)
    layouts = LayoutCache()
    feeds = {target.url: TargetFeed(target, layouts) for target in world.targets}
    targets = {target.url: _Target() for target in world.targets}
    tracker = FleetTracker(
        world.targets,
        interval_seconds=STEP_SECONDS,
        window_seconds=WINDOW_SECONDS,
        slo_for=lambda _: scenario.slo,
        fixed_spacing_seconds=STEP_SECONDS,
    )
    compared: Counter[str] = Counter()
    for _ in range(steps):
        world.advance()
        now = world.now()
        for target in world.targets:
            body = world.page(target.url)
            if body is None:
                continue
            answers = [Answer("/metrics", now, 0.0, 200, _HEADERS, body)]
            tracker.observe(target.url, feeds[target.url].take(answers, now, 0.0))
            _note(targets[target.url], world, target.name, now, observations)
        for replica in tracker.snapshot(now).replicas:
            told = targets[replica.target.url]
            if told.pages and told.pages[-1].at == now and replica.state in UP_STATES:
                compared.update(_compare(replica, told, now))
    return compared


def _note(told: _Target, world: SteppedWorld, name: str, now: float, observations: Observations) -> None:
    gained: dict[str, list[float]] = {measure: [] for measure in KEPT_AS}
    seen: dict[int, int] = {}
    for engine in world.replica(name).engines:
        for measure, attribute in KEPT_AS.items():
            histogram = getattr(engine.metrics, attribute)
            values = observations.of(histogram)
            gained[measure] += values[told.seen.get(id(histogram), 0) :]
            seen[id(histogram)] = len(values)
    told.seen = seen
    told.pages.append(_Page(now, gained))


def _compare(replica: ReplicaSnapshot, told: _Target, now: float) -> Iterator[str]:
    for measure in KEPT_AS:
        shown = replica.distribution(measure)
        if len(told.pages) < 2 or not shown.count:
            continue
        values = told.window(now, measure)
        where = f"{replica.target.name} {measure} at {now - told.pages[0].at:.0f} s"
        assert shown.count == len(values), where
        for key, q in PERCENTILES:
            truth = values[math.ceil(q * len(values)) - 1]
            assert _holds(shown.quantiles[key], truth), f"{where}: {key} {shown.quantiles[key]}, true {truth}"
        yield measure
    good = replica.goodput
    if good.exact is not None and good.joint.low is not None and good.joint.high is not None:
        assert good.joint.low - 1e-9 <= good.exact <= good.joint.high + 1e-9, (replica.target.name, now, good)
        yield "joint"


def _holds(quantile: Quantile, truth: float) -> bool:
    """Whether the true percentile lies in the bucket that is told, and the estimate too."""
    low = -math.inf if quantile.low is None or quantile.low == 0 else quantile.low
    if quantile.censored:
        return quantile.value is None and quantile.high is None and truth > low
    assert quantile.value is not None
    assert quantile.high is not None
    return low < truth <= quantile.high and low <= quantile.value <= quantile.high
