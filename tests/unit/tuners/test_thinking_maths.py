"""Thinking budgets by numbers worked out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuners.thinking_maths import (
    gqa_bytes_per_token,
    least_budget,
    mean_after,
    mla_bytes_per_token,
    resident_tokens,
    running_requests,
    sequences_that_fit,
    truncated_ratio,
    violated_ratio,
    within_max_tokens,
)

SAMPLES = (200, 400, 800, 1600, 3200, 6400, 12800)


def test_what_a_budget_cuts() -> None:
    assert sum(SAMPLES) / 7 == pytest.approx(3628.6, abs=0.05)
    assert mean_after(SAMPLES, 4096) == pytest.approx(2056.0)  # (200+400+800+1600+3200+4096+4096) / 7
    assert 1 - mean_after(SAMPLES, 4096) / (sum(SAMPLES) / 7) == pytest.approx(0.433, abs=5e-4)
    assert truncated_ratio(SAMPLES, 4096) == pytest.approx(2 / 7)


def test_the_least_budget_truncates_one_in_twenty() -> None:
    # 100 requests of 10, 20, ... 1000: five may be cut, the 95th has 950 -> 1024
    samples = [10 * n for n in range(1, 101)]
    assert least_budget(samples) == 1024
    assert least_budget(samples, 0.10) == 1024  # 900 -> 1024
    assert least_budget(samples, 0.25) == 768  # 750 -> 768
    assert least_budget([0] * 100) == 256


def test_room_for_the_answer() -> None:
    assert within_max_tokens(4096, 4096, 512) == 3584
    assert within_max_tokens(1024, 4096, 512) == 1024


def test_a_budget_in_force_has_slack() -> None:
    assert violated_ratio([1000, 1024, 1056, 1057], 1024) == 0.25


@pytest.mark.parametrize(
    ("layers", "heads", "tp", "expected"), [(32, 8, 1, 131_072), (80, 8, 1, 327_680), (80, 8, 16, 40_960)]
)
def test_kv_bytes_of_a_token(layers: int, heads: int, tp: int, expected: int) -> None:
    assert gqa_bytes_per_token(layers, heads, 128, 2, tp) == expected  # 2 x layers x heads x 128 x 2


def test_kv_bytes_of_a_token_with_latent_attention() -> None:
    assert mla_bytes_per_token(61, 576, 2) == 70_272


def test_capacity() -> None:
    tokens = 11_915 * 16
    assert tokens == 190_640
    assert resident_tokens(1500, 800) == 1900
    assert sequences_that_fit(tokens, 1500, 800) == pytest.approx(100.3, abs=0.05)
    before, after = sequences_that_fit(tokens, 1500, 4000), sequences_that_fit(tokens, 1500, 2400)
    assert before == pytest.approx(54.5, abs=0.05)
    assert after == pytest.approx(70.6, abs=0.05)
    assert after / before - 1 == pytest.approx(0.296, abs=5e-4)


def test_littles_law() -> None:
    assert running_requests(2, 0.5, 0.03, 4000) == 241
    assert running_requests(2, 0.5, 0.03, 2400) == 145


@given(st.lists(st.integers(0, 60_000), min_size=1, max_size=80), st.floats(0, 0.5))
def test_the_least_budget_keeps_its_promise(samples: list[int], most: float) -> None:
    budget = least_budget(samples, most)
    assert truncated_ratio(samples, budget) <= most + 1e-9
    assert budget == 256 or truncated_ratio(samples, budget - 256) > most - 1e-9
