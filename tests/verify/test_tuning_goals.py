"""The goals of the advice on every built-in scenario, and on those that no constant was chosen by."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.tuning import HELD_BACK, measure, summary
from bench.tuning_cache import GridCache
from bench.tuning_space import subjects
from enginetop.simulator.builtin import SCENARIOS
from enginetop.simulator.scenario_file import find_scenario

pytestmark = pytest.mark.verify
_SEEDS = (1, 2)


def test_the_built_in_scenarios(tmp_path: Path) -> None:
    chosen = [subject for scenario in SCENARIOS.values() for subject in subjects(scenario)]
    rows = measure(chosen, _SEEDS, GridCache(tmp_path / "grid.json"))
    figures = summary(rows)
    assert figures["median_ratio"] >= 0.97
    assert figures["worst_ratio"] >= 0.90
    assert figures["start_ratio_min"] >= 0.98
    for row in rows:
        if row.name in ("already-optimal", "out-of-capacity"):
            assert row.changes == (), row


def test_scenarios_that_were_held_back(tmp_path: Path) -> None:
    chosen = [subject for path in HELD_BACK for subject in subjects(find_scenario(path))]
    figures = summary(measure(chosen, _SEEDS, GridCache(tmp_path / "grid.json")))
    assert figures["median_ratio"] >= 0.97
    assert figures["start_ratio_min"] >= 0.98
