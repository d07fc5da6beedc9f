"""The goals of the advice on every built-in scenario, and on those that no constant was chosen by: what is
missed fails by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from bench.tuning import HELD_BACK, Row, measure, missed
from bench.tuning_cache import GridCache
from bench.tuning_space import subjects
from enginetop.simulator.builtin import SCENARIOS
from enginetop.simulator.scenario_file import find_scenario

pytestmark = [pytest.mark.verify, pytest.mark.timeout(3600)]
_SEEDS = (1, 2)
_TUNED = [name for name in SCENARIOS if subjects(find_scenario(name))]


@cache
def rows(scenario: str) -> Sequence[Row]:
    """A row for each pool and seed; kept, since the medians are over all of them."""
    return measure(subjects(find_scenario(scenario)), _SEEDS, GridCache(Path("never-written.json")))


@pytest.mark.parametrize("scenario", [*_TUNED, *HELD_BACK])
def test_no_seed_is_far_from_the_best_or_worse_than_the_start(scenario: str) -> None:
    assert [words for words in missed(rows(scenario)) if not words.startswith("median")] == []


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("scenarios", [_TUNED, HELD_BACK], ids=["built in", "held back"])
def test_the_goals_are_met_over_all(scenarios: Sequence[str]) -> None:
    assert missed([row for scenario in scenarios for row in rows(scenario)]) == []
