"""The drawn requests follow the numbers of their traffic, and their seed alone."""

from __future__ import annotations

import itertools
import math
import statistics
from dataclasses import replace

import pytest

from enginetop.simulator.scenario import EngineSettings, Lengths, StepTime, Traffic
from enginetop.simulator.traffic import DrawnRequest, RequestSource

ENGINE = EngineSettings(
    model="m",
    max_model_len=8192,
    gpus=1,
    kv_blocks=1000,
    step=StepTime(10.0, 10.0, 10.0),
    num_speculative_tokens=3,
    acceptance=(0.8, 0.6, 0.2),
)
TRAFFIC = Traffic(
    requests_per_second=4.0,
    prompt_tokens=Lengths(500, 0.8),
    answer_tokens=Lengths(100, 0.5),
    reasoning_tokens=Lengths(200, 0.5),
    shared_prefix_tokens=330,
    shared_prefix_ratio=0.25,
    max_tokens=1024,
    abort_ratio=0.1,
)
MANY = 4000


def drawn(traffic: Traffic = TRAFFIC, engine: EngineSettings = ENGINE, seed: str = "s") -> list[DrawnRequest]:
    source = RequestSource(traffic, engine, seed)
    return [source.pop() for _ in range(MANY)]


@pytest.fixture(scope="module")
def requests() -> list[DrawnRequest]:
    return drawn()


def share(hits: int, of: int, expected: float) -> None:
    """`hits` lies within four standard errors of what a coin of `expected` gives."""
    assert abs(hits / of - expected) < 4 * math.sqrt(expected * (1 - expected) / of)


def test_equal_seeds_draw_equal_requests(requests: list[DrawnRequest]) -> None:
    assert drawn() == requests
    assert drawn(seed="t") != requests


def test_arrivals_are_poisson(requests: list[DrawnRequest]) -> None:
    moments = [request.arrival_at for request in requests]
    gaps = [later - earlier for earlier, later in itertools.pairwise(moments)]
    assert min(gaps) >= 0.0
    # Mean and standard deviation of an exponential are equal: 1/4 s, within four standard errors.
    assert statistics.mean(gaps) == pytest.approx(0.25, abs=4 * 0.25 / math.sqrt(MANY))
    assert statistics.stdev(gaps) == pytest.approx(0.25, rel=0.15)


def test_a_wave_moves_the_rate_and_keeps_its_mean() -> None:
    moments = [r.arrival_at for r in drawn(replace(TRAFFIC, wave_ratio=1.0, wave_period_seconds=100.0))]
    whole = int(moments[-1] // 100)
    assert MANY / moments[-1] == pytest.approx(4.0, rel=0.1)
    folded = [0] * 10
    for moment in moments:
        if moment < whole * 100:
            folded[int(moment % 100 // 10)] += 1
    # In ten parts of a full sine wave the busiest sees over 1.9 and the quietest under 0.1 of the mean.
    mean = sum(folded) / 10
    assert max(folded) > 1.6 * mean
    assert min(folded) < 0.4 * mean


def test_lengths_are_lognormal_around_their_median(requests: list[DrawnRequest]) -> None:
    alone = [request.prompt_tokens for request in requests if not request.cached_tokens]
    share(sum(length <= 500 for length in alone), len(alone), 0.5)
    # One sigma above the median lies at 500 x e^0.8 = 1113 tokens.
    share(sum(length <= 1112 for length in alone), len(alone), 0.8413)
    reasoning = [r.reasoning_tokens for r in requests if r.finish_reason != "abort"]
    share(sum(length <= 200 for length in reasoning), len(reasoning), 0.5)


def test_a_shared_prefix_is_cached_in_whole_blocks(requests: list[DrawnRequest]) -> None:
    cached = [request for request in requests if request.cached_tokens]
    share(len(cached), MANY, 0.25)
    # 330 tokens hold 20 whole blocks of 16.
    assert {request.cached_tokens for request in cached} == {320}
    assert all(request.prompt_tokens > 330 for request in cached)


def test_requests_end_as_they_should(requests: list[DrawnRequest]) -> None:
    share(sum(request.finish_reason == "abort" for request in requests), MANY, 0.1)
    for request in requests:
        assert 2 <= request.output_tokens <= 1024
        assert 0 <= request.reasoning_tokens <= request.output_tokens
        assert request.prompt_tokens + 1024 <= ENGINE.max_model_len
        if request.finish_reason == "length":
            assert request.output_tokens == 1024
    assert {request.finish_reason for request in requests} == {"stop", "length", "abort"}


def test_acceptance_by_position_is_unconditional(requests: list[DrawnRequest]) -> None:
    steps = [accepted for request in requests for accepted in request.accepted]
    for position, expected in enumerate(ENGINE.acceptance):
        share(sum(accepted > position for accepted in steps), len(steps), expected)


def test_draft_steps_suffice_for_the_output(requests: list[DrawnRequest]) -> None:
    assert all(
        1 + len(request.accepted) + sum(request.accepted) >= request.output_tokens for request in requests
    )


def test_no_speculation_and_no_reasoning() -> None:
    engine = replace(ENGINE, num_speculative_tokens=0, acceptance=())
    plain = drawn(replace(TRAFFIC, reasoning_tokens=Lengths(0.0, 0.0)), engine)
    assert {request.accepted for request in plain} == {b""}
    assert {request.reasoning_tokens for request in plain} == {0}
