"""The drawn requests follow the numbers of their traffic, and their seed alone."""

from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter
from dataclasses import replace

import pytest

from enginetop.simulator.request import Request
from enginetop.simulator.scenario import Arrival, EngineSettings, Lengths, StepTime, Traffic
from enginetop.simulator.traffic import NO_PREFIX, DrawnRequest, RequestSource

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


def moments_of(**changes: object) -> list[float]:
    return [request.arrival_at for request in drawn(replace(TRAFFIC, **changes))]  # type: ignore[arg-type]


def test_a_wave_moves_the_rate_and_keeps_its_mean() -> None:
    moments = moments_of(arrival=Arrival.DIURNAL, wave_ratio=1.0, wave_period_seconds=100.0)
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


def test_bursts_keep_the_mean_and_bunch_the_requests() -> None:
    traffic = replace(
        TRAFFIC, arrival=Arrival.BURSTY, burst_ratio=4.0, burst_seconds=0.5, requests_per_second=20.0
    )
    moments = [request.arrival_at for request in drawn(traffic)]
    moments += [moments[-1] + request.arrival_at for request in drawn(traffic, seed="u")]
    assert len(moments) / moments[-1] == pytest.approx(20.0, rel=0.2)
    fifths = Counter(int(5 * moment) for moment in moments)
    counts = [fifths[fifth] for fifth in range(int(5 * moments[-1]))]
    # Poisson counts vary as much as their mean of 4; here they are 16 in 1/8 and 16/7 in 7/8 of the time.
    assert statistics.variance(counts) > 3 * statistics.mean(counts)


def test_a_share_of_the_rate_and_a_surge() -> None:
    source = RequestSource(TRAFFIC, ENGINE, "s", share=0.25)
    moments = [source.pop().arrival_at for _ in range(MANY)]
    assert MANY / moments[-1] == pytest.approx(1.0, rel=4 / math.sqrt(MANY))
    source.clock.surge = 5.0
    source.pop()
    later = [source.pop().arrival_at for _ in range(MANY)]
    assert MANY / (later[-1] - later[0]) == pytest.approx(5.0, rel=4 / math.sqrt(MANY))


def test_some_prompts_are_long() -> None:
    traffic = replace(
        TRAFFIC, long_ratio=0.05, long_prompt_tokens=Lengths(5000, 0.0), shared_prefix_ratio=0.0
    )
    share(sum(request.prompt_tokens == 5000 for request in drawn(traffic)), MANY, 0.05)


def test_prefixes_are_drawn_evenly() -> None:
    chosen = Counter(r.prefix for r in drawn(replace(TRAFFIC, shared_prefixes=4)) if r.prefix != NO_PREFIX)
    assert set(chosen) == {0, 1, 2, 3}
    share(chosen[2], chosen.total(), 0.25)


def test_the_requests_do_not_depend_on_the_engine(requests: list[DrawnRequest]) -> None:
    other = replace(
        ENGINE,
        num_speculative_tokens=1,
        max_num_batched_tokens=4096,
        thinking_token_budget=128,
        kv_blocks=900,
    )
    assert [replace(r, accepted=b"") for r in drawn(engine=other)] == [
        replace(r, accepted=b"") for r in requests
    ]


def test_lengths_are_lognormal_around_their_median(requests: list[DrawnRequest]) -> None:
    alone = [request.prompt_tokens for request in requests if request.prefix == NO_PREFIX]
    share(sum(length <= 500 for length in alone), len(alone), 0.5)
    # One sigma above the median lies at 500 x e^0.8 = 1113 tokens.
    share(sum(length <= 1112 for length in alone), len(alone), 0.8413)
    reasoning = [request.reasoning_tokens for request in requests]
    share(sum(length <= 200 for length in reasoning), len(reasoning), 0.5)


def test_a_shared_prefix_is_whole_blocks(requests: list[DrawnRequest]) -> None:
    sharing = [request for request in requests if request.prefix != NO_PREFIX]
    share(len(sharing), MANY, 0.25)
    # 330 tokens hold 20 whole blocks of 16.
    assert {request.prefix_tokens for request in sharing} == {320}
    assert all(request.prompt_tokens > 330 for request in sharing)


def test_requests_end_as_they_should(requests: list[DrawnRequest]) -> None:
    share(sum(request.abort_point is not None for request in requests), MANY, 0.1)
    ended = [Request(request) for request in requests]
    for request in ended:
        drawn = request.drawn
        assert drawn.prompt_tokens + 1024 <= ENGINE.max_model_len
        assert 2 <= request.output_tokens <= 1024
        assert 0 <= request.reasoning_tokens <= request.output_tokens
        whole = min(drawn.reasoning_tokens + drawn.answer_tokens, 1024)
        if drawn.abort_point is None:
            assert request.output_tokens == whole
            assert request.finish_reason == ("length" if whole == 1024 else "stop")
        else:
            assert request.finish_reason == "abort"
            assert request.output_tokens <= whole
    assert {request.finish_reason for request in ended} == {"stop", "length", "abort"}


@pytest.mark.parametrize(
    ("budget", "reasoning", "output", "truncated"),
    [(-1, 500, 600, False), (500, 500, 600, False), (200, 200, 300, True), (0, 0, 100, True)],
)
def test_a_thinking_budget_cuts_the_thinking_alone(
    budget: int, reasoning: int, output: int, truncated: bool
) -> None:
    request = Request(
        DrawnRequest(0.0, 10, answer_tokens=100, reasoning_tokens=500), thinking_token_budget=budget
    )
    assert (request.reasoning_tokens, request.output_tokens, request.truncated) == (
        reasoning,
        output,
        truncated,
    )


def test_acceptance_by_position_is_unconditional(requests: list[DrawnRequest]) -> None:
    steps = [accepted for request in requests for accepted in request.accepted]
    for position, expected in enumerate(ENGINE.acceptance):
        share(sum(accepted > position for accepted in steps), len(steps), expected)


def test_draft_steps_suffice_for_the_output(requests: list[DrawnRequest]) -> None:
    assert all(
        1 + len(request.accepted) + sum(request.accepted) >= Request(request).output_tokens
        for request in requests
    )


def test_no_speculation_and_no_reasoning() -> None:
    engine = replace(ENGINE, num_speculative_tokens=0, acceptance=())
    plain = drawn(replace(TRAFFIC, reasoning_tokens=Lengths(0.0, 0.0)), engine)
    assert {request.accepted for request in plain} == {b""}
    assert {request.reasoning_tokens for request in plain} == {0}
