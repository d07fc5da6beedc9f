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
CONFIDENCE = 0.99

pytestmark = [pytest.mark.verify, pytest.mark.timeout(3600)]


def _all(trial: Callable[[int], Trial]) -> Sequence[Trial]:
    """The outcomes of all seeds, on every core."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(os.cpu_count()) as pool:
        return pool.map(trial, range(1, CHANGES + 1), chunksize=4)


def compatible(count: int, trials: int, probability: float) -> bool:
    """Whether a count is within the exact binomial's two-sided range of `CONFIDENCE`."""

    def at_most(k: int) -> float:
        return sum(
            math.comb(trials, i) * probability**i * (1 - probability) ** (trials - i) for i in range(k + 1)
        )

    tail = (1 - CONFIDENCE) / 2
    return at_most(count) > tail and 1 - at_most(count - 1) > tail


def test_the_range_of_a_count() -> None:
    """Of 200 at .05: 3 to 19 (R: qbinom(c(.005, .995), 200, .05))."""
    assert [count for count in range(40) if compatible(count, 200, 0.05)] == list(range(3, 20))


def test_null_changes_are_called_better_or_worse_as_often_as_alpha_allows() -> None:
    trials = _all(try_null)
    verdicts = Counter(trial.verdict for trial in trials)
    print(verdicts)
    tripped = [trial for trial in trials if trial.verdict is None]
    assert len(tripped) <= 0.01 * CHANGES, tripped[:3]
    assert compatible(verdicts[Verdict.IMPROVED], CHANGES, ALPHA), verdicts
    assert compatible(verdicts[Verdict.WORSE], CHANGES, ALPHA), verdicts


def test_changes_that_cost_five_points_are_worse() -> None:
    trials = _all(try_loss)
    verdicts = Counter(trial.verdict for trial in trials)
    print(verdicts)
    assert verdicts[Verdict.WORSE] >= 0.95 * CHANGES, verdicts
    assert all(trial.state is ChangeState.ROLLED_BACK for trial in trials if trial.verdict is Verdict.WORSE)
