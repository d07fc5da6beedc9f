"""vLLM as several processes: API servers with and without a common registry, data-parallel ranks, KV tiers.

The `-2api-` captures are of a real server with two API servers in multiprocess mode. Expected numbers were
worked out by hand from their lines.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from collectors.answer import Answer
from collectors.engines.base import Look
from collectors.engines.vllm import VllmReader, recognise
from collectors.feed import TargetFeed
from collectors.layout import LayoutCache
from enginetop.fleet.fleet_tracker import FleetTracker
from enginetop.fleet.model import Quality, ReplicaState, Target
from enginetop.fleet.observation import Observation
from enginetop.fleet.reading import Part, Reading
from enginetop.fleet.snapshot import Distribution, ReplicaSnapshot, Scalar, Slo
from tests.support.engine_pages import answer, fixture, histogram_lines, page_of, total

TWO_SERVERS = "vllm/0.32.0/vllm-0.32.0-spec-2api"
IDLE, LOADED, AFTER = (fixture(f"{TWO_SERVERS}-{name}.prom") for name in ("idle", "loaded", "after_knobs"))


def read(text: str | bytes) -> Reading:
    page = page_of(text)
    assert recognise(page.layout)
    return VllmReader().read(Look(at=100.0, page=page))


def snapshot_of(pages: Iterable[tuple[float, str | bytes]]) -> ReplicaSnapshot:
    """Pages with their times, from the feed to the picture of the last one."""
    target = Target("http://r1:8000", "r1")
    tracker = FleetTracker(
        [target],
        interval_seconds=10.0,
        window_seconds=60.0,
        slo_for=lambda model: Slo(),
        fixed_spacing_seconds=10.0,
    )
    feed = TargetFeed(target, LayoutCache())
    at = 0.0
    for at, page in pages:
        body = page.encode() if isinstance(page, str) else page
        tracker.observe(target.url, feed.take([Answer("/metrics", at, 0.01, body=body)], at, 0.01))
    (replica,) = tracker.snapshot(at).replicas
    return replica


def scalar(replica: ReplicaSnapshot, name: str) -> Scalar:
    value = replica.signals[name]
    assert isinstance(value, Scalar)
    return value


def test_two_api_servers_with_a_common_registry() -> None:
    """Counters of both are summed by the engine, so the rates are those of the server; no process start."""
    replica = snapshot_of([(100.0, IDLE), (110.0, LOADED), (130.0, AFTER)])
    rates = {
        "generation_tokens_per_second": 10_560 / 30,
        "prompt_tokens_per_second": 10_800 / 30,
        "requests_finished_per_second": 108 / 30,
        "preemptions": 30,
        "preemptions_per_second": 1.0,
        "prefix_hit_ratio": 6592 / 10_800,
        "spec_acceptance_ratio": 6088 / 6408,
        "spec_accepted_length": 1 + 6088 / 2442,
    }
    for name, expected in rates.items():
        value = scalar(replica, name)
        assert value.value == pytest.approx(expected), name
        assert value.quality is Quality.OK, name
    by_position = scalar(replica, "spec_acceptance_per_position").value
    assert by_position == pytest.approx((2350 / 2442, 1269 / 2442, 1267 / 2442, 1202 / 2442))
    ttft, steps = replica.signals["ttft_seconds"], replica.signals["iteration_tokens"]
    assert isinstance(ttft, Distribution)
    assert isinstance(steps, Distribution)
    assert (ttft.count, steps.count, steps.sum) == (108, 1463, 14_768)
    assert replica.state is ReplicaState.IDLE
    assert not [event for event in replica.events if event.kind == "restarted"]
    assert [rank.labels for rank in replica.ranks] == [{"engine": "0"}]


def test_half_of_the_window_is_the_difference_of_two_pages() -> None:
    replica = snapshot_of([(100.0, LOADED), (120.0, AFTER)])
    # 10 560 - 1920 tokens, 30 - 6 preemptions, (6088 - 1488) of (6408 - 1552) drafted tokens, in 20 s.
    assert scalar(replica, "generation_tokens_per_second").value == 8640 / 20
    assert scalar(replica, "preemptions").value == 24
    assert scalar(replica, "spec_acceptance_ratio").value == pytest.approx(4600 / 4856)


def process(start: int, tokens: int, running: int) -> str:
    """The page of one API server that knows its own requests only."""
    own = '{model_name="m",engine="0"}'
    return (
        f"process_start_time_seconds {start}\n"
        f"vllm:generation_tokens_total{own} {tokens}\n"
        f"vllm:num_requests_running{own} {running}\n"
        f"vllm:num_requests_waiting{own} 0\n"
        + histogram_lines("vllm:e2e_request_latency_seconds", tokens / 10, labels='engine="0"')
    )


@pytest.mark.parametrize("with_start", [True, False])
def test_two_api_servers_without_a_common_registry(with_start: bool) -> None:
    """Each scrape meets one of them at random: no rate can be told, and nothing has restarted."""
    pages = []
    for look in range(8):
        page = process(50, 1000 + look, 1) if look % 2 else process(77, 5000 + look, 2)
        body = page if with_start else page.split("\n", 1)[1]
        pages.append((100.0 + 2 * look, body))
    replica = snapshot_of(pages)
    rate = scalar(replica, "generation_tokens_per_second")
    assert (rate.value, rate.quality) == (None, Quality.SUSPECT)
    assert "several processes" in rate.note
    assert scalar(replica, "requests_running").value == 1  # the last page
    assert sum(event.kind == "restarted" for event in replica.events) <= 1


def parallel(engine: int, *, running: int, kv: float, tokens: int) -> str:
    own = f'{{model_name="m",engine="{engine}"}}'
    return (
        f"vllm:num_requests_running{own} {running}\n"
        f"vllm:num_requests_waiting{own} {engine}\n"
        f"vllm:kv_cache_usage_perc{own} {kv}\n"
        f"vllm:generation_tokens_total{own} {tokens}\n"
    )


def test_data_parallel_ranks_behind_one_page() -> None:
    """Running, waiting and counters are sums; the fullest rank leads, and is named."""

    def page(step: int) -> str:
        ranks = [(1, 0.10, 100), (2, 0.97, 200), (3, 0.30, 300), (4, 0.20, 400)]
        return "".join(
            parallel(engine, running=run, kv=kv, tokens=tokens + step * 10 * engine)
            for engine, (run, kv, tokens) in enumerate(ranks)
        )

    replica = snapshot_of([(100.0, page(0)), (110.0, page(1))])
    assert scalar(replica, "requests_running").value == 1 + 2 + 3 + 4
    assert scalar(replica, "requests_waiting").value == 0 + 1 + 2 + 3
    usage = scalar(replica, "kv_usage_ratio")
    assert (usage.value, usage.worst) == (0.97, {"engine": "1"})
    assert usage.mean == pytest.approx((0.10 + 0.97 + 0.30 + 0.20) / 4)
    # 0 + 10 + 20 + 30 tokens more in 10 s.
    assert scalar(replica, "generation_tokens_per_second").value == 6.0
    assert [rank.labels["engine"] for rank in replica.ranks] == ["0", "1", "2", "3"]


def test_what_has_no_rank_belongs_to_the_server() -> None:
    page = parallel(0, running=1, kv=0.1, tokens=1) + parallel(1, running=1, kv=0.2, tokens=1)
    page += 'vllm:admission_rejections_total{model_name="m",reason="max_num_queued_reqs"} 4\n'
    page += 'vllm:admission_rejections_total{model_name="m",reason="max_num_queued_tokens"} 3\n'
    reading = read(page)
    assert set(reading.columns.ranks) == {"0", "1"}
    assert total(reading, "requests_rejected", rank="") == 7


# Paused


@pytest.mark.parametrize(("body", "state"), [(True, ReplicaState.PAUSED), (False, ReplicaState.IDLE)])
def test_a_paused_server_says_so_on_its_development_page(body: bool, state: ReplicaState) -> None:
    """/pause stops the scheduler; the metrics page and /health do not show it."""
    target = Target("http://r1:8000", "r1")
    feed = TargetFeed(target, LayoutCache())
    pages = {
        "/metrics": Answer("/metrics", 100.0, 0.01, body=AFTER),
        "/server_info": answer("/server_info", {"vllm_config": {}}),
        "/is_paused": answer("/is_paused", {"is_paused": body}),
    }
    for _ in range(2):
        answers: list[Answer] = []
        while (request := feed.next_path(answers)) is not None:
            path = request.partition("?")[0]
            answers.append(pages.get(path) or answer(path, status=404))
        reading = feed.take(answers, 100.0, 0.01).reading
        assert reading is not None
        assert reading.flags.paused is body
    assert [one.path for one in answers] == ["/metrics", "/is_paused"]
    tracker = FleetTracker(
        [target],
        interval_seconds=10.0,
        window_seconds=60.0,
        slo_for=lambda model: Slo(),
        fixed_spacing_seconds=10.0,
    )
    tracker.observe(target.url, Observation(100.0, 0.01, reading=reading))
    assert tracker.snapshot(100.0).replicas[0].state is state


def test_a_server_without_development_pages_is_not_asked_whether_it_is_paused() -> None:
    feed = TargetFeed(Target("http://r1:8000", "r1"), LayoutCache())
    asked = []
    answers: list[Answer] = []
    while (request := feed.next_path(answers)) is not None:
        asked.append(request)
        page = Answer(request, 100.0, 0.01, body=AFTER)
        answers.append(page if request == "/metrics" else answer(request.partition("?")[0], status=404))
    assert "/is_paused" not in asked
    assert asked[-1].startswith("/server_info")


# Beyond the core


def test_a_loaded_server_without_tiers() -> None:
    reading = read(fixture("vllm/0.32.0/vllm-0.32.0-loaded.prom"))
    zeros = (
        "deferred_requests",
        "requests_rejected",
        "kv_host_hit_tokens",
        "kv_disk_hit_tokens",
        "kv_remote_hit_tokens",
    )
    assert {measure: total(reading, measure) for measure in zeros} == dict.fromkeys(zeros, 0)
    for measure in ("kv_offload_bytes", "kv_transfer_seconds", "transfer_waiting_requests"):
        assert reading.columns.absent[measure].quality is Quality.UNSUPPORTED


def test_tiers_transfers_and_admission() -> None:
    own = 'model_name="m",engine="0"'
    cached = {"device": 700, "host": 64, "p2p": 32, "disk": 16, "external_unspecified": 8}
    page = "".join(
        f'vllm:prompt_tokens_cached_by_source_total{{{own},source="{source}"}} {tokens}\n'
        for source, tokens in cached.items()
    )
    stages = {"waiting_to_start": 3, "in_progress": 2, "completed_waiting": 5}
    page += "".join(
        f'vllm:num_requests_kv_fetch_by_stage{{{own},stage="{stage}"}} {count}\n'
        for stage, count in stages.items()
    )
    page += f'vllm:num_requests_waiting_by_reason{{{own},reason="capacity"}} 9\n'
    page += f'vllm:num_requests_waiting_by_reason{{{own},reason="deferred"}} 4\n'
    page += f"vllm:kv_offload_store_bytes_total{{{own}}} 4096\n"
    page += f"vllm:kv_offload_load_bytes_total{{{own}}} 1024\n"
    page += f"vllm:kv_offload_cpu_cache_usage_perc{{{own}}} 0.5\n"
    page += f"vllm:nixl_num_failed_transfers_total{{{own}}} 1\n"
    page += f"vllm:nixl_num_failed_notifications_total{{{own}}} 2\n"
    page += f"vllm:nixl_num_kv_expired_reqs_total{{{own}}} 4\n"
    page += histogram_lines("vllm:nixl_xfer_time_seconds", 6, 0.3, own)
    page += histogram_lines("vllm:nixl_post_time_seconds", 6, 0.1, own)
    reading = read(page)
    expected = {
        "kv_host_hit_tokens": 64,
        "kv_disk_hit_tokens": 16,
        "kv_remote_hit_tokens": 32 + 8,
        "transfer_waiting_requests": 3 + 2,  # what is complete waits for the scheduler
        "deferred_requests": 4,
        "kv_offload_bytes": 4096,
        "kv_onload_bytes": 1024,
        "kv_host_usage_ratio": 0.5,
        "kv_transfer_failures": 1 + 2 + 4,
    }
    assert {measure: total(reading, measure) for measure in expected} == expected
    assert total(reading, "kv_transfer_seconds", Part.SUM) == 0.3


def test_an_external_cache_is_told_by_its_hits() -> None:
    """LMCache and other connectors count in the engine's own series, whatever they are."""
    own = 'model_name="m",engine="0"'
    page = f"vllm:external_prefix_cache_queries_total{{{own}}} 1000\n"
    page += f"vllm:external_prefix_cache_hits_total{{{own}}} 250\n"
    page += 'lmcache:num_hit_tokens_total{model_name="m"} 260\n'
    reading = read(page)
    assert total(reading, "external_prefix_queries") == 1000
    assert total(reading, "external_prefix_hits") == 250
