"""Live knobs on the engine itself: their bounds, and that they take effect."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enginetop.fleet.errors import ConfigError
from enginetop.fleet.snapshot import Slo
from enginetop.simulator.cases import QWEN_ENGINE
from enginetop.simulator.live_knobs import KnobBoundsError, LiveKnobs, UnknownKnobError
from enginetop.simulator.model import EngineModel
from enginetop.simulator.replica import SimulatedReplica
from enginetop.simulator.scenario import EngineSettings, Lengths, ReplicaPlan, Traffic

ACCEPTANCE = (0.8, 0.6, 0.4, 0.3)
PLAN = ReplicaPlan(
    QWEN_ENGINE,
    Traffic(
        requests_per_second=3.0,
        prompt_tokens=Lengths(2000, 0.7),
        answer_tokens=Lengths(150, 0.6),
        reasoning_tokens=Lengths(300, 0.8),
    ),
).with_engine(max_num_seqs=32, num_speculative_tokens=4, acceptance=ACCEPTANCE)


def living(plan: ReplicaPlan = PLAN, to: float = 40.0) -> tuple[SimulatedReplica, EngineModel]:
    replica = SimulatedReplica("r", plan, Slo(), seed=2, epoch=0.0)
    replica.advance(to)
    assert replica.engine is not None
    return replica, replica.engine


def bounds(engine: EngineModel | SimulatedReplica) -> dict[str, tuple[int, int]]:
    return {state.name: (state.min, state.max) for state in engine.knobs()}


def test_bounds_are_those_of_the_companion() -> None:
    _, engine = living(to=0.0)
    # 32 x (1 + 4) tokens are the least that a decode step may need.
    assert bounds(engine) == {
        "max_num_batched_tokens": (160, 2048),
        "max_num_seqs": (1, 32),
        "num_speculative_tokens": (0, 4),
        "thinking_token_budget": (-1, 32768),
    }
    engine.set_knob("num_speculative_tokens", 1)
    engine.set_knob("max_num_seqs", 16)
    engine.set_knob("max_num_batched_tokens", 40)
    # 40 tokens are room for 20 sequences with one draft, or for 16 of them with one draft each.
    assert bounds(engine)["max_num_batched_tokens"] == (32, 2048)
    assert bounds(engine)["max_num_seqs"] == (1, 20)
    assert bounds(engine)["num_speculative_tokens"] == (0, 1)


def test_what_is_out_of_bounds_changes_nothing() -> None:
    _, engine = living(to=0.0)
    before = engine.knobs()
    for name, value in (
        ("max_num_batched_tokens", 159),
        ("max_num_batched_tokens", 2049),
        ("max_num_seqs", 0),
        ("max_num_seqs", 33),
        ("num_speculative_tokens", 5),
        ("thinking_token_budget", -2),
    ):
        with pytest.raises(KnobBoundsError):
            engine.set_knob(name, value)
    with pytest.raises(UnknownKnobError):
        engine.set_knob("max_model_len", 5)
    assert engine.knobs() == before


def test_an_engine_without_drafts_has_no_knob_for_them() -> None:
    _, engine = living(PLAN.with_engine(num_speculative_tokens=0), to=0.0)
    assert "num_speculative_tokens" not in bounds(engine)


def test_a_lower_budget_bounds_the_steps_that_follow() -> None:
    plan = PLAN.with_engine(num_speculative_tokens=0)
    _, engine = living(plan)
    step = plan.engine.step
    full = step.base_ms + step.per_token_us * 1.9
    assert max(s.seconds for s in engine.steps) * 1e3 > full
    engine.set_knob("max_num_batched_tokens", 256)
    done = len(engine.steps)
    engine.advance(80.0)
    # 256 tokens at 55 us, and at most the whole KV cache at 50 ns a token.
    longest = max(s.seconds for s in list(engine.steps)[done + 1 :])
    assert longest * 1e3 <= 12.0 + 256 * 0.055 + plan.engine.kv_capacity_tokens * 50e-6
    assert longest * 1e3 < full


def test_fewer_sequences_drain_naturally() -> None:
    replica, engine = living(PLAN.with_traffic(requests_per_second=8.0), to=30.0)
    assert engine.requests_running == 32
    engine.set_knob("max_num_seqs", 8)
    assert engine.requests_running == 32
    # The running ones still decode in every step, so the budget's floor is theirs.
    assert bounds(engine)["max_num_batched_tokens"][0] == 32 * 5
    seen = [engine.requests_running]
    while seen[-1] > 8:
        replica.advance(30.0 + len(seen) * 0.5)
        seen.append(engine.requests_running)
        assert len(seen) < 200
    assert seen == sorted(seen, reverse=True)
    assert engine.metrics.preemptions == 0
    assert bounds(engine)["max_num_batched_tokens"][0] == 8 * 5


def test_shorter_drafts_keep_the_chance_of_each_position() -> None:
    replica, engine = living()
    engine.set_knob("num_speculative_tokens", 2)
    counts = engine.metrics.speculation
    drafts, tokens, accepted = counts.drafts, counts.draft_tokens, list(counts.accepted_at)
    assert tokens == 4 * drafts
    replica.advance(100.0)
    more = counts.drafts - drafts
    assert counts.draft_tokens - tokens == 2 * more
    gained = [later - earlier for later, earlier in zip(counts.accepted_at, accepted, strict=True)]
    assert gained[0] / more == pytest.approx(0.8, abs=0.02)
    assert gained[1] / more == pytest.approx(0.6, abs=0.02)
    assert gained[2:] == [0, 0]


def test_no_drafts_freeze_their_counters_and_cost_nothing() -> None:
    replica, engine = living()
    engine.set_knob("num_speculative_tokens", 0)
    counts = engine.metrics.speculation
    frozen = (counts.drafts, counts.draft_tokens, list(counts.accepted_at))
    steps, generated = len(engine.steps), engine.metrics.generation_tokens
    replica.advance(60.0)
    assert (counts.drafts, counts.draft_tokens, list(counts.accepted_at)) == frozen
    decoded = list(engine.steps)[steps:]
    assert engine.metrics.generation_tokens - generated <= sum(s.decoding for s in decoded) + len(
        engine.finished
    ) + len(engine.unfinished())
    engine.set_knob("num_speculative_tokens", 4)
    replica.advance(90.0)
    assert counts.drafts > frozen[0]
    assert counts.draft_tokens - frozen[1] == 4 * (counts.drafts - frozen[0])


def test_a_thinking_budget_holds_for_those_who_come_later() -> None:
    replica, engine = living()
    engine.set_knob("thinking_token_budget", 128)
    replica.advance(120.0)
    early = [r for r in engine.finished if r.drawn.arrival_at <= 40.0]
    late = [r for r in engine.finished if r.drawn.arrival_at > 41.0]
    assert max(r.reasoning_tokens for r in early) > 1000
    assert max(r.reasoning_tokens for r in late) == 128
    cut = [r for r in late if r.drawn.reasoning_tokens > 128]
    assert all(r.truncated for r in cut)
    # The median is 300 and sigma 0.8: 128 tokens lie 1.06 sigma below, so 86 % are cut.
    assert len(cut) / len(late) == pytest.approx(0.857, abs=4 * math.sqrt(0.857 * 0.143 / len(late)))
    assert replica.truth.truncated == sum(r.truncated for r in engine.finished)


def test_a_raise_needs_a_restart_with_its_down_time_and_a_cold_cache() -> None:
    plan = PLAN.with_engine(restart_seconds=15.0).with_traffic(
        shared_prefix_tokens=1024, shared_prefix_ratio=1.0
    )
    replica, engine = living(plan)
    with pytest.raises(KnobBoundsError):
        engine.set_knob("max_num_batched_tokens", 4096)
    replica.restart(max_num_batched_tokens=4096)
    assert replica.engines == ()
    assert replica.knobs() == ()
    replica.advance(54.9)
    assert replica.page() is None
    replica.advance(60.0)
    assert bounds(replica)["max_num_batched_tokens"] == (160, 4096)
    assert replica.engine is not None
    first, *_ = sorted(replica.engine.finished, key=lambda r: r.drawn.arrival_at)
    assert first.first_cached_tokens == 0
    assert replica.life_at == 55.0


def test_a_restart_with_values_that_cannot_be_started_is_refused() -> None:
    replica, engine = living()
    with pytest.raises(ConfigError, match="below max_num_seqs"):
        replica.restart(max_num_batched_tokens=100)
    assert replica.engine is engine
    replica.advance(41.0)
    assert replica.plan == PLAN


def test_with_several_ranks_all_take_a_value_or_none() -> None:
    plan = PLAN.with_engine(ranks=2).with_traffic(requests_per_second=16.0, rank_weights=(15.0, 1.0))
    replica, _ = living(plan)
    one, other = replica.engines
    assert one.requests_running > other.requests_running
    one.set_knob("max_num_seqs", 8)
    other.set_knob("max_num_seqs", 8)
    assert bounds(replica)["max_num_batched_tokens"][0] == one.requests_running * 5
    with pytest.raises(KnobBoundsError):
        replica.set_knob("max_num_batched_tokens", 8 * 5)
    replica.set_knob("max_num_batched_tokens", 512)
    assert [state.value for engine in replica.engines for state in engine.knobs()[:1]] == [512, 512]
    # Ranks that draft differently would wait for each other for ever.
    assert bounds(replica)["num_speculative_tokens"] == (4, 4)
    with pytest.raises(KnobBoundsError):
        replica.set_knob("num_speculative_tokens", 1)


START = EngineSettings(
    model="m",
    max_model_len=1000,
    gpus=1,
    kv_blocks=100,
    step=QWEN_ENGINE.step,
    max_num_batched_tokens=512,
    max_num_seqs=16,
    num_speculative_tokens=4,
    acceptance=ACCEPTANCE,
)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["max_num_batched_tokens", "max_num_seqs", "num_speculative_tokens"]),
            st.integers(-5, 600),
            st.integers(0, 16),
        )
    )
)
@settings(max_examples=80, deadline=None)
def test_a_step_always_has_room_for_all_that_decode(changes: list[tuple[str, int, int]]) -> None:
    running = 0
    knobs = LiveKnobs(START, lambda: running)
    for name, value, wanted in changes:
        running = min(wanted, knobs.max_num_seqs) if running <= knobs.max_num_seqs else min(running, wanted)
        known = knobs.state(name)
        if known.min <= value <= known.max:
            assert knobs.set(name, value).value == value
        else:
            with pytest.raises(KnobBoundsError):
                knobs.set(name, value)
            assert knobs.state(name) == known
        requests = max(knobs.max_num_seqs, running)
        assert knobs.max_num_batched_tokens >= requests * (1 + knobs.num_speculative_tokens)
        assert knobs.max_num_batched_tokens <= 512
        assert 1 <= knobs.max_num_seqs <= 16
        assert 0 <= knobs.num_speculative_tokens <= 4
