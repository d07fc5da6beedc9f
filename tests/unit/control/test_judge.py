"""The judge: figures worked out in the reference text, edges, and error rates on synthetic blocks."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence

import pytest

from enginetop.fleet.change import Verdict
from tuners.control.judge import Block, judge, required_requests
from tuners.control.probability import binomial_tail, normal_quantile, t_cdf, t_quantile


def blocks(*rows: tuple[float, float, float, float]) -> tuple[Block, ...]:
    return tuple(Block(60.0 * i, 60.0 * (i + 1), *row) for i, row in enumerate(rows))


def drawn(
    seed: int,
    *,
    count: int = 30,
    requests: int = 240,
    attainment: float = 0.95,
    loss: float = 0.0,
    spread: float = 0.5,
    memory: float = 0.2,
    baselines: int = 2,
) -> tuple[Block, ...]:
    """Blocks of replicas whose odds of a miss drift (AR(1)), half in common, half each for itself."""
    source = random.Random(seed)
    fresh = math.sqrt(1 - memory * memory)

    def drift() -> list[float]:
        found = [source.gauss(0, 1)]
        while len(found) < count:
            found.append(memory * found[-1] + fresh * source.gauss(0, 1))
        return found

    common = drift()
    arms: list[list[tuple[int, int]]] = []
    for replica in range(1 + baselines):
        own = drift()
        arm = []
        for i in range(count):
            odds = math.log(attainment / (1 - attainment)) + spread * (common[i] + own[i]) / math.sqrt(2)
            ratio = 1 / (1 + math.exp(-odds)) - (loss if replica == 0 else 0.0)
            made = max(0, round(source.gauss(requests, math.sqrt(requests))))
            within = source.gauss(made * ratio, math.sqrt(made * ratio * max(0.0, 1 - ratio)))
            arm.append((made, min(made, max(0, round(within)))))
        arms.append(arm)
    return blocks(
        *(
            (
                arms[0][i][0],
                arms[0][i][1],
                sum(arm[i][0] for arm in arms[1:]),
                sum(arm[i][1] for arm in arms[1:]),
            )
            for i in range(count)
        )
    )


def verdicts(sets: Sequence[tuple[Block, ...]]) -> Counter[Verdict]:
    return Counter(judge(found, alpha=0.05, margin=0.01).verdict for found in sets)


@pytest.mark.parametrize(("within", "other_within"), [(0, 58), (65, 0), (0, 0), (65, 65), (0, 65), (65, 58)])
def test_the_difference_lies_within_its_bounds_where_nobody_or_everybody_misses(
    within: int, other_within: int
) -> None:
    found = judge(blocks(*[(65, within, 65, other_within)] * 10), alpha=0.05, margin=0.01)
    assert found.difference == pytest.approx((within - other_within) / 65)
    assert found.low is not None
    assert found.high is not None
    assert found.difference is not None
    assert found.low <= found.difference <= found.high


# C1 of the reference: 1860/2000 against 1900/2000 is z = -2.66, p = .0077 on both sides, .00385 on one, and
# the 95 % interval ends at -.53 points.
def test_two_proportions_of_the_reference() -> None:
    alike = blocks(*[(200, 186, 200, 190)] * 10)
    assert judge(alike, alpha=0.0045, margin=0.01).verdict is Verdict.WORSE
    assert judge(alike, alpha=0.0035, margin=0.01).verdict is Verdict.INCONCLUSIVE
    found = judge(alike, alpha=0.025, margin=0.01)
    assert found.difference == pytest.approx(-0.02)
    assert found.high == pytest.approx(-0.0053, abs=1e-3)


@pytest.mark.parametrize(
    ("counts", "alpha", "bounds"),
    [
        # Newcombe 1998, table II, example a: 56/70 - 48/80, 95 % on both sides, his method 10.
        ((70, 56, 80, 48), 0.025, (0.0524, 0.3339)),
        # A real run, 161/164 against 160/160. Score limits with z = 1.6449, z^2 = 2.7055: .9551 and .9927 of
        # the canary, 160/(160 + 2.7055) = .9834 and 1 of the baseline: -.0183 less .0266, and more by
        # sqrt(.0110^2 + .0166^2).
        ((164, 161, 160, 160), 0.05, (-0.0449, 0.0016)),
        # Nobody late: n/(n + z^2) of 100 and of 200 are .9737 and .9867.
        ((100, 100, 200, 200), 0.05, (-0.0263, 0.0133)),
    ],
)
def test_bounds_of_two_proportions(
    counts: tuple[float, float, float, float], alpha: float, bounds: tuple[float, float]
) -> None:
    own, own_within, other, other_within = (count / 10 for count in counts)
    found = judge(blocks(*[(own, own_within, other, other_within)] * 10), alpha=alpha, margin=0.01)
    assert (found.low, found.high) == pytest.approx(bounds, abs=6e-5)


# C2, and "about 5 900 requests an arm" for a margin of one point.
def test_sample_sizes_of_the_reference() -> None:
    assert required_requests(0.95, 0.02, 0.05) == 1469
    assert required_requests(0.95, 0.01, 0.05) == pytest.approx(5900, rel=0.01)
    assert required_requests(0.95, 0.01, 0.05, design_effect=2.0) == pytest.approx(11800, rel=0.01)


# Table values of Student's t (any statistics book), and the two closed forms: 1 and 2 degrees.
@pytest.mark.parametrize(
    ("probability", "degrees", "t"),
    [(0.95, 6, 1.943), (0.95, 10, 1.812), (0.975, 5, 2.571), (0.99, 29, 2.462), (0.05, 6, -1.943)],
)  # fmt: skip
def test_quantiles_of_t(probability: float, degrees: float, t: float) -> None:
    assert t_quantile(probability, degrees) == pytest.approx(t, abs=6e-4)


@pytest.mark.parametrize("t", [-7.0, -0.4, 0.0, 0.3, 1.0, 5.0, 80.0])
def test_t_of_one_and_two_degrees_in_closed_form(t: float) -> None:
    assert t_cdf(t, 1) == pytest.approx(0.5 + math.atan(t) / math.pi, abs=1e-10)
    assert t_cdf(t, 2) == pytest.approx(0.5 + t / (2 * math.sqrt(2 + t * t)), abs=1e-10)
    assert normal_quantile(0.975) == pytest.approx(1.959964, abs=1e-6)


def test_a_plain_gain_and_a_plain_loss() -> None:
    better = blocks(*[(200, 196, 400, 360)] * 30)
    worse = blocks(*[(200, 180, 400, 392)] * 30)
    assert judge(better, alpha=0.05, margin=0.01).verdict is Verdict.IMPROVED
    found = judge(worse, alpha=0.05, margin=0.01)
    assert found.verdict is Verdict.WORSE
    assert found.difference == pytest.approx(-0.08)
    assert "-8.00 points" in found.why


def test_blocks_without_any_spread_are_not_believed_beyond_chance() -> None:
    """One miss in fifty on one side only, the same in each block: no variance between blocks at all."""
    few = blocks(*[(5, 5, 5, 5)] * 29, (5, 4, 5, 5))
    assert judge(few, alpha=0.05, margin=0.01).verdict is Verdict.INCONCLUSIVE
    even = blocks(*[(10, 9, 20, 18)] * 30)
    found = judge(even, alpha=0.05, margin=0.01)
    assert found.verdict is Verdict.INCONCLUSIVE
    # 300 and 600 independent requests at .9: standard error of the difference sqrt(.09/300 + .09/600) =
    # .0212, times 1.645 is .0349
    assert (found.high, found.low) == pytest.approx((0.0349, -0.0349), abs=2.5e-3)


@pytest.mark.parametrize("count", [10, 30])
@pytest.mark.parametrize("late", [1, 10, 200])
def test_one_bad_minute_decides_nothing(count: int, late: int) -> None:
    """However many are late in it: it is one event. Nobody is late in any other minute on either side."""
    for bad in range(count):
        canary = [(200, 200 - late * (i == bad), 200, 200) for i in range(count)]
        baseline = [(200, 200, 200, 200 - late * (i == bad)) for i in range(count)]
        for rows in (canary, baseline):
            verdict = judge(blocks(*rows), alpha=0.05, margin=0.01).verdict
            assert verdict not in (Verdict.WORSE, Verdict.IMPROVED)


Rows = tuple[int, ...]
"""Of canary and baselines: how many of 200 requests are in time in each of ten blocks."""


@pytest.mark.parametrize(
    ("rows", "pooled", "verdict", "words"),
    [
        # one standard error of two ratios about .97 and 2000 requests each is half a point
        ((196, 196, 180), Verdict.IMPROVED, Verdict.NOT_WORSE, "; no gain without ill"),
        ((196, 196, 196, 160), Verdict.IMPROVED, Verdict.NOT_WORSE, "; no gain without ill"),
        ((188, 196, 180), Verdict.NOT_WORSE, Verdict.INCONCLUSIVE, "; a loss without ill"),
        ((180, 180, 196), Verdict.WORSE, Verdict.INCONCLUSIVE, "; no loss without ill"),
        ((196, 180, 180), Verdict.IMPROVED, Verdict.IMPROVED, ""),
        ((196, 180, 150), Verdict.IMPROVED, Verdict.IMPROVED, ""),
        ((180, 196, 196), Verdict.WORSE, Verdict.WORSE, ""),
        ((180, 196, 190, 196), Verdict.WORSE, Verdict.WORSE, ""),
        ((196, 196, 196), Verdict.NOT_WORSE, Verdict.NOT_WORSE, ""),
    ],
)
def test_no_verdict_hangs_on_one_baseline(rows: Rows, pooled: Verdict, verdict: Verdict, words: str) -> None:
    """The last baseline is `ill`."""
    own, *others = rows
    count = len(others)
    names = [*(f"b{i}" for i in range(count - 1)), "ill"]
    full = blocks(*[(200, own, 200 * count, sum(others))] * 10)
    without = {
        name: blocks(*[(200, own, 200 * (count - 1), sum(others) - left)] * 10)
        for name, left in zip(names, others, strict=True)
    }
    assert judge(full, alpha=0.05, margin=0.02).verdict is pooled
    found = judge(full, alpha=0.05, margin=0.02, without=without)
    assert found.verdict is verdict
    assert found.why.endswith(words or tuple("0123456789"))


def test_a_baseline_without_which_too_few_requests_are_left_is_not_left_out() -> None:
    full = blocks(*[(200, 196, 204, 180)] * 10)
    few = blocks(*[(200, 196, 4, 0)] * 10)
    assert judge(full, alpha=0.05, margin=0.01, without={"a": few, "b": full}).verdict is Verdict.IMPROVED


def test_both_arms_without_a_miss() -> None:
    plenty = blocks(*[(100, 100, 200, 200)] * 30)
    few = blocks(*[(2, 2, 4, 4)] * 30)
    assert judge(plenty, alpha=0.05, margin=0.01).verdict is Verdict.NOT_WORSE
    assert judge(few, alpha=0.05, margin=0.01).verdict is Verdict.INCONCLUSIVE
    assert judge(plenty, alpha=0.05, margin=0.01).design_effect is None


@pytest.mark.parametrize(
    "within",
    # of 6000 a side none, .5 % and 3 % in time, equal on both; the error of the difference of 180 and 180
    # is sqrt(2 x .0291 / 6000) = .0031, 1.645 times it .0051: a sixth of them, or half a point of all
    [0, 30, 180],
)
def test_where_hardly_anybody_is_in_time_nothing_is_told(within: int) -> None:
    found = judge(blocks(*[(200, within / 30, 200, within / 30)] * 30), alpha=0.05, margin=0.01)
    assert found.low is not None
    assert found.low > -0.01
    assert found.verdict is Verdict.INCONCLUSIVE


def test_a_tenth_of_what_few_attain_can_be_told() -> None:
    """Of 60 000 a side 3000 in time: the error of the difference is sqrt(2 x .0475 / 60000) = .00126, 1.645
    times it .00207: at most 4.1 % of them are lost.
    """
    found = judge(blocks(*[(2000, 100, 2000, 100)] * 30), alpha=0.05, margin=0.01)
    assert found.verdict is Verdict.NOT_WORSE
    assert found.low == pytest.approx(-0.041 * 0.05, rel=0.03)


@pytest.mark.parametrize(
    "found",
    [
        (),
        blocks(*[(0, 0, 0, 0)] * 30),
        blocks(*[(0, 0, 400, 380)] * 30),
        blocks(*[(200, 190, 0, 0)] * 30),
        blocks(*[(1, 1, 2, 2)] * 30),
        blocks(*[(200, 100, 400, 400)] * 7, *[(0, 0, 400, 400)] * 23),
    ],
    ids=["none", "idle", "canary idle", "baselines idle", "a trickle", "seven blocks with both"],
)
def test_too_little_traffic_is_inconclusive_and_said(found: tuple[Block, ...]) -> None:
    outcome = judge(found, alpha=0.05, margin=0.01)
    assert outcome.verdict is Verdict.INCONCLUSIVE
    assert "too little traffic" in outcome.why
    assert outcome.difference is None


def test_empty_blocks_weigh_nothing() -> None:
    full = drawn(3, count=20, loss=0.05)
    with_gaps = tuple(block for found in full for block in (found, Block(0, 0, 0, 0, 0, 0)))
    one, other = (judge(found, alpha=0.05, margin=0.01) for found in (full, with_gaps))
    assert one.difference == other.difference
    assert one.verdict is other.verdict is Verdict.WORSE


def test_the_design_effect_is_found() -> None:
    """Every block all in time or all late: 40 requests are then worth one."""
    source = random.Random(5)
    rows = [
        (40, 40 * (source.random() < 0.9), 4000, 3600)  # the baselines hold steady
        for _ in range(200)
    ]
    found = judge(blocks(*rows), alpha=0.05, margin=0.01)
    assert found.design_effect == pytest.approx(40, rel=0.5)


def test_error_rates_of_null_changes_and_power() -> None:
    """1000 null changes: at alpha .05 the exact binomial 99 % range of a count is 33 to 69."""
    null = verdicts([drawn(seed) for seed in range(1000)])
    assert 33 <= null[Verdict.IMPROVED] <= 69
    assert 33 <= null[Verdict.WORSE] <= 69
    harmful = verdicts([drawn(seed, loss=0.05) for seed in range(1000, 1060)])
    assert harmful[Verdict.WORSE] >= 57
    helpful = verdicts([drawn(seed, loss=-0.03) for seed in range(2000, 2030)])
    assert helpful[Verdict.IMPROVED] >= 25


def test_error_rates_where_few_minutes_have_all_the_misses() -> None:
    """One request in a thousand is late, most of them in a few minutes of one side."""
    null = verdicts([drawn(seed, attainment=0.999, spread=2.0) for seed in range(1000)])
    assert null[Verdict.IMPROVED] <= 69
    assert null[Verdict.WORSE] <= 69


@pytest.mark.parametrize("memory", [0.0, 0.4])
def test_blocks_that_remember_do_not_make_the_judge_rash(memory: float) -> None:
    null = verdicts([drawn(seed, memory=memory) for seed in range(5000, 5300)])
    # 300 at .05: 99.5 % one-sided upper limit of the count is 26
    assert null[Verdict.WORSE] <= 26
    assert null[Verdict.IMPROVED] <= 26


# (1/3)^10; 3 of 4 at one half is 5/16; 1 - (5/6)^4, de Mere's wager; the whole range.
@pytest.mark.parametrize(
    ("count", "trials", "probability", "tail"),
    [
        (10, 10, 1 / 3, 3**-10),
        (3, 4, 0.5, 5 / 16),
        (1, 4, 1 / 6, 0.5177469),
        (0, 9, 0.2, 1.0),
        (5, 4, 0.5, 0.0),
    ],
)
def test_tails_of_a_binomial(count: int, trials: int, probability: float, tail: float) -> None:
    assert binomial_tail(count, trials, probability) == pytest.approx(tail, rel=1e-6)
