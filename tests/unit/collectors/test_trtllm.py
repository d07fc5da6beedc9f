"""TensorRT-LLM's table against its pages. The capture is reconstructed: its names and buckets are real."""

from __future__ import annotations

import math
import random

import pytest

from collectors.engines.base import Look
from collectors.engines.detect import recognise as whose
from collectors.engines.trtllm import TrtllmReader, recognise
from enginetop.fleet.model import EngineKind, Quality, Role
from enginetop.fleet.reading import Part, Reading
from tests.support.engine_pages import fixture, histogram_lines, measures, page_of, total
from tests.support.mutations import mutated_pages

PAGE = fixture("trtllm/1.3/trtllm-1.3-reconstructed-kvpressure.prom")
DYNAMO = fixture("dynamo/1.6.1/dynamo-1.6.1-worker-trtllm-kvpressure.prom")


def read(text: str | bytes, sides: dict[str, object] | None = None) -> Reading:
    page = page_of(text)
    assert recognise(page.layout)
    return TrtllmReader().read(Look(at=100.0, page=page, sides=sides or {}))


def test_a_server_under_pressure() -> None:
    reading = read(PAGE)
    expected = {
        "requests_running": 48,  # the 4 paused ones are among them
        "paused_requests": 4,
        "requests_waiting": 23,
        "kv_usage_ratio": 0.947,
        "kv_capacity_tokens": 4096 * 32,
        "prompt_tokens_processed": 312_000,
        "generation_tokens": 51_200,
        "requests_finished": 200 + 7,
        "requests_errored": 7,
        "prefix_queries": 312_000,
        "prefix_hits": 98_000,
        "spec_draft_tokens": 30_000,
        "spec_accepted_tokens": 12_600,
        "spec_drafts": 10_000,  # each draft has a first position
    }
    assert {measure: total(reading, measure) for measure in expected} == expected
    positions = [total(reading, "spec_accepted_at_position", position=p) for p in range(3)]
    assert positions == [6600, 3800, 2100]
    for measure in ("ttft_seconds", "tpot_seconds", "e2e_seconds", "queue_seconds"):
        assert total(reading, measure, Part.COUNT) == 200
        assert total(reading, measure, Part.BUCKET, le=math.inf) == 200
    assert total(reading, "e2e_seconds", Part.SUM) == 1378.9165216513773
    assert dict(reading.columns.ranks) == {}  # a process id is no rank


def test_it_tells_no_start_and_counts_at_the_end_of_a_request() -> None:
    reading = read(PAGE)
    assert (reading.start_token, list(reading.births)) == (None, [])
    assert not reading.live_progress


def test_what_it_does_not_export_has_its_reason() -> None:
    absent = read(PAGE).columns.absent
    assert absent["preemptions"].quality is Quality.UNSUPPORTED
    assert "paused now" in absent["preemptions"].note
    assert absent["itl_seconds"].quality is Quality.UNSUPPORTED
    assert absent["requests_aborted"].quality is Quality.UNKNOWN  # created at the first one


def test_identity_and_limits() -> None:
    sides = {"/version": {"version": "1.3.0"}, "/v1/models": {"data": [{"id": "other"}]}}
    reading = read(PAGE, sides)
    identity = reading.identity
    assert (identity.engine, identity.engine_version, identity.model) == (
        EngineKind.TRTLLM,
        "1.3.0",
        "tiny-random",
    )
    assert (identity.role, identity.stack) == (Role.AGGREGATED, None)
    assert dict(identity.sources) == {"engine_version": "/version", "model": "label model_name"}
    assert {key: (value.value, value.source) for key, value in reading.config.items()} == {
        "max_num_batched_tokens": (8192, "trtllm_max_num_tokens_runtime"),
        "max_num_seqs": (64, "trtllm_max_batch_size_runtime"),
        "num_gpu_blocks": (4096, "trtllm_kv_cache_max_blocks"),
        "block_size": (32, "trtllm_kv_cache_tokens_per_block"),
        "max_model_len": (8192, "model_config_info"),
        "tensor_parallel_size": (1, "parallel_config_info"),
        "num_speculative_tokens": (3, "speculative_config_info"),
        "speculative_method": ("Eagle3", "speculative_config_info"),
        "enable_prefix_caching": (True, "kv_cache_config_info"),
        "kv_free_memory_fraction": (0.9, "kv_cache_config_info"),
    }


def test_a_dynamo_worker_passes_the_series_through() -> None:
    """Dynamo's stand-in writes a colon, the old and the new name of the KV usage, and ITL instead of TPOT."""
    found = whose(page_of(DYNAMO).layout)
    assert found is not None
    reading = read(DYNAMO)
    assert (reading.identity.stack, reading.identity.model) == ("dynamo", "tiny")
    assert total(reading, "requests_running") == 11
    assert total(reading, "requests_waiting") == 21
    assert total(reading, "kv_usage_ratio") == 0.838  # once, not twice
    assert total(reading, "preemptions") == 0
    assert total(reading, "itl_seconds", Part.COUNT) == 1750
    assert total(reading, "ttft_seconds", Part.COUNT) == 22
    assert dict(reading.columns.ranks) == {"0": {"engine": "0"}}


@pytest.mark.parametrize("prefix", ["", "trtllm_"])
def test_the_first_releases_have_five_series_and_a_placeholder_for_a_name(prefix: str) -> None:
    labels = 'model_name="undefined",engine_type="undefined"'
    text = f'{prefix}request_success_total{{{labels},finished_reason="length"}} 5\n'
    text += f'{prefix}request_success_total{{{labels},finished_reason="cancelled"}} 2\n'
    for name in ("e2e_request_latency", "time_to_first_token", "time_per_output_token", "request_queue_time"):
        text += histogram_lines(f"{prefix}{name}_seconds", 7, labels=labels)
    reading = read(text, {"/v1/models": {"data": [{"id": "llama"}]}})
    assert (reading.identity.model, reading.identity.sources["model"]) == ("llama", "/v1/models")
    assert total(reading, "requests_finished") == 7
    assert total(reading, "requests_aborted") == 2
    for measure in ("ttft_seconds", "tpot_seconds", "e2e_seconds", "queue_seconds"):
        assert total(reading, measure, Part.COUNT) == 7
    missing = reading.columns.absent
    for measure in ("requests_running", "kv_usage_ratio", "generation_tokens"):
        assert missing[measure].quality is Quality.UNKNOWN
    assert "enable_iter_perf_stats" in missing["requests_running"].note


def test_names_without_a_prefix_are_its_own_by_their_labels_only() -> None:
    assert not recognise(page_of('e2e_request_latency_seconds_count{job="x"} 1\n').layout)
    assert whose(page_of('time_to_first_token_seconds_count{model_name="m"} 1\n').layout) is None


def test_a_page_without_cached_tokens_tells_the_share_in_blocks() -> None:
    reading = read("trtllm_kv_cache_reused_blocks_total 30\ntrtllm_kv_cache_missed_blocks_total 70\n")
    assert total(reading, "prefix_queries") == 30 + 70
    assert total(reading, "prefix_hits") == 30


def test_before_the_first_reuse_there_is_no_series_for_hits() -> None:
    reading = read("trtllm_kv_cache_missed_blocks_total 70\n")
    assert total(reading, "prefix_queries") == 70
    assert reading.columns.absent["prefix_hits"].quality is Quality.UNKNOWN


def test_gauges_of_two_processes_are_not_added() -> None:
    """A directory of an earlier process leaves its gauges on the page; counters are summed by the client."""
    one = 'trtllm_num_requests_running{model_name="m",pid="7"} 3\n'
    two = 'trtllm_num_requests_running{model_name="m",pid="12"} 48\n'
    for text in (one + two, two + one):
        assert total(read(text), "requests_running") == 3


def test_the_host_tier_and_transfers() -> None:
    reading = read(
        'trtllm_kv_cache_host_utilization{pid="1"} 0.25\n'
        "trtllm_kv_cache_offload_bytes_total 4096\n"
        "trtllm_kv_cache_onboard_bytes_total 1024\n"
        'trtllm_prompt_cache_hit_tokens_total{cache_level="0",cache_tier="gpu"} 900\n'
        'trtllm_prompt_cache_hit_tokens_total{cache_level="1",cache_tier="host"} 64\n'
        'trtllm_prompt_cache_hit_tokens_total{cache_level="2",cache_tier="disk"} 32\n'
        + histogram_lines("trtllm_kv_transfer_latency_seconds", 4)
    )
    assert total(reading, "kv_host_usage_ratio") == 0.25
    assert total(reading, "kv_offload_bytes") == 4096
    assert total(reading, "kv_onload_bytes") == 1024
    assert total(reading, "kv_host_hit_tokens") == 64
    assert total(reading, "kv_disk_hit_tokens") == 32
    assert total(reading, "kv_transfer_seconds", Part.COUNT) == 4


def test_nothing_of_the_host_tier_where_it_is_not_exported() -> None:
    absent = read(PAGE).columns.absent
    assert absent["kv_host_usage_ratio"].quality is Quality.UNSUPPORTED


@pytest.mark.parametrize("blocks", ["NaN", "0", "-1", "+Inf"])
def test_no_capacity_from_a_count_that_is_none(blocks: str) -> None:
    text = f"trtllm_kv_cache_max_blocks {blocks}\ntrtllm_kv_cache_tokens_per_block 32\n"
    reading = read(text)
    assert math.isnan(total(reading, "kv_capacity_tokens"))
    assert "num_gpu_blocks" not in reading.config


def test_an_iteration_is_movement() -> None:
    """While a long answer is generated no counter moves, but the gauges of the newest iteration do."""
    page = "trtllm_num_requests_running 1\ntrtllm_iteration_latency_seconds {}\n"
    before, after, same = (read(page.format(value)) for value in ("0.031", "0.032", "0.031"))
    assert before.progress_token != after.progress_token
    assert before.progress_token == same.progress_token


def test_the_order_of_lines_does_not_matter() -> None:
    lines = PAGE.decode().splitlines(keepends=True)
    random.Random(3).shuffle(lines)
    shuffled, ordered = read("".join(lines)), read(PAGE)
    for measure in measures(ordered):
        part = Part.COUNT if measure.endswith("_seconds") else Part.VALUE
        assert total(shuffled, measure, part) == total(ordered, measure, part), measure
    assert dict(shuffled.config) == dict(ordered.config)


def test_no_mutation_of_a_page_makes_trouble() -> None:
    for body in (*mutated_pages(PAGE, 60), *mutated_pages(DYNAMO, 20)):
        page = page_of(body)
        if recognise(page.layout):
            reading = TrtllmReader().read(Look(at=1.0, page=page))
            assert len(reading.values) == len(reading.columns.series)
