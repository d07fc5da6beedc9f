"""How good the advice is: `python -m bench.tuning [--scenario NAME|FILE ...] [--held-back] [--seeds N]
[--first-seed N]`.

For every scenario the closed loop (advice, canary, judge; at most four changes) is held against the best of a
grid of at most sixty settings, by exact goodput on the same traffic. Beside it, what static budgets of 2048
and 8192 and a rule of thumb are worth. A ratio of 1 is the grid's best. `--held-back` takes the scenarios of
`bench/scenarios`, which no constant was chosen by.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from bench.tuning_cache import GridCache
from bench.tuning_loop import Change, closed_loop, rule_of_thumb
from bench.tuning_space import Settings, Subject, Worth, subjects, worth
from enginetop.fleet.errors import ConfigError
from enginetop.simulator.builtin import SCENARIOS
from enginetop.simulator.scenario_file import find_scenario

HELD_BACK = tuple(sorted(str(path) for path in (Path(__file__).parent / "scenarios").glob("*.toml")))
_CACHE = Path("build/bench-tuning-grid.json")
_STATIC = (2048, 8192)
LEAST_MEDIAN_RATIO, LEAST_WORST_RATIO, LEAST_OVER_START = 0.97, 0.90, 0.98
"""The goals: shares of the grid's best over scenarios and seeds, and what advice may cost at most."""
LEFT_ALONE = ("already-optimal", "out-of-capacity")
"""Where nothing is to be changed."""
_STATIC_KEYS = tuple(f"static_{budget}_ratio" for budget in _STATIC)


@dataclass(frozen=True, slots=True)
class Row:
    """One scenario and seed. Ratios are of the grid's best goodput; `start_ratio` is of the start's."""

    name: str
    seed: int
    best: Settings
    best_goodput: float
    start: float
    ours: float
    start_ratio: float
    static: tuple[float | None, ...]
    thumb: float
    settings: Settings
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class _Run:
    """What one worker finds out."""

    settings: Settings
    changes: tuple[Change, ...]
    ours: Worth
    start: Worth
    static: tuple[Worth | None, ...]
    thumb: Worth


def _run(subject: Subject, seed: int) -> _Run:
    found, thumb = closed_loop(subject, seed), rule_of_thumb(subject, seed)
    fixed = [replace(subject.start, max_num_batched_tokens=budget) for budget in _STATIC]
    return _Run(
        found.settings,
        found.changes,
        worth(subject, found.settings, seed),
        worth(subject, subject.start, seed),
        tuple(worth(subject, one, seed) if subject.allows(one) else None for one in fixed),
        worth(subject, thumb.settings, seed),
    )


def measure(chosen: Sequence[Subject], seeds: Iterable[int], cache: GridCache) -> list[Row]:
    """A row for each subject and seed."""
    asked = list(product(chosen, seeds))
    with ProcessPoolExecutor(os.cpu_count()) as workers:
        runs = list(workers.map(_run, *zip(*asked, strict=True)))
    rows = []
    for (subject, seed), run in zip(asked, runs, strict=True):
        worths = cache.grid_of(subject, seed)
        comparable = {one: value for one, value in worths.items() if value.comparable}
        best = max(comparable, key=lambda one: comparable[one].goodput)
        top = comparable[best].goodput
        rows.append(
            Row(
                subject.name,
                seed,
                best,
                top,
                _ratio(run.start.goodput, top),
                _ratio(run.ours.goodput, top) if run.ours.comparable else 0.0,
                _ratio(run.ours.goodput, run.start.goodput),
                tuple(None if one is None else _ratio(one.goodput, top) for one in run.static),
                _ratio(run.thumb.goodput, top),
                run.settings,
                run.changes,
            )
        )
    return rows


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """The figures that goals are set for, and a row a scenario (medians over the seeds)."""
    by_name = {
        name: [row for row in rows if row.name == name] for name in dict.fromkeys(r.name for r in rows)
    }
    ours = {name: statistics.median(row.ours for row in group) for name, group in by_name.items()}
    return {
        "median_ratio": round(statistics.median(ours.values()), 4),
        "worst_ratio": round(min(row.ours for row in rows), 4),
        "start_ratio_min": round(min(row.start_ratio for row in rows), 4),
        "scenarios": [_scenario(name, group) for name, group in by_name.items()],
    }


def missed(rows: Sequence[Row]) -> list[str]:
    """The goals that these rows miss, in words; none: all are met."""
    figures = summary(rows)
    reached = [
        ("median_ratio", LEAST_MEDIAN_RATIO, "median of the grid's best"),
        ("worst_ratio", LEAST_WORST_RATIO, "worst of the grid's best"),
        ("start_ratio_min", LEAST_OVER_START, "least over the start"),
    ]
    words = [f"{said} {figures[key]}, goal {goal}" for key, goal, said in reached if figures[key] < goal]
    touched = [row for row in rows if row.name in LEFT_ALONE and row.changes]
    return words + [f"{row.name} seed {row.seed} is changed: {row.changes[0].text()}" for row in touched]


def _scenario(name: str, group: Sequence[Row]) -> dict[str, Any]:
    return {
        "scenario": name,
        "start_ratio": _median(row.start for row in group),
        "ratio": _median(row.ours for row in group),
        "ratio_by_seed": {row.seed: round(row.ours, 4) for row in group},
        "worst_ratio": round(min(row.ours for row in group), 4),
        "over_start_min": round(min(row.start_ratio for row in group), 4),
        **{key: _median(row.static[place] for row in group) for place, key in enumerate(_STATIC_KEYS)},
        "rule_of_thumb_ratio": _median(row.thumb for row in group),
        "best": group[0].best.as_dict(),
        "best_goodput_per_second": round(group[0].best_goodput, 4),
        "found": [row.settings.as_dict() for row in group],
        "changes": [f"seed {row.seed}: {change.text()}" for row in group for change in row.changes],
    }


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(statistics.median(known), 4) if known else None


def _ratio(value: float, top: float) -> float:
    return value / top if top > 0 else 1.0


def _table(figures: dict[str, Any]) -> str:
    heads = "".join(f"{head:>7}" for head in ("start", "ours", "worst", "2048", "8192", "thumb"))
    lines = [f"{'scenario':<24}{heads}  settings of the first seed, of the grid's best"]
    for row in figures["scenarios"]:
        keys = ("start_ratio", "ratio", "worst_ratio", *_STATIC_KEYS, "rule_of_thumb_ratio")
        numbers = "".join(f"{'–' if row[key] is None else format(row[key], '.3f'):>7}" for key in keys)
        found, best = (tuple(settings.values()) for settings in (row["found"][0], row["best"]))
        lines.append(f"{row['scenario']:<24}{numbers}  {found} {best}")
        lines += [f"    {change}" for change in row["changes"]]
    lines.append(
        f"median {figures['median_ratio']}, worst {figures['worst_ratio']}, "
        f"least over the start {figures['start_ratio_min']}"
    )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; with `--json` one JSON object as the last line."""
    parser = argparse.ArgumentParser(prog="python -m bench.tuning", description=__doc__)
    parser.add_argument("--scenario", nargs="+", default=[name for name in SCENARIOS if name != "demo"])
    parser.add_argument("--held-back", dest="scenario", action="store_const", const=HELD_BACK)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=1, help="fresh ones tell whether rules fit the old")
    parser.add_argument("--cache", type=Path, default=_CACHE)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args(arguments)
    try:
        chosen = [subject for name in asked.scenario for subject in subjects(find_scenario(name))]
    except ConfigError as error:
        print(f"bench.tuning: {error}", file=sys.stderr)
        return 2
    seeds = range(asked.first_seed, asked.first_seed + asked.seeds)
    cache = GridCache(asked.cache)
    rows = measure(chosen, seeds, cache)
    cache.save()
    figures = summary(rows) | {"grid_settings_verified": cache.verified, "goals_missed": missed(rows)}
    print("\n".join([_table(figures), *(f"missed: {words}" for words in figures["goals_missed"])]))
    if asked.json:
        print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
