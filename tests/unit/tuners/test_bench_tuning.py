"""The bench of the advice, on a scenario that is small enough for every day."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bench import tuning, tuning_cache, tuning_loop
from bench.tuning import Row, missed
from bench.tuning_cache import GridCache, StaleCacheError
from bench.tuning_loop import Change
from bench.tuning_space import MOST_SETTINGS, Settings, Subject, grid, subjects, truncated_ratio, worth
from enginetop.simulator.builtin import SCENARIOS, scenario_named
from enginetop.simulator.scenario import Lengths
from enginetop.simulator.scenario_file import find_scenario, parse_scenario

TINY = """
name = "tiny"
[engine]
max_num_batched_tokens = 256
max_num_seqs = 16
kv_blocks = 4000
max_model_len = 8192
step = { base_ms = 20.0, per_token_us = 40.0 }
[traffic]
requests_per_second = 2.0
prompt_tokens = { median = 3600, sigma = 0.1 }
answer_tokens = { median = 6, sigma = 0.3 }
max_tokens = 64
[slo]
ttft_seconds = 1.0
tpot_seconds = 0.2
"""
"""7200 prompt tokens a second. Steps of 256 tokens take 30 ms: at most 8500 a second, and queues; steps of
2048 take 102 ms: 20 000 a second.
"""


def tiny() -> Subject:
    return subjects(parse_scenario(TINY, "tiny"))[0]


def test_the_tiny_scenario_is_tuned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scenario, cache = tmp_path / "tiny.toml", tmp_path / "grid.json"
    scenario.write_text(TINY)
    asked = ["--scenario", str(scenario), "--seeds", "1", "--cache", str(cache), "--json"]
    assert tuning.main(asked) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    (row,) = told["scenarios"]
    assert row["start_ratio"] < 0.8
    assert row["ratio"] >= 0.9
    assert told["worst_ratio"] == told["median_ratio"] == row["ratio"]
    assert row["found"][0]["max_num_batched_tokens"] > 256
    assert {key: row["found"][0][key] for key in ("max_num_seqs", "num_speculative_tokens")} == {
        "max_num_seqs": 16,
        "num_speculative_tokens": 0,
    }
    assert 1 <= len(row["changes"]) <= 4
    assert cache.exists()


def test_no_grid_is_larger_than_sixty_and_the_start_is_in_it() -> None:
    for scenario in SCENARIOS.values():
        for subject in subjects(scenario):
            settings = grid(subject)
            assert len(settings) <= MOST_SETTINGS
            assert subject.start in settings
            assert all(subject.allows(one) for one in settings)


def test_pools_of_unlike_replicas_and_split_ones_are_left_out() -> None:
    assert subjects(scenario_named("demo")) == []
    assert subjects(scenario_named("prefill-decode")) == []
    assert [subject.name for subject in subjects(scenario_named("steady"))] == ["steady/a", "steady/b"]


@pytest.mark.parametrize(
    ("budget", "ratio"),
    # median 1000, sigma .5: the 95 % quantile is 1000 exp(.5 x 1.644854) = 2275.9
    [(-1, 0.0), (2275, 0.05), (1000, 0.5), (439, 0.95)],
)
def test_the_share_of_thoughts_that_a_budget_cuts(budget: int, ratio: float) -> None:
    assert truncated_ratio(Lengths(1000, 0.5), budget) == pytest.approx(ratio, abs=1e-3)


def test_every_thought_alike_and_none_at_all() -> None:
    assert truncated_ratio(Lengths(100, 0.0), 99) == 1.0
    assert truncated_ratio(Lengths(100, 0.0), 100) == 0.0
    assert truncated_ratio(Lengths(0, 0.0), 5) == 0.0


def test_caps_that_are_never_reached_are_not_worked_out_twice() -> None:
    subject = tiny()
    family = tuple(replace(subject.start, max_num_batched_tokens=512, max_num_seqs=n) for n in (64, 32, 4, 2))
    found = tuning_cache.family_worth(subject, family, 1)
    assert [found[one].goodput for one in family] == [worth(subject, one, 1).goodput for one in family]


def test_a_kept_figure_that_is_wrong_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subject, path = tiny(), tmp_path / "grid.json"
    few = [subject.start, replace(subject.start, max_num_seqs=8)]
    monkeypatch.setattr(tuning_cache, "grid", lambda _: few)
    monkeypatch.setattr(tuning_cache, "_VERIFIED_SHARE", 1.0)
    first = GridCache(path)
    assert set(first.grid_of(subject, 1)) == set(few)
    first.save()
    assert first.verified == 0
    again = GridCache(path)
    assert again.grid_of(subject, 1) == first.grid_of(subject, 1)
    assert again.verified == 2
    document = json.loads(path.read_text())
    (kept,) = document["worths"].values()
    next(iter(kept.values()))[0] += 0.001
    path.write_text(json.dumps(document))
    with pytest.raises(StaleCacheError):
        GridCache(path).grid_of(subject, 1)
    document["simulator"] = "another"
    path.write_text(json.dumps(document))
    assert GridCache(path).grid_of(subject, 1) == first.grid_of(subject, 1)


def test_a_trial_is_one_pool_half_of_it_with_the_new_settings() -> None:
    subject = tiny()
    new = replace(subject.start, max_num_batched_tokens=512)
    scenario = tuning_loop._side_by_side(subject, subject.start, new)
    names, plans = zip(*scenario.plans(4), strict=True)
    assert len(set(names)) == 4
    assert [plan.engine.max_num_batched_tokens for plan in plans] == [512, 512, 256, 256]


def test_an_unknown_scenario_is_told_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert tuning.main(["--scenario", "nothing"]) == 2
    assert capsys.readouterr().err.startswith("bench.tuning: no scenario 'nothing'")


def test_the_held_back_scenarios_can_be_read() -> None:
    names = {subject.name for path in tuning.HELD_BACK for subject in subjects(find_scenario(path))}
    assert len(names) == 8
    assert not names & set(SCENARIOS)
    assert Settings.of(scenario_named("budget-too-large").pools[0].members[0].engine).max_num_seqs == 64


def row(
    name: str = "burst", seed: int = 1, ours: float = 1.0, over_start: float = 1.0, changed: bool = False
) -> Row:
    one = Settings(2048, 64, 0, -1)
    change = Change("max_num_seqs", 64, 32, "improved", True, "why")
    return Row(
        name, seed, one, 2.0, ours, ours, over_start, (None, 1.0), 1.0, one, (change,) if changed else ()
    )


def test_each_goal_can_be_missed() -> None:
    good = [row(), row("steady"), row("already-optimal"), row("out-of-capacity")]
    assert missed([*good, row(seed=2, ours=0.90, over_start=0.98, changed=True)]) == []
    assert missed([*good, row(seed=2, ours=0.89)]) == ["worst of the grid's best 0.89, goal 0.9"]
    assert missed([row(ours=0.96)]) == ["median of the grid's best 0.96, goal 0.97"]
    assert missed([row(over_start=0.97)]) == ["least over the start 0.97, goal 0.98"]
    assert missed([row("already-optimal", 3, changed=True)]) == [
        "already-optimal seed 3 is changed: max_num_seqs 64 -> 32 improved (why)"
    ]
