"""Error rates of the verdicts over 200 changes on the stepped simulator: the plan, guards and judge of a live
change and the default settings: one canary, two baselines, 30 blocks of a minute.
"""

from __future__ import annotations

import math
import multiprocessing
import os
from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from enginetop.fleet.change import ChangeState, Verdict
from tests.support.stepped_control import Trial, try_loss, try_null

CHANGES = 200
ALPHA = 0.05
CONFIDENCE = 0.995

pytestmark = [pytest.mark.verify, pytest.mark.timeout(3600)]


def _all(trial: Callable[[int], Trial]) -> Sequence[Trial]:
    """The outcomes of all seeds, on every core."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(os.cpu_count()) as pool:
        return pool.map(trial, range(1, CHANGES + 1), chunksize=4)


def most(trials: int, probability: float) -> int:
    """The largest count that chance brings at `probability`, by the exact binomial's `CONFIDENCE`."""
    below, count = 0.0, -1
    while below < CONFIDENCE:
        count += 1
        below += math.comb(trials, count) * probability**count * (1 - probability) ** (trials - count)
    return count


def test_the_most_of_a_count() -> None:
    """Of 200 and of 1000 at .05, by sums of exact fractions."""
    assert (most(200, 0.05), most(1000, 0.05)) == (19, 69)


def test_null_changes_are_called_better_or_worse_no_more_often_than_alpha_allows() -> None:
    trials = _all(try_null)
    verdicts = Counter(trial.verdict for trial in trials)
    print(verdicts)
    tripped = [trial for trial in trials if trial.verdict is None]
    assert len(tripped) <= 0.01 * CHANGES, tripped[:3]
    assert verdicts[Verdict.IMPROVED] <= most(CHANGES, ALPHA), verdicts
    assert verdicts[Verdict.WORSE] <= most(CHANGES, ALPHA), verdicts


def test_changes_that_cost_five_points_are_worse() -> None:
    trials = _all(try_loss)
    verdicts = Counter(trial.verdict for trial in trials)
    print(verdicts)
    assert verdicts[Verdict.WORSE] >= 0.95 * CHANGES, verdicts
    assert all(trial.state is ChangeState.ROLLED_BACK for trial in trials if trial.verdict is Verdict.WORSE)
