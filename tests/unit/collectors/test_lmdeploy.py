"""LMDeploy's table against the page that its own collector printed, idle, and against made ones."""

from __future__ import annotations

import math

import pytest

from collectors.answer import Answer
from collectors.engines.base import Look
from collectors.engines.lmdeploy import TABLE, LmdeployReader
from collectors.feed import TargetFeed
from collectors.layout import LayoutCache
from enginetop.fleet.fleet_tracker import FleetTracker
from enginetop.fleet.model import EngineKind, Quality, ReplicaState, Target
from enginetop.fleet.reading import Part, Reading
from enginetop.fleet.snapshot import Scalar, Slo
from tests.support.engine_pages import answer, fixture, histogram_lines, measures, page_of, total
from tests.support.mutations import mutated_pages

PAGE = fixture("lmdeploy/0.18.0/lmdeploy-0.18.0-collector-generated-idle.prom")


def read(text: str | bytes, sides: dict[str, object] | None = None) -> Reading:
    page = page_of(text)
    assert TABLE.is_on(page.layout)
    return LmdeployReader().read(Look(at=100.0, page=page, sides=sides or {}))


def rank(engine: int, **values: float) -> str:
    """Lines of gauges and counters of one data-parallel rank."""
    own = f'model_name="m",engine="{engine}"'
    return "".join(f"lmdeploy:{name}{{{own}}} {value}\n" for name, value in values.items())


def test_the_captured_page_before_any_request() -> None:
    reading = read(PAGE)
    zeros = {
        "requests_running",
        "requests_waiting",
        "kv_usage_ratio",
        "prompt_tokens_processed",
        "generation_tokens",
        "requests_finished",
        "requests_errored",
        "prefix_queries",
        "prefix_hits",
        "spec_drafts",
        "spec_draft_tokens",
        "spec_accepted_tokens",
    }
    assert {measure: total(reading, measure) for measure in zeros} == dict.fromkeys(zeros, 0)
    histograms = {"ttft", "tpot", "itl", "e2e", "queue"}
    for name in histograms:
        assert total(reading, f"{name}_seconds", Part.COUNT) == 0
    assert {total(reading, m, Part.COUNT) for m in ("prompt_tokens", "output_tokens")} == {0}
    assert reading.start_token == 1.79598308134e9
    assert reading.identity.model == "tiny-random"
    assert reading.identity.engine is EngineKind.LMDEPLOY
    assert dict(reading.columns.ranks) == {"0": {"engine": "0"}}
    assert reading.live_progress
    assert reading.columns.absent["spec_accepted_at_position"].quality is Quality.UNKNOWN


def test_both_queues_are_waiting() -> None:
    page = rank(0, num_requests_running=16, num_requests_waiting=3, num_api_requests_waiting=40)
    reading = read(page + rank(0, num_api_requests_routed=19))
    assert total(reading, "requests_running") == 16
    assert total(reading, "requests_waiting") == 3 + 40


def test_what_has_ended_succeeded_or_failed() -> None:
    """Both are gauges that only grow; the counter of successes by reason would count the former again."""
    page = rank(0, num_requests_succeeded=90, num_requests_failed=10)
    page += 'lmdeploy:request_success_total{engine="0",finished_reason="ResponseType.FINISH"} 90\n'
    reading = read(page)
    assert total(reading, "requests_finished") == 100
    assert total(reading, "requests_errored") == 10
    assert "cancelled" in reading.columns.estimated["requests_errored"]
    assert reading.columns.absent["requests_aborted"].quality is Quality.UNSUPPORTED


def test_the_releases_before_0_13_count_what_succeeded_only() -> None:
    page = rank(0, num_requests_finished=90, num_requests_unfinished=7, num_requests_running=3)
    reading = read(page + rank(0, num_requests_waiting=4, generation_tokens_total=9))
    assert total(reading, "requests_finished") == 90
    assert total(reading, "requests_waiting") == 4  # there is one queue
    for later in ("requests_errored", "itl_seconds", "prefix_hits", "spec_drafts"):
        assert reading.columns.absent[later].quality is Quality.UNSUPPORTED


def test_cached_tokens_go_with_the_prompts_of_ended_requests() -> None:
    page = histogram_lines("lmdeploy:request_prompt_tokens", 10, 4000, 'engine="0"')
    reading = read(page + rank(0, cached_tokens_total=1000, prompt_tokens_total=4700))
    assert total(reading, "prompt_tokens_processed") == 4700  # running requests too
    assert (total(reading, "prefix_hits"), total(reading, "prefix_queries")) == (1000, 4000)
    assert total(reading, "prompt_tokens", Part.COUNT) == 10


def test_steps_of_requests_are_no_steps_of_the_engine() -> None:
    reading = read(histogram_lines("lmdeploy:iteration_tokens_total", 100, 200, 'engine="0"'))
    assert "iteration_tokens" not in measures(reading)
    assert "each request" in reading.columns.absent["iteration_tokens"].note


def test_drafts_by_position() -> None:
    page = rank(
        0,
        spec_decode_num_drafts_total=100,
        spec_decode_num_draft_tokens_total=300,
        spec_decode_num_accepted_tokens_total=150,
    )
    for position, accepted in enumerate((80, 50, 20)):
        name = "lmdeploy:spec_decode_num_accepted_tokens_per_pos_total"
        page += f'{name}{{engine="0",position="{position}"}} {accepted}\n'
    reading = read(page)
    assert total(reading, "spec_drafts") == 100
    assert [total(reading, "spec_accepted_at_position", position=p) for p in range(3)] == [80, 50, 20]


def test_two_ranks() -> None:
    page = rank(0, num_requests_running=2, gpu_cache_usage_perc=0.2, generation_tokens_total=10)
    page += rank(1, num_requests_running=8, gpu_cache_usage_perc=0.9, generation_tokens_total=70)
    reading = read(page)
    assert set(reading.columns.ranks) == {"0", "1"}
    assert total(reading, "requests_running") == 10
    assert total(reading, "generation_tokens") == 80
    assert [total(reading, "kv_usage_ratio", rank=r) for r in ("0", "1")] == [0.2, 0.9]


def test_underscores_instead_of_colons() -> None:
    page = rank(0, num_requests_running=2)
    assert total(read(page.replace(":", "_")), "requests_running") == 2
    assert total(read(page + page.replace(":", "_")), "requests_running") == 2  # one series, not two


@pytest.mark.parametrize(
    ("body", "expected"),
    [({"is_sleeping": True}, True), ({"is_sleeping": False}, False), ({"is_sleeping": 1}, None), ({}, None)],
)
def test_it_says_whether_it_sleeps(body: object, expected: bool | None) -> None:
    assert read(PAGE, {"/is_sleeping": body}).flags.sleeping is expected


def test_a_placeholder_is_no_model() -> None:
    page = 'lmdeploy:num_requests_running{model_name="",engine="0"} 1\n'
    assert read(page, {"/v1/models": {"data": [{"id": "qwen"}]}}).identity.model == "qwen"


def test_numbers_that_are_none_stay_none() -> None:
    assert math.isnan(total(read(rank(0, gpu_cache_usage_perc=math.nan)), "kv_usage_ratio"))


def test_rates_and_the_state_of_a_sleeping_server() -> None:
    target = Target("http://r1:23333", "r1")
    tracker = FleetTracker(
        [target],
        interval_seconds=2.0,
        window_seconds=60.0,
        slo_for=lambda model: Slo(),
        fixed_spacing_seconds=2.0,
    )
    feed = TargetFeed(target, LayoutCache())
    for look, (done, failed, tokens) in enumerate([(100, 5, 1000), (100, 5, 1600), (110, 7, 2200)]):
        at = 100.0 + 2 * look
        page = rank(
            0, num_requests_succeeded=done, num_requests_failed=failed, generation_tokens_total=tokens
        )
        page += rank(0, num_requests_running=0, num_requests_waiting=0, num_api_requests_waiting=0)
        answers = [
            Answer("/metrics", at, 0.01, body=page.encode()),
            answer("/is_sleeping", {"is_sleeping": True}, at=at),
        ]
        tracker.observe(target.url, feed.take(answers, at, 0.01))
    (replica,) = tracker.snapshot(104.0).replicas
    assert replica.state is ReplicaState.SLEEPING
    finished, tokens_rate = (
        replica.signals[name] for name in ("requests_finished_per_second", "generation_tokens_per_second")
    )
    assert isinstance(finished, Scalar)
    assert isinstance(tokens_rate, Scalar)
    # 10 succeeded and 2 failed in 4 s; 1200 tokens.
    assert (finished.value, tokens_rate.value) == (3.0, 300.0)


def test_no_mutation_of_a_page_makes_trouble() -> None:
    for body in mutated_pages(PAGE, 60):
        page = page_of(body)
        if TABLE.is_on(page.layout):
            reading = LmdeployReader().read(Look(at=1.0, page=page))
            assert len(reading.values) == len(reading.columns.series)
