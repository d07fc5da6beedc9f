"""Triton's table against its pages. The capture is reconstructed: its names and labels are real."""

from __future__ import annotations

import math
import random

import pytest

from collectors.answer import Answer
from collectors.engines.base import Look
from collectors.engines.triton import TritonReader, recognise
from collectors.feed import TargetFeed
from collectors.layout import LayoutCache
from enginetop.fleet.fleet_tracker import FleetTracker
from enginetop.fleet.model import EngineKind, Quality, Target
from enginetop.fleet.reading import Part, Reading
from enginetop.fleet.snapshot import Distribution, ReplicaSnapshot, Scalar, Slo
from tests.support.engine_pages import fixture, histogram_lines, measures, page_of, total
from tests.support.mutations import mutated_pages

PAGE = fixture("triton/reconstructed/triton-trtllm-reconstructed-pause.prom")


def read(text: str | bytes, sides: dict[str, object] | None = None) -> Reading:
    page = page_of(text)
    assert recognise(page.layout)
    return TritonReader().read(Look(at=100.0, page=page, sides=sides or {}))


def batching(model: str, *, active: float, waiting: float, used: float, blocks: float) -> str:
    """The lines of one model of the TensorRT-LLM backend."""
    own = f'model="{model}",version="1"'
    request, block = "nv_trt_llm_request_metrics", "nv_trt_llm_kv_cache_block_metrics"
    return (
        f'{request}{{{own},request_type="active"}} {active}\n'
        f'{request}{{{own},request_type="waiting"}} {waiting}\n'
        f'{request}{{{own},request_type="max"}} 8\n'
        f'{block}{{{own},kv_cache_block_type="max"}} {blocks}\n'
        f'{block}{{{own},kv_cache_block_type="tokens_per"}} 64\n'
        f'{block}{{{own},kv_cache_block_type="fraction"}} {used}\n'
    )


def served(model: str, success: float, *, micros: float = 0, canceled: float = 0) -> str:
    """The lines that Triton has for every model."""
    own = f'model="{model}",version="1"'
    return (
        f"nv_inference_request_success{{{own}}} {success}\n"
        f'nv_inference_request_failure{{{own},reason="CANCELED"}} {canceled}\n'
        f"nv_inference_request_duration_us{{{own}}} {micros}\n"
        f"nv_inference_queue_duration_us{{{own}}} {micros / 10}\n"
        f"nv_inference_pending_request_count{{{own}}} 5\n"
    )


def test_a_server_that_has_paused_requests() -> None:
    reading = read(PAGE)
    expected = {
        "requests_running": 64,
        "paused_requests": 6,
        "requests_waiting": 37,  # of the backend; the server's own queue holds none
        "kv_usage_ratio": 0.9806,
        "kv_capacity_tokens": 6239 * 64,
        "requests_finished": 812 + 2 + 5,
        "requests_aborted": 5,
        "requests_errored": 2,
    }
    assert {measure: total(reading, measure) for measure in expected} == expected
    # Sums are of successful requests, so their number is the count.
    assert total(reading, "e2e_seconds", Part.COUNT) == 812
    assert total(reading, "e2e_seconds", Part.SUM) == pytest.approx(5012.345678)
    assert total(reading, "queue_seconds", Part.SUM) == pytest.approx(0.051234)
    ttft = {le: total(reading, "ttft_seconds", Part.BUCKET, le=le) for le in (0.1, 0.5, 2.0, 5.0)}
    assert ttft == {0.1: 220, 0.5: 640, 2.0: 800, 5.0: 812}
    assert total(reading, "ttft_seconds", Part.SUM) == pytest.approx(301.22)
    assert dict(reading.columns.ranks) == {}
    assert reading.live_progress  # the iteration counter of the backend


def test_identity_and_limits() -> None:
    reading = read(PAGE, {"/v2": {"name": "triton", "version": "2.73.0"}})
    identity = reading.identity
    assert (identity.engine, identity.engine_version) == (EngineKind.TRITON, "2.73.0")
    assert identity.model == "tensorrt_llm"
    assert dict(identity.sources) == {"engine_version": "/v2", "model": "label model"}
    assert {key: value.value for key, value in reading.config.items()} == {
        "max_num_seqs": 64,
        "num_gpu_blocks": 6239,
        "block_size": 64,
    }


def test_what_it_does_not_export_has_its_reason() -> None:
    absent = read(PAGE).columns.absent
    assert "paused now" in absent["preemptions"].note
    assert "TensorRT-LLM backend" in absent["generation_tokens"].note
    assert {absent[m].quality for m in ("preemptions", "tpot_seconds", "prefix_hits")} == {
        Quality.UNSUPPORTED
    }
    no_histogram = read(batching("m", active=1, waiting=0, used=0, blocks=9)).columns.absent
    assert "histogram_latencies=true" in no_histogram["ttft_seconds"].note


def test_an_ensemble_and_its_steps_count_once() -> None:
    steps = "".join(served(name, 100) for name in ("ensemble", "preprocessing", "postprocessing"))
    text = steps + served("tensorrt_llm", 90, canceled=4)
    reading = read(text + batching("tensorrt_llm", active=3, waiting=2, used=0.5, blocks=10))
    assert total(reading, "requests_finished") == 94
    assert total(reading, "requests_waiting") == 2
    assert total(reading, "e2e_seconds", Part.COUNT) == 90
    assert "requests_finished" not in reading.columns.estimated


def test_several_models_with_batching_are_ranks() -> None:
    one = served("llama", 10, micros=4e6) + batching("llama", active=3, waiting=1, used=0.25, blocks=100)
    two = served("mistral", 30, micros=9e6) + batching("mistral", active=4, waiting=2, used=0.75, blocks=50)
    reading = read(one + two)
    assert dict(reading.columns.ranks) == {
        "llama,1": {"model": "llama", "version": "1"},
        "mistral,1": {"model": "mistral", "version": "1"},
    }
    assert reading.identity.model is None
    assert [total(reading, "kv_usage_ratio", rank=r) for r in ("llama,1", "mistral,1")] == [0.25, 0.75]
    assert total(reading, "kv_capacity_tokens") == 100 * 64 + 50 * 64
    assert total(reading, "requests_running") == 7
    assert total(reading, "e2e_seconds", Part.SUM, rank="mistral,1") == pytest.approx(9.0)
    assert dict(reading.config) == {}  # limits of single models


def test_two_versions_of_a_model_are_two() -> None:
    one = batching("m", active=1, waiting=0, used=0.1, blocks=10)
    reading = read(one + one.replace('version="1"', 'version="2"'))
    assert set(reading.columns.ranks) == {"m,1", "m,2"}
    assert total(reading, "requests_running") == 2


def test_a_server_without_batching() -> None:
    reading = read(served("resnet", 40, micros=8e6) + served("bert", 10, micros=2e6, canceled=1))
    assert total(reading, "requests_finished") == 51
    assert total(reading, "requests_waiting") == 10
    assert total(reading, "e2e_seconds", Part.SUM) == pytest.approx(10.0)
    assert total(reading, "e2e_seconds", Part.COUNT) == 50
    assert "ensemble" in reading.columns.estimated["requests_finished"]
    absent = reading.columns.absent
    assert (absent["requests_running"].quality, absent["kv_usage_ratio"].quality) == (
        Quality.UNSUPPORTED,
        Quality.UNSUPPORTED,
    )
    assert not reading.live_progress


def test_an_older_backend_leaves_requests_in_the_queue_of_the_server() -> None:
    page = batching("m", active=3, waiting=0, used=0.1, blocks=10)
    older = "".join(line for line in page.splitlines(keepends=True) if "waiting" not in line)
    assert total(read(older + served("m", 1)), "requests_waiting") == 5


def test_transfers_between_prefill_and_decode() -> None:
    own = 'model="m",version="1",disaggregated_serving_type'
    serving = f'nv_trt_llm_disaggregated_serving_metrics{{{own}="'
    page = batching("m", active=0, waiting=0, used=0, blocks=10)
    assert "kv_transfer_seconds" not in measures(read(page))
    page += f'{serving}kv_cache_transfer_ms"}} 250\n{serving}request_count"}} 4\n'
    reading = read(page)
    assert total(reading, "kv_transfer_seconds", Part.SUM) == 0.25
    assert total(reading, "kv_transfer_seconds", Part.COUNT) == 4


def test_token_lengths_of_the_newer_backend() -> None:
    own = 'model="m",response_metric_type="total_{}_tokens",version="1"'
    text = batching("m", active=0, waiting=0, used=0, blocks=10)
    text += histogram_lines("nv_llm_output_token_len", 4, 400, own.format("output"))
    text += histogram_lines("nv_llm_input_token_len", 4, 1000, own.format("input"))
    reading = read(text)
    assert total(reading, "generation_tokens") == 400
    assert total(reading, "prompt_tokens_processed") == 1000
    assert total(reading, "output_tokens", Part.COUNT) == 4


def test_the_summaries_add_nothing_to_the_sums() -> None:
    """Quantiles of a sliding window (summary_latencies=true) cannot be merged; the sums are the same ones."""
    text = served("m", 10, micros=4e6) + batching("m", active=0, waiting=0, used=0, blocks=1)
    text += 'nv_inference_request_summary_us{model="m",version="1",quantile="0.99"} 800000\n'
    text += 'nv_inference_request_summary_us_sum{model="m",version="1"} 4000000\n'
    text += 'nv_inference_request_summary_us_count{model="m",version="1"} 10\n'
    assert total(read(text), "e2e_seconds", Part.SUM) == pytest.approx(4.0)


def test_gpu_series_alone_are_no_engine() -> None:
    assert not recognise(page_of('nv_gpu_utilization{gpu_uuid="GPU-1"} 0.5\n').layout)


def test_an_iteration_is_movement() -> None:
    page = batching("m", active=1, waiting=0, used=0.1, blocks=1)
    page += 'nv_trt_llm_general_metrics{{general_type="iteration_counter",model="m",version="1"}} {}\n'
    before, after = (read(page.replace("{{", "{").replace("}}", "}").replace(" {}", f" {n}")) for n in (5, 6))
    assert before.progress_token != after.progress_token


def snapshot_of(*pages: str) -> ReplicaSnapshot:
    """Pages two seconds apart, from the feed to the picture."""
    target = Target("http://r1:8002", "r1")
    tracker = FleetTracker(
        [target],
        interval_seconds=2.0,
        window_seconds=60.0,
        slo_for=lambda model: Slo(),
        fixed_spacing_seconds=2.0,
    )
    feed = TargetFeed(target, LayoutCache())
    for look, page in enumerate(pages):
        at = 100.0 + 2 * look
        tracker.observe(target.url, feed.take([Answer("/metrics", at, 0.01, body=page.encode())], at, 0.01))
    (replica,) = tracker.snapshot(at).replicas
    return replica


def test_latencies_are_means_of_the_window_without_quantiles() -> None:
    quiet = batching("m", active=1, waiting=0, used=0.5, blocks=10)
    replica = snapshot_of(served("m", 10, micros=5e6) + quiet, served("m", 14, micros=11e6) + quiet)
    e2e = replica.signals["e2e_seconds"]
    assert isinstance(e2e, Distribution)
    # 4 requests more took 6 s more.
    assert (e2e.count, e2e.quality) == (4, Quality.ESTIMATED)
    assert e2e.mean.value == pytest.approx(1.5)
    assert all(quantile.value is None for quantile in e2e.quantiles.values())
    assert "no quantiles" in e2e.note


def test_the_fullest_of_several_models_leads() -> None:
    page = batching("a", active=1, waiting=0, used=0.2, blocks=10)
    page += batching("b", active=1, waiting=0, used=0.9, blocks=10)
    usage = snapshot_of(page, page).signals["kv_usage_ratio"]
    assert isinstance(usage, Scalar)
    assert usage.value == 0.9
    assert usage.mean == pytest.approx(0.55)
    assert usage.worst == {"model": "b", "version": "1"}


def test_a_restart_is_no_negative_rate() -> None:
    quiet = batching("m", active=0, waiting=0, used=0, blocks=10)
    replica = snapshot_of(*(served("m", n) + quiet for n in (1000, 1004, 3, 5)))
    rate = replica.signals["requests_finished_per_second"]
    assert isinstance(rate, Scalar)
    # 4, then 3 after the restart, then 2, in 6 s.
    assert rate.value == pytest.approx((4 + 3 + 2) / 6)


def test_the_order_of_lines_does_not_matter() -> None:
    lines = PAGE.decode().splitlines(keepends=True)
    random.Random(5).shuffle(lines)
    shuffled, ordered = read("".join(lines)), read(PAGE)
    for measure in measures(ordered):
        part = Part.COUNT if measure.endswith("_seconds") else Part.VALUE
        assert total(shuffled, measure, part) == total(ordered, measure, part), measure


def test_numbers_that_are_none_stay_none() -> None:
    reading = read(batching("m", active=math.nan, waiting=1, used=math.nan, blocks=math.inf))
    assert math.isnan(total(reading, "requests_running"))
    assert math.isnan(total(reading, "kv_capacity_tokens"))


def test_no_mutation_of_a_page_makes_trouble() -> None:
    for body in mutated_pages(PAGE, 150):
        page = page_of(body)
        if recognise(page.layout):
            reading = TritonReader().read(Look(at=1.0, page=page))
            assert len(reading.values) == len(reading.columns.series)
