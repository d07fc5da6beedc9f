"""Series taken off the pages one by one: advice then says which it lacks, and suggests nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

import pytest

from collectors.answer import Answer
from collectors.feed import TargetFeed
from collectors.layout import LayoutCache
from enginetop.fleet.fleet_tracker import FleetTracker
from enginetop.fleet.knobs import KnobRow, KnobSheet
from enginetop.fleet.model import Target
from enginetop.fleet.snapshot import Advice
from enginetop.simulator.builtin import scenario_named
from enginetop.simulator.fleet_model import FleetModel
from enginetop.simulator.scenario import Lengths, Scenario
from tuners.advice import Advisor

EPOCH = 1_750_000_000.0
STEP_SECONDS = 4
SECONDS = 300

BUDGET, DRAFTS, THINKING, SEQUENCES = (
    "max_num_batched_tokens",
    "num_speculative_tokens",
    "thinking_token_budget",
    "max_num_seqs",
)


def thinkers() -> Scenario:
    """Short requests with a few long thoughts among them, and little KV."""
    scenario = scenario_named("reasoning-overrun")
    plan = scenario.pools[0].members[0]
    plan = plan.with_engine(kv_blocks=2_400).with_traffic(
        requests_per_second=8.0, reasoning_tokens=Lengths(60, 1.7), answer_tokens=Lengths(40, 0.5)
    )
    return replace(scenario, pools=(replace(scenario.pools[0], members=(plan,)),))


CASES: Mapping[str, tuple[str, str, dict[str, str]]] = {
    # the knob, what it is told with all series, and by family the signal that is missed
    "budget-too-large": (
        BUDGET,
        "lower",
        {
            "vllm:time_to_first_token_seconds": "ttft_seconds",
            "vllm:request_time_per_output_token_seconds": "tpot_seconds",
            "vllm:iteration_tokens_total": "iteration_tokens",
            "vllm:num_requests_running": "requests_running",
            "vllm:num_requests_waiting": "requests_waiting",
            "vllm:kv_cache_usage_perc": "kv_usage_ratio",
            "vllm:num_preemptions": "preemptions",
            "vllm:prompt_tokens": "prompt_tokens_per_second",
        },
    ),
    "speculation-hurts": (
        DRAFTS,
        "lower",
        {
            "vllm:spec_decode_num_accepted_tokens_per_pos": "spec_acceptance_per_position",
            "vllm:spec_decode_num_drafts": "spec_acceptance_per_position",
            "vllm:generation_tokens": "generation_tokens_per_second",
            "vllm:iteration_tokens_total": "iteration_tokens",
            "vllm:request_time_per_output_token_seconds": "tpot_seconds",
        },
    ),
    "kv-pressure": (
        SEQUENCES,
        "lower",
        {
            "vllm:num_preemptions": "preemptions",
            "vllm:kv_cache_usage_perc": "kv_usage_ratio",
            "vllm:num_requests_running": "requests_running",
            "vllm:prompt_tokens": "prompt_tokens_per_second",
            "vllm:generation_tokens": "generation_tokens_per_second",
            "vllm:cache_config_info": "kv_capacity_tokens",
            "vllm:request_prompt_tokens": "lengths",
            "vllm:request_generation_tokens": "lengths",
        },
    ),
    "thinkers": (
        THINKING,
        "lower",
        {
            "enginetop_reasoning_tokens": "reasoning_tokens",
            "vllm:num_preemptions": "preemptions",
            "vllm:kv_cache_usage_perc": "kv_usage_ratio",
            "vllm:request_generation_tokens": "share of reasoning",
        },
    ),
}


@cache
def pages(name: str) -> tuple[tuple[bytes, tuple[KnobRow, ...]], ...]:
    """One replica's pages, and its knobs."""
    scenario = thinkers() if name == "thinkers" else scenario_named(name)
    model = FleetModel(scenario, 1, 3, EPOCH, 60.0)
    found = []
    for second in range(0, SECONDS, STEP_SECONDS):
        model.advance(float(second))
        body = model.replicas[0].page()
        assert body is not None
        rows = tuple(
            KnobRow(k.name, k.value, k.value, k.min, k.max, "", 0) for k in model.replicas[0].knobs()
        )
        found.append((body, rows))
    return tuple(found)


def without(body: bytes, family: str) -> bytes:
    """The page without one family, its comments and `_created` lines included."""
    endings = ("", "_total", "_bucket", "_sum", "_count", "_created")
    names = {(family + ending).encode() for ending in endings}
    kept = []
    for line in body.splitlines():
        words = line.split(b" ")
        name = words[2] if line.startswith(b"# ") else line.split(b"{")[0].split(b" ")[0]
        if name not in names:
            kept.append(line)
    return b"\n".join(kept) + b"\n"


def seen(name: str, family: str | None) -> list[Advice]:
    """The rows of the knob over all pages, with a family taken off."""
    knob = CASES[name][0]
    scenario = thinkers() if name == "thinkers" else scenario_named(name)
    target = Target("http://one:8000", "one")
    feed = TargetFeed(target, LayoutCache())
    tracker = FleetTracker(
        (target,),
        interval_seconds=STEP_SECONDS,
        window_seconds=60.0,
        slo_for=lambda _: scenario.slo,
        fixed_spacing_seconds=STEP_SECONDS,
    )
    sheets: dict[str, KnobSheet] = {}
    advisor, rows = Advisor(lambda: sheets), []
    for number, (body, knobs) in enumerate(pages(name)):
        at = EPOCH + number * STEP_SECONDS
        sheets[target.url] = KnobSheet("vllm", "0.32.0", "i", 1, 1, knobs)
        shown = body if family is None else without(body, family)
        answer = Answer("/metrics", at, 0.01, 200, {}, shown)
        tracker.observe(target.url, feed.take([answer], at, 0.01))
        advised = advisor(tracker.snapshot(at)).replicas[0]
        rows.append(next(row for row in advised.advice if row.knob == knob))
    return rows


@pytest.mark.parametrize("name", CASES)
def test_with_all_series_there_is_advice(name: str) -> None:
    assert CASES[name][1] in {row.action for row in seen(name, None)}


@pytest.mark.parametrize(
    ("name", "family", "missing"),
    [(name, family, missing) for name, (_, _, lacks) in CASES.items() for family, missing in lacks.items()],
)
def test_without_a_series_it_is_named(name: str, family: str, missing: str) -> None:
    rows = seen(name, family)
    assert not [row for row in rows if row.proposed is not None]
    withheld = [row for row in rows if row.action == "withheld"]
    assert any(missing in text for row in withheld for text in row.because), withheld[-1:] or rows[-1]
