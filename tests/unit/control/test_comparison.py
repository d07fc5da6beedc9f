"""What an observation says of its canary, from marks as odd as targets make them."""

from __future__ import annotations

import pytest

from enginetop.fleet.change import Verdict
from tuners.control.comparison import compare
from tuners.control.judge import Judgement
from tuners.control.observe import JUDGED, WITHIN, Mark

BLOCKS = 20


def _compared(canary: list[tuple[float, float]], baseline: list[tuple[float, float]]) -> Judgement:
    """Of the totals of judged requests and of those in time, at the end of each block."""
    marks = [
        Mark(60.0 * i, {"c": {JUDGED: own[0], WITHIN: own[1]}, "b": {JUDGED: other[0], WITHIN: other[1]}})
        for i, (own, other) in enumerate(zip(canary, baseline, strict=True))
    ]
    return compare(marks, ["c"], ["b"], alpha=0.05, margin=0.01)


def _grown(judged: float, within: float) -> list[tuple[float, float]]:
    return [(judged * i, within * i) for i in range(BLOCKS + 1)]


@pytest.mark.parametrize("anew", [2, 12, 19])
def test_a_baseline_that_was_listed_anew_and_counts_from_zero_is_counted_in_all_blocks(anew: int) -> None:
    """Its total at the end may be no higher than at the beginning, and the canary served no more than it."""
    baseline = _grown(100, 95)
    start = [(5000 + judged, 4750 + within) for judged, within in baseline[:anew]]
    found = _compared(_grown(100, 50), [*start, *baseline[: BLOCKS + 1 - anew]])
    assert found.verdict is Verdict.WORSE
    assert "requests than" not in found.why


@pytest.mark.parametrize(("own", "other"), [(1, 0), (0, 1), (1, 1), (30, 0)])
def test_more_requests_in_time_than_were_judged_end_nothing(own: int, other: int) -> None:
    """A page that was read between two counters, or one that lies."""
    sides = [_grown(100, 100), _grown(100, 100)]
    for side, more in zip(sides, (own, other), strict=True):
        side[BLOCKS:] = [(100.0 * BLOCKS, 100.0 * BLOCKS + more)]
    found = _compared(*sides)
    assert found.difference == 0.0
    assert found.verdict in (Verdict.NOT_WORSE, Verdict.INCONCLUSIVE)
