"""The joint bounds from histograms hold the exact share of the same requests, in every window."""

from __future__ import annotations

import pytest

from collectors.answer import Answer
from collectors.feed import TargetFeed
from collectors.layout import LayoutCache
from enginetop.fleet.fleet_tracker import FleetTracker
from enginetop.simulator.scenario_file import find_scenario
from enginetop.simulator.stepped import SteppedWorld

HEADERS = {"content-type": "text/plain; version=0.0.4"}
STEP_SECONDS = 10.0


@pytest.mark.parametrize("name", ["steady", "kv-pressure", "burst", "budget-too-large"])
def test_the_truth_is_always_inside(name: str) -> None:
    scenario = find_scenario(name)
    world = SteppedWorld(scenario, 2, 3, tick_seconds=STEP_SECONDS)
    layouts = LayoutCache()
    feeds = {target.url: TargetFeed(target, layouts) for target in world.targets}
    tracker = FleetTracker(
        world.targets,
        interval_seconds=STEP_SECONDS,
        window_seconds=60.0,
        slo_for=lambda _: scenario.slo,
        fixed_spacing_seconds=STEP_SECONDS,
    )
    windows = 0
    for _ in range(30):
        world.advance()
        now = world.now()
        for url, feed in feeds.items():
            body = world.page(url)
            assert body is not None
            tracker.observe(url, feed.take([Answer("/metrics", now, 0.0, 200, HEADERS, body)], now, 0.0))
        for replica in tracker.snapshot(now).replicas:
            found = replica.goodput
            if found is None or found.exact is None or found.joint.low is None or found.joint.high is None:
                continue
            windows += 1
            assert found.joint.low - 1e-9 <= found.exact <= found.joint.high + 1e-9, (now, found)
    assert windows > 40
