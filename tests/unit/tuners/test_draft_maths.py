"""Speculative decoding by numbers worked out by hand or in print."""

from __future__ import annotations

import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuners.draft_maths import (
    StepCost,
    Traffic,
    accepted_length,
    extrapolated,
    falls_from_position_to_position,
    luck_ratio,
    wilson,
)

MEASURED = (0.844, 0.599, 0.385, 0.271)


def geometric(acceptance: float, drafts: int) -> tuple[float, ...]:
    """Positions of which each is accepted with the same chance when the one before it was."""
    return tuple(acceptance**place for place in range(1, drafts + 1))


def speeds(positions: tuple[float, ...], cost_ratio: float) -> list[float]:
    """Speed by number of drafts, over none, with verification for free and drafts of this share of a step."""
    cost = StepCost(1.0, 0.0, cost_ratio)
    return [cost.tokens_per_second(positions, drafts, 1) for drafts in range(len(positions) + 1)]


@pytest.mark.parametrize(
    ("acceptance", "drafts", "tokens"),
    [(0.8, 4, 3.3616), (1.0, 4, 5.0), (0.75, 5, 3.288), (0.85, 5, 4.152)],  # (1 - .8^5) / (1 - .8), ...
)
def test_tokens_a_step_in_the_geometric_case(acceptance: float, drafts: int, tokens: float) -> None:
    assert accepted_length(geometric(acceptance, drafts), drafts) == pytest.approx(tokens, abs=5e-4)


@pytest.mark.parametrize(("acceptance", "ceiling"), [(0.7, 10 / 3), (0.8, 5.0), (0.9, 10.0)])
def test_the_ceiling_of_the_geometric_case(acceptance: float, ceiling: float) -> None:
    assert accepted_length(geometric(acceptance, 400), 400) == pytest.approx(ceiling)  # 1 / (1 - a)


def test_speed_in_the_geometric_case() -> None:
    assert speeds(geometric(0.8, 4), 0.05)[4] == pytest.approx(2.8013, abs=1e-4)  # 3.3616 / 1.2
    assert speeds(geometric(0.75, 5), 0.1)[5] == pytest.approx(2.19, abs=5e-3)
    assert speeds(geometric(0.85, 5), 0.1)[5] == pytest.approx(2.77, abs=5e-3)


@pytest.mark.parametrize(("cost", "best", "speed"), [(0.05, 8, 3.092), (0.1, 6, 2.470), (0.2, 4, 1.868)])
def test_the_best_k_falls_as_drafts_cost_more(cost: float, best: int, speed: float) -> None:
    found = speeds(geometric(0.8, 64), cost)
    assert found.index(max(found)) == best
    assert found[best] == pytest.approx(speed, abs=1e-3)


def test_length_and_acceptance_from_the_counters_of_positions() -> None:
    assert accepted_length(MEASURED, 4) == pytest.approx(3.099)  # 1 + .844 + .599 + .385 + .271
    assert sum(MEASURED) / 4 == pytest.approx(0.52475)
    assert accepted_length(MEASURED, 2) == pytest.approx(2.443)
    assert accepted_length(MEASURED, 0) == 1.0
    # .271 / .385 = .7039 goes on: .271 x .7039 = .1908, a guess, for one position and no more
    assert extrapolated(MEASURED) == pytest.approx(0.1908, abs=1e-4)
    assert accepted_length(MEASURED, 5) == pytest.approx(3.2898, abs=1e-4)
    with pytest.raises(ValueError, match="6 drafts: only 4 positions were observed"):
        accepted_length(MEASURED, 6)


@pytest.mark.parametrize(
    ("positions", "guess"),
    [
        ((), 0.0),
        ((0.6,), 0.36),
        ((0.5, 0.0), 0.0),
        # counts of one page that do not quite fit: a chance is 1 at most
        ((0.5, 0.0, 0.005), 0.005),
        ((0.5, 0.001, 0.009), 0.009),
    ],
)
def test_guesses_at_the_edges(positions: tuple[float, ...], guess: float) -> None:
    assert extrapolated(positions) == pytest.approx(guess)


def test_acceptance_that_rises_with_the_position_is_no_acceptance() -> None:
    assert falls_from_position_to_position(MEASURED)
    assert falls_from_position_to_position(())
    assert not falls_from_position_to_position((0.5, 0.6))


def test_the_marginal_rule() -> None:
    # c = .3: .385 / 2.443 = .1576 against .3 / 1.6 = .1875 -> stop at 2; the step before: .599/1.844 > .3/1.3
    one, two, three = speeds(MEASURED, 0.3)[1:4]
    assert one < two > three


@pytest.mark.parametrize(
    ("running", "expected", "best"),
    [
        (4, (327, 460, 503, 506, 493), 3),
        (32, (2299, 2945, 2996, 2850, 2650), 2),
        (256, (9357, 9076, 7883, 6765, 5848), 0),
    ],
)
def test_the_best_k_falls_with_the_batch(running: int, expected: tuple[int, ...], best: int) -> None:
    cost = StepCost(0.012, 0.00006, 0.001)
    found = [cost.tokens_per_second((0.55, 0.30, 0.17, 0.10), k, running) for k in range(5)]
    assert [round(speed) for speed in found] == list(expected)
    assert found.index(max(found)) == best


def test_wilson_by_hand() -> None:
    low, high = wilson(415, 1000)
    assert low == pytest.approx(0.385, abs=5e-4)
    assert high == pytest.approx(0.446, abs=5e-4)
    assert wilson(0, 0) == (0.0, 1.0)
    # about 400 drafts suffice for half a width of .05 in the worst case
    low, high = wilson(200, 400)
    assert (high - low) / 2 == pytest.approx(0.049, abs=5e-4)


def test_tpot_once_the_batch_has_settled() -> None:
    # 20 + 2 k ms and 50 us a token; 500 tokens/s out, 1000 tokens/s in, no drafts: load .05e-3 x 1500 = .075,
    # t = 20 / .925 = 21.62 ms = TPOT. With k = 1, p = .5: AL 1.5, verified 500 x 2 / 1.5 = 666.7,
    # load .08333, t = 22 / .91667 = 24 ms, TPOT 16 ms.
    cost = StepCost(0.020, 0.00005, 0.002)
    assert cost.load_ratio((0.5,), 0, Traffic(500, 1000)) == pytest.approx(0.075)
    assert cost.tpot_seconds((0.5,), 0, Traffic(500, 1000)) == pytest.approx(0.0216216, abs=1e-7)
    assert cost.tpot_seconds((0.5,), 1, Traffic(500, 1000)) == pytest.approx(0.016)
    assert cost.tpot_seconds((0.5,), 1, Traffic(20_000)) == math.inf


@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=8).map(lambda found: tuple(sorted(found, reverse=True))),
    st.floats(0.001, 0.1),
    st.floats(1e-6, 1e-4),
    st.floats(0, 3000),
)
def test_a_settled_batch_gives_its_own_step_time(
    positions: tuple[float, ...], base: float, token: float, generated: float
) -> None:
    """R = G t / AL put back into the step gives the same t."""
    cost, drafts = StepCost(base, token, 0.001), len(positions)
    tpot = cost.tpot_seconds(positions, drafts, Traffic(generated))
    if tpot < math.inf:
        running = generated * tpot
        step = base + 0.001 * drafts + token * running * (1 + drafts)
        assert step == pytest.approx(tpot * accepted_length(positions, drafts), rel=1e-6)


def test_the_luck_of_drafts_spreads_tpot() -> None:
    # .85 .72 .60 .50: E[h] 2.67, E[h^2] .85 + 3 x .72 + 5 x .60 + 7 x .50 = 9.51, variance 2.3811; of 300
    # tokens sqrt(2.3811 / 300 / 3.67) = .0465
    assert luck_ratio((0.85, 0.72, 0.60, 0.50), 4, 300) == pytest.approx(0.0465, abs=5e-5)
    # one draft, a coin of .35: sqrt(.35 x .65 / 260 / 1.35) = .02546, whatever is accepted beyond
    assert luck_ratio((0.35, 0.2), 1, 260) == pytest.approx(0.02546, abs=5e-6)
    assert luck_ratio((1.0, 1.0), 2, 100) == luck_ratio((0.5,), 0, 100) == luck_ratio((0.5,), 1, 0) == 0.0
    # simulated: of 260 tokens each
    luck, steps = random.Random(1), []
    for _ in range(3000):
        tokens, taken = 0, 0
        while tokens < 260:
            tokens, taken = tokens + 1 + (luck.random() < 0.35), taken + 1
        steps.append(taken)
    assert statistics.stdev(steps) / statistics.mean(steps) == pytest.approx(0.02546, rel=0.05)
