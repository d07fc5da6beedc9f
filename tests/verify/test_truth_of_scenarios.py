"""What pages tell is held against the truth in every window of every built-in scenario."""

from __future__ import annotations

import pytest

from enginetop.simulator.builtin import SCENARIOS
from tests.support.known_truth import STEP_SECONDS, check_scenario

pytestmark = [pytest.mark.verify, pytest.mark.timeout(1200)]


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("name", SCENARIOS)
def test_every_window_tells_the_truth(name: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = SCENARIOS[name]
    steps = round(max(scenario.duration_seconds, 600.0) / STEP_SECONDS)
    compared = check_scenario(scenario, min(scenario.replicas, 4), seed, steps, monkeypatch)
    assert compared["ttft_seconds"] > 0.5 * steps
    assert compared["joint"] > 0.5 * steps
