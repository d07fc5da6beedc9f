"""The engine model on cases worked out by hand, and what holds for every engine and traffic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enginetop.fleet.snapshot import Slo
from enginetop.simulator.faults import outage
from enginetop.simulator.model import EngineModel
from enginetop.simulator.replica import SimulatedReplica
from enginetop.simulator.request import Request
from enginetop.simulator.scenario import EngineSettings, Lengths, ReplicaPlan, StepTime, Traffic
from enginetop.simulator.traffic import NO_PREFIX, DrawnRequest

TEN_MS = StepTime(base_ms=10.0, per_token_us=0.0, per_kv_token_ns=0.0)
SMALL = EngineSettings(
    model="m",
    max_model_len=160,
    gpus=1,
    kv_blocks=12,
    step=TEN_MS,
    max_num_batched_tokens=128,
    max_num_seqs=4,
)


class Script:
    """Arrivals that are written down."""

    def __init__(self, requests: Sequence[DrawnRequest]) -> None:
        self._requests = list(requests)

    @property
    def next_arrival_at(self) -> float:
        return self._requests[0].arrival_at if self._requests else math.inf

    def pop(self) -> DrawnRequest:
        return self._requests.pop(0)


def ask(
    arrival_at: float, prompt: int, output: int, *, prefix_tokens: int = 0, accepted: bytes = b""
) -> DrawnRequest:
    prefix = 7 if prefix_tokens else NO_PREFIX
    return DrawnRequest(
        arrival_at, prompt, output, prefix=prefix, prefix_tokens=prefix_tokens, accepted=accepted
    )


def run(engine: EngineSettings, *requests: DrawnRequest, to: float = 10.0) -> EngineModel:
    model = EngineModel(engine, Script(requests), Slo())
    model.advance(to)
    return model


def test_step_time_is_the_sum_of_its_four_parts() -> None:
    step = StepTime(base_ms=12.0, per_token_us=6.0, per_kv_token_ns=4.0, per_draft_ms=1.0)
    # 12 + 2048 x 0.006 + 100000 x 0.000004 + 4 x 1 = 28.688 ms
    assert step.seconds(2048, 100_000, 4) == pytest.approx(0.028688)
    assert step.slowed(2.0).seconds(2048, 100_000, 4) == pytest.approx(0.057376)


def test_a_long_prompt_is_computed_in_chunks_of_the_budget() -> None:
    engine = replace(
        SMALL,
        max_num_batched_tokens=64,
        step=StepTime(base_ms=10.0, per_token_us=1000.0, per_kv_token_ns=0.0),
    )
    model = run(engine, ask(1.0, prompt=100, output=3))
    (request,) = model.finished
    # 64 tokens in 74 ms, 36 in 46 ms, then two steps of one token in 11 ms each.
    assert [step.seconds for step in model.steps] == pytest.approx([0.074, 0.046, 0.011, 0.011])
    assert request.first_scheduled_at == 1.0
    assert request.ttft_seconds == pytest.approx(0.120)
    assert request.tpot_seconds == pytest.approx(0.011)
    assert [step.tokens for step in model.steps] == [0, 101, 1, 1]


def test_a_prefix_in_the_cache_is_not_computed() -> None:
    first, second = (ask(at, prompt=100, output=2, prefix_tokens=48) for at in (0.0, 1.0))
    model = run(SMALL, first, second, to=0.5)
    assert model.metrics.prefix_hits == 0
    assert model.kv_usage_ratio == 0.0, "what is only cached is free"
    model.advance(1.005)
    # 52 own tokens and the next one need 4 blocks of 16, beside the 3 of the prefix.
    assert model.kv_usage_ratio == pytest.approx(7 / 12)
    model.advance(2.0)
    assert [request.first_cached_tokens for request in model.finished] == [0, 48]
    assert model.metrics.iteration_tokens.sum == (100 + 2) + (52 + 2)
    assert model.metrics.prompt_tokens == 200
    assert model.metrics.prompt_tokens_cached == 48


def test_a_prefix_is_shared_while_its_first_request_runs() -> None:
    """100 + 100 tokens and their answers need 14 blocks of 16, with three shared 11: all of 12 but one."""
    one, other = (ask(at, prompt=100, output=8, prefix_tokens=48) for at in (0.0, 0.02))
    model = run(SMALL, one, other, to=0.025)
    assert model.requests_running == 2
    assert model.kv_usage_ratio == pytest.approx(11 / 12)
    model.advance(1.0)
    assert model.metrics.preemptions == 0
    assert model.kv_usage_ratio == 0.0


def test_a_cached_prefix_makes_way_for_others() -> None:
    """The second request needs 10 of 12 blocks (159 + 1 tokens): of the three cached ones one is taken."""
    asked = [
        ask(0.0, prompt=50, output=2, prefix_tokens=48),
        ask(1.0, prompt=157, output=2),
        ask(2.0, prompt=50, output=2, prefix_tokens=48),
        ask(3.0, prompt=50, output=2, prefix_tokens=48),
    ]
    model = run(SMALL, *asked)
    assert [request.first_cached_tokens for request in model.finished] == [0, 0, 32, 48]


def test_cost_of_the_kv_tokens_counts_the_cached_ones_too() -> None:
    engine = replace(SMALL, step=StepTime(base_ms=0.0, per_token_us=0.0, per_kv_token_ns=1e6))
    first, second = (ask(at, prompt=100, output=4, prefix_tokens=48) for at in (0.0, 1.0))
    model = run(engine, first, second)
    # In the prefill step 48 tokens are there; then 100 + 1, + 2, + 3, at 1 ms a token.
    later = [step.seconds for step in model.steps][4:]
    assert later == pytest.approx([0.048, 0.101, 0.102, 0.103])


def test_a_request_that_arrives_within_a_step_waits_for_its_end() -> None:
    model = run(SMALL, ask(1.0, prompt=16, output=10), ask(1.045, prompt=16, output=2))
    first, late = sorted(model.finished, key=lambda request: request.drawn.arrival_at)
    assert first.ttft_seconds == pytest.approx(0.010)
    assert first.decode_seconds == pytest.approx(0.090)
    assert late.queue_seconds == pytest.approx(0.005)
    assert late.first_token_at == pytest.approx(1.060)


def test_the_youngest_is_preempted_and_computed_anew() -> None:
    """Two requests of 60 + 40 tokens in 12 blocks of 16.

    Both get their first token at 10 ms. With 36 tokens each (360 ms) they hold 96 of 96 + 96 slots: neither
    has room for one more, and the second has to go. The first ends with 40 tokens at 400 ms; the second is
    computed again in the step to 410 ms, which yields its 37th token, and ends at 440 ms.
    """
    one, other = ask(0.0, prompt=60, output=40), ask(0.0, prompt=60, output=40)
    model = run(SMALL, one, other, to=0.395)
    assert model.requests_running == 1
    assert [request.generated_tokens for request in model.waiting] == [36]
    model.advance(10.0)
    first, second = model.finished
    assert (first.drawn, second.drawn) == (one, other)
    assert first.drawn is one
    assert first.preemptions == 0
    assert first.last_token_at == pytest.approx(0.400)
    assert second.preemptions == 1
    assert second.last_token_at == pytest.approx(0.440)
    assert second.gaps_seconds == pytest.approx([0.050])
    assert second.queue_seconds == 0.0
    assert model.metrics.preemptions == 1
    assert model.metrics.prompt_tokens == 120
    assert model.metrics.iteration_tokens.sum == 120 + 80
    assert model.kv_usage_ratio == 0.0


def test_a_last_token_may_come_from_computing_anew() -> None:
    """The second request as above, with one token missing when it is preempted at 360 ms."""
    model = run(SMALL, ask(0.0, prompt=60, output=40), ask(0.0, prompt=60, output=37))
    _, second = model.finished
    assert second.last_token_at == pytest.approx(0.410)
    assert second.tpot_seconds == pytest.approx(0.400 / 36)
    assert model.steps[-1].tokens == 1


def test_a_preempted_request_goes_first_and_pays_for_all_of_its_context() -> None:
    """As above at 1 ms a token, with a third request that waits for blocks all the while."""
    engine = replace(SMALL, step=StepTime(base_ms=0.0, per_token_us=1000.0, per_kv_token_ns=0.0))
    asked = [ask(0.0, prompt=60, output=40), ask(0.0, prompt=60, output=40), ask(0.0, prompt=100, output=2)]
    model = run(engine, *asked)
    assert [request.drawn for request in model.finished] == asked
    steps = [round(step.seconds * 1e3) for step in model.steps]
    # Both prompts, 35 steps of two, four of one until the first has ended. The second's 96 tokens leave room
    # for 32 of the third's prompt in the same budget, but no blocks for it. Its three last steps, the third.
    assert steps == [120] + [2] * 35 + [1] * 4 + [96] + [1] * 3 + [100, 1]


def test_a_draft_step_yields_what_is_accepted_and_one_more() -> None:
    engine = replace(SMALL, num_speculative_tokens=2, acceptance=(0.5, 0.2))
    model = run(engine, ask(0.0, prompt=16, output=6, accepted=bytes([2, 0, 1, 2, 2])))
    (request,) = model.finished
    # 1 from the prefill, then 3, 1 and, cut short by the end, 1 of 2.
    assert [step.tokens for step in model.steps] == [17, 3, 1, 1]
    assert request.decode_steps == 3
    assert model.metrics.speculation.drafts == 3
    assert model.metrics.speculation.accepted_at == [2, 1]
    assert model.metrics.generation_tokens == 6
    assert model.metrics.inter_token_latency.count == 3


def test_more_than_max_num_seqs_wait() -> None:
    engine = replace(SMALL, max_num_seqs=2)
    model = run(engine, *(ask(0.0, prompt=10, output=20) for _ in range(3)), to=0.1)
    assert (model.requests_running, len(model.waiting)) == (2, 1)


def test_an_idle_engine_takes_no_steps() -> None:
    model = run(SMALL, ask(5.0, prompt=10, output=2), to=4.9)
    assert not model.steps
    model.advance(5.02)
    assert model.busy_seconds == pytest.approx(0.02)


PLANS = st.builds(
    ReplicaPlan,
    engine=st.builds(
        lambda spec, blocks, seqs, budget: EngineSettings(
            model="m",
            max_model_len=2048,
            gpus=1,
            kv_blocks=blocks,
            step=StepTime(8.0, 30.0, 30.0, 1.0),
            max_num_seqs=seqs,
            max_num_batched_tokens=max(budget, seqs * (1 + len(spec))),
            num_speculative_tokens=len(spec),
            acceptance=tuple(sorted(spec, reverse=True)),
        ),
        spec=st.lists(st.floats(0.0, 1.0), max_size=4),
        blocks=st.integers(140, 900),
        seqs=st.integers(1, 64),
        budget=st.integers(64, 2048),
    ),
    traffic=st.builds(
        Traffic,
        requests_per_second=st.floats(0.2, 8.0),
        prompt_tokens=st.builds(Lengths, st.floats(1.0, 700.0), st.floats(0.0, 1.5)),
        answer_tokens=st.builds(Lengths, st.floats(1.0, 300.0), st.floats(0.0, 1.5)),
        shared_prefix_tokens=st.sampled_from([0, 10, 64, 200]),
        shared_prefix_ratio=st.floats(0.0, 1.0),
        max_tokens=st.integers(2, 1024),
        abort_ratio=st.floats(0.0, 0.5),
    ),
)


@given(plan=PLANS, cuts=st.lists(st.floats(0.0, 25.0), max_size=30), seed=st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_the_outcome_does_not_depend_on_when_one_looks(
    plan: ReplicaPlan, cuts: list[float], seed: int
) -> None:
    plan = plan.with_faults(outage(at_seconds=12.0, every_seconds=60.0, for_seconds=3.0))
    often, once = (SimulatedReplica("r", plan, Slo(), seed, 1.7e9) for _ in range(2))
    for cut in sorted(cuts):
        often.advance(cut)
    often.advance(25.0)
    once.advance(25.0)
    assert once.page() is not None
    assert often.page() == once.page()


def _in_order(request: Request) -> bool:
    moments = (
        request.drawn.arrival_at,
        request.first_scheduled_at,
        request.first_token_at,
        request.last_token_at,
    )
    known = [moment for moment in moments if moment is not None]
    return known == sorted(known) and moments[len(known) :] == (None,) * (4 - len(known))


@given(plan=PLANS, seed=st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_limits_are_kept_and_nobody_is_lost(plan: ReplicaPlan, seed: int) -> None:
    # A step of one millisecond a scheduled token shows how many were scheduled.
    step = StepTime(base_ms=1.0, per_token_us=1000.0, per_kv_token_ns=0.0)
    plan = plan.with_engine(step=step)
    replica = SimulatedReplica("r", plan, Slo(), seed, 0.0)
    engine = replica.engine
    assert engine is not None
    for second in (1.0, 3.0, 7.0, 15.0, 30.0):
        replica.advance(second)
        unfinished = engine.unfinished()
        assert engine.requests_running <= plan.engine.max_num_seqs
        assert 0.0 <= engine.kv_usage_ratio <= 1.0
        held = sum(request.blocks for request in unfinished)
        # blocks of the shared prefix are nobody's own: how many of them are cached depends on all before
        shared = plan.traffic.shared_prefix_tokens // 16 if any(r.holds_prefix for r in unfinished) else 0
        used = engine.kv_usage_ratio * plan.engine.kv_blocks
        assert held - 1e-6 <= used <= held + shared + 1e-6
        everyone = [*engine.finished, *unfinished]
        assert all(map(_in_order, everyone))
        assert all(r.generated_tokens == r.output_tokens for r in engine.finished)
        assert all(r.generated_tokens < r.output_tokens for r in unfinished)
        arrivals = sorted(request.drawn.arrival_at for request in everyone)
        scheduled = sorted(
            (r.first_scheduled_at, r.drawn.arrival_at) for r in everyone if r.first_scheduled_at is not None
        )
        assert [arrival for _, arrival in scheduled] == arrivals[: len(scheduled)], "first come, first served"
    most = max((step.seconds for step in engine.steps), default=0.0)
    assert most <= (plan.engine.max_num_batched_tokens + 1.0) / 1e3 + 1e-9
