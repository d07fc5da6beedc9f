"""The goals of the advice on every built-in scenario, and on those that no constant was chosen by."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.tuning import HELD_BACK, measure, missed
from bench.tuning_cache import GridCache
from bench.tuning_space import subjects
from enginetop.simulator.builtin import SCENARIOS
from enginetop.simulator.scenario_file import find_scenario

pytestmark = pytest.mark.verify
_SEEDS = (1, 2)


def test_the_built_in_scenarios(tmp_path: Path) -> None:
    chosen = [subject for scenario in SCENARIOS.values() for subject in subjects(scenario)]
    assert missed(measure(chosen, _SEEDS, GridCache(tmp_path / "grid.json"))) == []


def test_scenarios_that_were_held_back(tmp_path: Path) -> None:
    chosen = [subject for path in HELD_BACK for subject in subjects(find_scenario(path))]
    assert missed(measure(chosen, _SEEDS, GridCache(tmp_path / "grid.json"))) == []
