"""Every counter and histogram of a page is recomputed from the requests and steps behind it."""

from __future__ import annotations

import math
from itertools import chain

import pytest

from enginetop.fleet.snapshot import Slo
from enginetop.simulator.model import EngineModel
from enginetop.simulator.replica import SimulatedReplica
from enginetop.simulator.request import Request
from enginetop.simulator.scenario import Arrival, EngineSettings, Lengths, ReplicaPlan, StepTime, Traffic
from tests.unit.simulator.read_page import ReadPage

SLO = Slo(ttft_seconds=0.5, tpot_seconds=0.03)
ENGINE = EngineSettings(
    model="m", max_model_len=8192, gpus=1, kv_blocks=6000, step=StepTime(10.0, 40.0, 40.0, 1.0)
)
TRAFFIC = Traffic(
    requests_per_second=3.0,
    prompt_tokens=Lengths(600, 1.0),
    answer_tokens=Lengths(150, 0.8),
    reasoning_tokens=Lengths(200, 0.6),
    shared_prefix_tokens=320,
    shared_prefix_ratio=0.5,
    max_tokens=1024,
    abort_ratio=0.1,
    arrival=Arrival.DIURNAL,
    wave_ratio=0.5,
    wave_period_seconds=60.0,
)
ROOMY = ReplicaPlan(ENGINE, TRAFFIC)
PLANS = {
    "roomy": ROOMY,
    "short of KV": ROOMY.with_engine(kv_blocks=1000),
    "speculating": ROOMY.with_engine(num_speculative_tokens=3, acceptance=(0.8, 0.5, 0.2)),
    "speculating, short of KV": ROOMY.with_engine(
        num_speculative_tokens=2, acceptance=(0.7, 0.3), kv_blocks=800
    ),
    "few sequences": ROOMY.with_engine(max_num_seqs=8),
    "small chunks": ROOMY.with_engine(max_num_batched_tokens=256, max_num_seqs=64),
}
SECONDS = 150.0


@pytest.fixture(scope="module", params=PLANS, ids=lambda name: name.replace(" ", "-"))
def lived(request: pytest.FixtureRequest) -> tuple[EngineModel, ReadPage]:
    """An engine after a while, and its page."""
    replica = SimulatedReplica("r", PLANS[request.param], SLO, seed=7, epoch=1.7e9)
    replica.advance(SECONDS)
    assert replica.engine is not None
    assert len(replica.engine.finished) > 50
    return replica.engine, ReadPage.of(replica.page())


def everyone(engine: EngineModel) -> list[Request]:
    return [*engine.finished, *engine.unfinished()]


def prompts_done(engine: EngineModel) -> list[Request]:
    return [request for request in everyone(engine) if request.first_token_at is not None]


def test_token_counters_are_those_of_the_requests(lived: tuple[EngineModel, ReadPage]) -> None:
    engine, page = lived
    done = prompts_done(engine)
    prompt = sum(request.drawn.prompt_tokens for request in done)
    cached = sum(request.first_cached_tokens for request in done)
    assert 0 < cached < prompt
    assert page.value("vllm:prompt_tokens_total") == prompt
    assert page.value("vllm:prompt_tokens_cached_total") == cached
    assert page.by_label("vllm:prompt_tokens_by_source_total", "source") == {
        "local_compute": prompt - cached,
        "local_cache_hit": cached,
        "external_kv_transfer": 0,
    }
    generated = sum(request.generated_tokens for request in everyone(engine))
    assert page.value("vllm:generation_tokens_total") == generated
    admitted = [request for request in everyone(engine) if request.first_scheduled_at is not None]
    queried = sum(request.drawn.prompt_tokens for request in admitted)
    assert page.value("vllm:prefix_cache_queries_total") == queried
    hits = sum(request.first_cached_tokens for request in admitted)
    assert page.value("vllm:prefix_cache_hits_total") == hits
    assert sum(page.by_label("vllm:prompt_tokens_cached_by_source_total", "source").values()) == hits


def test_request_counters_are_those_of_the_requests(lived: tuple[EngineModel, ReadPage]) -> None:
    engine, page = lived
    reasons = [request.finish_reason for request in engine.finished]
    expected = {
        reason: reasons.count(reason) for reason in ("stop", "length", "abort", "error", "repetition")
    }
    assert expected["stop"] > 0
    assert expected["abort"] > 0
    assert page.by_label("vllm:request_success_total", "finished_reason") == expected
    assert page.by_label("enginetop_requests_total", "outcome") == expected
    preemptions = sum(request.preemptions for request in everyone(engine))
    assert page.value("vllm:num_preemptions_total") == preemptions
    good = sum(
        request.finish_reason != "abort" and request.ttft_seconds <= 0.5 and request.tpot_seconds <= 0.03
        for request in engine.finished
    )
    within = page.value("enginetop_requests_within_slo_total", ttft_seconds="0.5", tpot_seconds="0.03")
    assert within == good


def test_gauges_are_those_of_the_requests(lived: tuple[EngineModel, ReadPage]) -> None:
    engine, page = lived
    running = page.value("vllm:num_requests_running")
    waiting = page.value("vllm:num_requests_waiting")
    assert running + waiting == len(engine.unfinished())
    assert page.by_label("vllm:num_requests_waiting_by_reason", "reason") == {
        "capacity": waiting,
        "deferred": 0,
    }
    blocks = sum(request.blocks for request in engine.unfinished())
    if any(request.holds_prefix for request in engine.unfinished()):
        blocks += 320 // 16  # the shared prefix is there once
    assert math.isclose(page.value("vllm:kv_cache_usage_perc"), blocks / engine.settings.kv_blocks)


def test_histograms_of_ended_requests(lived: tuple[EngineModel, ReadPage]) -> None:
    engine, page = lived
    ended = list(engine.finished)
    completed = [request.finish_reason in ("stop", "length") for request in ended]
    assert not all(completed)
    drawn = [request.drawn for request in ended]
    moments = [
        (r.drawn.arrival_at, r.first_scheduled_at or 0.0, r.first_token_at or 0.0, r.last_token_at or 0.0)
        for r in ended
    ]
    expected: dict[str, list[float]] = {
        "vllm:request_prompt_tokens": [d.prompt_tokens for d in drawn],
        "vllm:request_generation_tokens": [r.output_tokens for r in ended],
        "vllm:request_max_num_generation_tokens": [r.output_tokens for r in ended],
        "vllm:request_params_max_tokens": [d.max_tokens for d in drawn],
        "vllm:request_params_n": [1 for _ in drawn],
        "vllm:request_prefill_kv_computed_tokens": [
            r.drawn.prompt_tokens - r.first_cached_tokens for r in ended
        ],
        "vllm:request_num_preemptions": [r.preemptions for r in ended],
        "vllm:e2e_request_latency_seconds": [last - arrival for arrival, _, _, last in moments],
        "vllm:request_queue_time_seconds": [scheduled - arrival for arrival, scheduled, _, _ in moments],
        "vllm:request_prefill_time_seconds": [first - scheduled for _, scheduled, first, _ in moments],
        "vllm:request_decode_time_seconds": [last - first for _, _, first, last in moments],
        "vllm:request_inference_time_seconds": [
            (first - scheduled) + (last - first) for _, scheduled, first, last in moments
        ],
        "vllm:request_time_per_output_token_seconds": [
            (last - first) / (r.output_tokens - 1)
            for (_, _, first, last), r in zip(moments, ended, strict=True)
        ],
        # the companion's: of completed requests only
        "enginetop_ttft_seconds": [
            first - arrival for (arrival, _, first, _), done in zip(moments, completed, strict=True) if done
        ],
        "enginetop_tpot_seconds": [
            (last - first) / (r.output_tokens - 1)
            for (_, _, first, last), r, done in zip(moments, ended, completed, strict=True)
            if done
        ],
        "enginetop_reasoning_tokens": [
            r.reasoning_tokens for r, done in zip(ended, completed, strict=True) if done
        ],
    }
    for name, values in expected.items():
        page.assert_histogram(name, values)


def test_first_tokens_count_when_they_come(lived: tuple[EngineModel, ReadPage]) -> None:
    engine, page = lived
    done = prompts_done(engine)
    assert len(done) > len(engine.finished)
    page.assert_histogram(
        "vllm:time_to_first_token_seconds", [(r.first_token_at or 0.0) - r.drawn.arrival_at for r in done]
    )


def test_time_between_tokens_is_that_of_the_steps_and_of_the_preemptions(
    lived: tuple[EngineModel, ReadPage],
) -> None:
    engine, page = lived
    gaps = chain.from_iterable(request.gaps_seconds for request in everyone(engine))
    steps = chain.from_iterable([step.seconds] * step.decoding for step in engine.steps)
    page.assert_histogram("vllm:inter_token_latency_seconds", chain(steps, gaps))
    decoded = sum((r.last_token_at or 0.0) - (r.first_token_at or 0.0) for r in prompts_done(engine))
    assert math.isclose(page.value("vllm:inter_token_latency_seconds_sum"), decoded, rel_tol=1e-9)


def test_tokens_of_the_steps_add_up(lived: tuple[EngineModel, ReadPage]) -> None:
    engine, page = lived
    page.assert_histogram("vllm:iteration_tokens_total", [step.tokens for step in engine.steps])
    computed = sum(r.drawn.prompt_tokens - r.first_cached_tokens for r in prompts_done(engine))
    generated = sum(request.generated_tokens for request in everyone(engine))
    assert page.value("vllm:iteration_tokens_total_sum") == computed + generated


def test_speculation_is_that_of_the_requests(lived: tuple[EngineModel, ReadPage]) -> None:
    engine, page = lived
    positions = engine.settings.num_speculative_tokens
    if not positions:
        assert not [name for name, _ in page.samples if "spec_decode" in name]
        return
    drafts = sum(request.decode_steps for request in everyone(engine))
    accepted = [request.accepted[: request.decode_steps] for request in everyone(engine)]
    assert page.value("vllm:spec_decode_num_drafts_total") == drafts
    assert page.value("vllm:spec_decode_num_draft_tokens_total") == drafts * positions
    assert page.value("vllm:spec_decode_num_accepted_tokens_total") == sum(map(sum, accepted))
    assert page.by_label("vllm:spec_decode_num_accepted_tokens_per_pos_total", "position") == {
        str(position): sum(got > position for steps in accepted for got in steps)
        for position in range(positions)
    }


def test_the_plans_cover_preemption_and_queues() -> None:
    """Without them the tests above would prove little."""
    seen = {}
    for name, plan in PLANS.items():
        replica = SimulatedReplica("r", plan, SLO, seed=7, epoch=0.0)
        replica.advance(SECONDS)
        assert replica.engine is not None
        seen[name] = replica.engine
    assert seen["roomy"].metrics.preemptions == 0
    assert seen["short of KV"].metrics.preemptions > 10
    assert seen["speculating, short of KV"].metrics.preemptions > 10
    assert any(r.gaps_seconds for r in seen["short of KV"].finished)
    assert len(seen["few sequences"].waiting) > 0
    assert seen["few sequences"].requests_running == 8
