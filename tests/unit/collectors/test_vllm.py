"""vLLM's table against its pages, from 0.6 to 0.33. Expected values were read off the pages."""

from __future__ import annotations

import json
import math

import pytest

from collectors.engines.base import Look
from collectors.engines.vllm import VllmReader, recognise
from enginetop.fleet.model import EngineKind, Quality, Role
from enginetop.fleet.reading import Part, Reading
from tests.support.engine_pages import fixture, measures, page_of, total


def read(text: str | bytes, sides: dict[str, object] | None = None) -> Reading:
    page = page_of(text)
    assert recognise(page.layout)
    return VllmReader().read(Look(at=100.0, page=page, sides=sides or {}))


LOADED = fixture("vllm/0.32.0/vllm-0.32.0-loaded.prom")
SPECULATING = fixture("vllm/0.32.0/vllm-0.32.0-spec-2api-loaded.prom")
RUST = fixture("vllm/0.33.0/vllm-0.33.0-rustfrontend-idle.prom")


def test_a_loaded_server() -> None:
    reading = read(LOADED)
    expected = {
        "requests_running": 3,
        "requests_waiting": 36,  # its two reasons are a breakdown
        "kv_usage_ratio": 0.6666666666666667,
        "kv_capacity_tokens": 1280,
        "preemptions": 69,
        "prompt_tokens_processed": 4400,  # its sources are a breakdown
        "generation_tokens": 9538,
        "requests_finished": 38,
        "requests_aborted": 0,
        "requests_errored": 0,
        "prefix_queries": 4400,
        "prefix_hits": 2304,
        "external_prefix_queries": 0,
        "external_prefix_hits": 0,
    }
    assert {measure: total(reading, measure) for measure in expected} == expected
    counts = {
        "ttft_seconds": 44,
        "tpot_seconds": 38,
        "itl_seconds": 9494,
        "e2e_seconds": 38,
        "queue_seconds": 38,
        "prompt_tokens": 38,
        "output_tokens": 38,
        "iteration_tokens": 1775,
    }
    assert {measure: total(reading, measure, Part.COUNT) for measure in counts} == counts
    assert total(reading, "iteration_tokens", Part.SUM) == 11634
    assert total(reading, "ttft_seconds", Part.BUCKET, le=math.inf) == 44
    assert reading.start_token == 1.79598333344e9
    assert reading.live_progress
    assert dict(reading.columns.ranks) == {"0": {"engine": "0"}}


def test_identity_config_and_flags() -> None:
    sides = {"/version": {"version": "0.32.0"}, "/v1/models": {"data": [{"id": "x", "max_model_len": 512}]}}
    reading = read(LOADED, sides)
    assert (reading.identity.engine, reading.identity.engine_version) == (EngineKind.VLLM, "0.32.0")
    assert (reading.identity.model, reading.identity.stack) == ("tiny", None)
    assert {key: (value.value, value.source) for key, value in reading.config.items()} == {
        "block_size": (32, "cache_config_info"),
        "num_gpu_blocks": (40, "cache_config_info"),
        "kv_cache_dtype": ("auto", "cache_config_info"),
        "gpu_memory_utilization": (0.92, "cache_config_info"),
        "enable_prefix_caching": (True, "cache_config_info"),
        "max_model_len": (512, "/v1/models"),
    }
    assert reading.flags.sleeping is False


def test_start_values_of_the_development_page() -> None:
    info = json.loads(fixture("vllm/0.32.0/vllm-0.32.0-server_info.json"))
    reading = read(LOADED, {"/server_info": info})
    started = {key: value.value for key, value in reading.config.items() if "as started" in value.source}
    assert started == {  # no speculation, no KV transfer: nothing to tell of them
        "max_num_batched_tokens": 512,
        "max_num_seqs": 16,
        "max_num_queued_reqs": 200,
        "tensor_parallel_size": 1,
        "data_parallel_size": 1,
        "reasoning_parser": "deepseek_r1",
    }
    assert reading.config["block_size"].source == "cache_config_info"  # the live page wins over the start


@pytest.mark.parametrize(
    ("kv_role", "role"),
    [
        ("kv_producer", Role.PREFILL),
        ("kv_consumer", Role.DECODE),
        ("kv_both", Role.AGGREGATED),
        (7, Role.AGGREGATED),
        (None, Role.AGGREGATED),
    ],
)
def test_the_role_in_a_disaggregated_pool(kv_role: object, role: Role) -> None:
    identity = read(
        LOADED, {"/server_info": {"vllm_config": {"kv_transfer_config": {"kv_role": kv_role}}}}
    ).identity
    assert identity.role is role
    assert identity.sources.get("role", "") == ("" if role is Role.AGGREGATED else "/server_info kv_role")


def test_where_the_identity_was_read() -> None:
    card = {"data": [{"id": "/models/m"}]}
    named = read(LOADED, {"/version": {"version": "0.32.0"}, "/v1/models": card}).identity
    assert named.sources == {"engine_version": "/version", "model": "label model_name"}
    unnamed = read("vllm:num_requests_running 1\n", {"/v1/models": card}).identity
    assert (unnamed.model, unnamed.sources) == ("/models/m", {"model": "/v1/models"})
    assert read("vllm:num_requests_running 1\n").identity.sources == {}


@pytest.mark.parametrize(
    "info", [{"vllm_config": "VllmConfig(...)"}, {"vllm_config": {"scheduler_config": None}}, {}, None]
)
def test_a_development_page_that_tells_no_settings(info: object) -> None:
    reading = read(LOADED, {"/server_info": info})
    assert "max_num_batched_tokens" not in reading.config
    assert reading.config["block_size"].value == 32


def test_several_api_servers_with_speculation() -> None:
    reading = read(SPECULATING)
    assert total(reading, "spec_drafts") == 416
    assert total(reading, "spec_draft_tokens") == 1552
    assert total(reading, "spec_accepted_tokens") == 1488
    positions = [total(reading, "spec_accepted_at_position", position=p) for p in range(4)]
    assert positions == [400, 368, 368, 352]
    assert reading.config["num_speculative_tokens"].value == 4
    # Multiprocess mode has neither a start time nor births.
    assert (reading.start_token, list(reading.births)) == (None, [])


def test_births_of_a_single_api_server() -> None:
    reading = read(LOADED)
    born = {reading.columns.series[i].measure for group in reading.columns.birth_groups for i in group}
    assert {"generation_tokens", "requests_finished", "ttft_seconds", "iteration_tokens"} <= born
    assert all(1.7959e9 < birth < 1.7961e9 for birth in reading.births)


def test_the_rust_frontend_before_its_first_request() -> None:
    reading = read(RUST)
    assert total(reading, "generation_tokens") == 0
    assert total(reading, "requests_running") == 0
    assert total(reading, "iteration_tokens", Part.COUNT) == 0
    for later in ("prompt_tokens_processed", "requests_finished", "requests_aborted", "ttft_seconds"):
        assert reading.columns.absent[later].quality is Quality.UNKNOWN
    assert reading.columns.absent["kv_capacity_tokens"].quality is Quality.UNSUPPORTED
    assert reading.flags.sleeping is None
    assert reading.start_token is None


def test_before_the_first_engine_step_the_gauges_are_not_known_yet() -> None:
    reading = read(fixture("vllm/0.32.0/vllm-0.32.0-spec-2api-idle.prom"))
    for gauge in ("requests_running", "requests_waiting", "kv_usage_ratio"):
        absent = reading.columns.absent[gauge]
        assert (absent.quality, absent.note) == (Quality.UNKNOWN, "set at the first engine step")


def _histogram(name: str, count: int) -> str:
    return f'{name}_bucket{{le="+Inf"}} {count}\n{name}_sum 1\n{name}_count {count}\n'


# What a release is the first, or the last, to expose: lines, then the values they mean. ABSENT: no series.
ABSENT = None
RELEASES = {
    "0.6 kv": ("vllm:gpu_cache_usage_perc 0.3\nvllm:cpu_cache_usage_perc 0.9\n", "kv_usage_ratio", 0.3),
    "0.6 prefix": (
        "vllm:gpu_prefix_cache_hit_rate 0.5\nvllm:num_requests_running 1\n",
        "prefix_hits",
        ABSENT,
    ),
    "0.6 swapped": ("vllm:num_requests_swapped 4\nvllm:num_requests_waiting 2\n", "requests_waiting", 2),
    "0.8 prefix": ("vllm:gpu_prefix_cache_hits_total 6\n", "prefix_hits", 6),
    "0.9.2 prefix": (
        "vllm:gpu_prefix_cache_hits_total 6\nvllm:prefix_cache_hits_total 96\n",
        "prefix_hits",
        96,
    ),
    "0.9.2 kv": ("vllm:gpu_cache_usage_perc 0.62\nvllm:kv_cache_usage_perc 0.62\n", "kv_usage_ratio", 0.62),
    "0.12 kv": ("vllm:kv_cache_usage_perc 0.62\n", "kv_usage_ratio", 0.62),
    "0.8 itl": (_histogram("vllm:time_per_output_token_seconds", 100), "itl_seconds", 100),
    "0.8 tpot": (_histogram("vllm:time_per_output_token_seconds", 100), "tpot_seconds", ABSENT),
    "0.11 itl": (
        _histogram("vllm:time_per_output_token_seconds", 100)
        + _histogram("vllm:inter_token_latency_seconds", 100),
        "itl_seconds",
        100,
    ),
    "0.11 tpot": (_histogram("vllm:request_time_per_output_token_seconds", 7), "tpot_seconds", 7),
    "0.6 drafts": ("vllm:spec_decode_num_draft_tokens_total 9\n", "spec_drafts", ABSENT),
    "0.8.5 drafts": ("vllm:spec_decode_num_drafts_total 9\n", "spec_drafts", 9),
    "0.11.1 external": ("vllm:external_prefix_cache_hits_total 5\n", "external_prefix_hits", 5),
    "0.20 reasons": (
        (
            'vllm:num_requests_waiting 5\nvllm:num_requests_waiting_by_reason{reason="capacity"} 3\n'
            'vllm:num_requests_waiting_by_reason{reason="deferred"} 2\n'
        ),
        "requests_waiting",
        5,
    ),
    "rust": (
        "# TYPE vllm:prompt_tokens counter\nvllm:prompt_tokens_total 345\n# EOF\n",
        "prompt_tokens_processed",
        345,
    ),
    "underscores": ("vllm_num_requests_running 4\n", "requests_running", 4),
    "ray": ('ray_vllm_num_requests_running{ReplicaId="a"} 4\n', "requests_running", 4),
    "both spellings": ("vllm:num_requests_running 4\nvllm_num_requests_running 4\n", "requests_running", 4),
}


@pytest.mark.parametrize("release", RELEASES)
def test_every_release_has_its_names(release: str) -> None:
    text, measure, expected = RELEASES[release]
    reading = read(text)
    if expected is ABSENT:
        assert measure not in measures(reading)
        assert reading.columns.absent[measure].quality is Quality.UNSUPPORTED
        assert reading.columns.absent[measure].note
        return
    part = Part.COUNT if "_count" in text else Part.VALUE
    assert total(reading, measure, part) == expected


def test_renamed_series_are_one_and_their_end_is_no_change() -> None:
    old = "vllm:gpu_cache_usage_perc 0.62\n" + _histogram("vllm:time_per_output_token_seconds", 100)
    new = "vllm:kv_cache_usage_perc 0.62\n" + _histogram("vllm:inter_token_latency_seconds", 100)
    both, later = read(old + new), read(new)
    for reading in (both, later):
        assert total(reading, "kv_usage_ratio") == 0.62
        assert total(reading, "itl_seconds", Part.COUNT) == 100
    assert [s.key for s in both.columns.series] == [s.key for s in later.columns.series]


LORA = """\
vllm:num_requests_running 1
vllm:lora_requests_info{max_lora="1",running_lora_adapters="",waiting_lora_adapters=""} 1739557565.76
vllm:lora_requests_info{max_lora="1",running_lora_adapters="a",waiting_lora_adapters=""} 1739557572.39
vllm:lora_requests_info{max_lora="1",running_lora_adapters="a",waiting_lora_adapters="a"} 1739557571.76
"""
LORA_MEASURES = ("lora_running_adapters", "lora_waiting_adapters", "lora_slots_total")


def lora_line(running: str, waiting: str, value: object, slots: str = "4") -> str:
    labels = f'max_lora="{slots}",running_lora_adapters="{running}",waiting_lora_adapters="{waiting}"'
    return f"vllm:lora_requests_info{{{labels}}} {value}\n"


def test_lora_information_is_a_time_and_the_newest_holds() -> None:
    # Worked case H17: label sets of the past stay for ever; running {a}, waiting {}.
    reading = read(LORA)
    assert [total(reading, measure) for measure in LORA_MEASURES] == [1, 0, 1]
    assert total(reading, "requests_running") == 1
    assert len(reading.values) == 4


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([("", "", 5)], [0, 0, 4]),  # no adapters is a number
        ([("a,b", "c", 5), ("a", "", 4)], [2, 1, 4]),
        ([("a, b,a", " c,", 5)], [2, 1, 4]),
        ([("a", "", "NaN"), ("", "b", 3)], [0, 1, 4]),
    ],
)
def test_adapters_of_the_newest_set(lines: list[tuple[str, str, object]], expected: list[float]) -> None:
    reading = read("vllm:num_requests_running 1\n" + "".join(lora_line(*line) for line in lines))
    assert [total(reading, measure) for measure in LORA_MEASURES] == expected


def test_adapters_that_nothing_tells() -> None:
    assert not set(LORA_MEASURES) & measures(read("vllm:num_requests_running 1\n"))
    # The Rust frontend announces the gauge without LoRA.
    assert not set(LORA_MEASURES) & measures(
        read("# TYPE vllm:lora_requests_info gauge\nvllm:num_requests_running 1\n")
    )
    untimed = read("vllm:num_requests_running 1\n" + lora_line("a", "", "NaN", slots="None"))
    assert all(math.isnan(total(untimed, measure)) for measure in LORA_MEASURES)


def test_ranks_are_apart_and_each_has_its_capacity() -> None:
    text = "".join(
        f'vllm:num_requests_running{{engine="{rank}"}} {rank + 1}\n'
        f'vllm:cache_config_info{{engine="{rank}",block_size="16",num_gpu_blocks="{rank + 100}"}} 1\n'
        for rank in range(3)
    )
    reading = read(text)
    assert [total(reading, "requests_running", rank=str(rank)) for rank in range(3)] == [1, 2, 3]
    assert [total(reading, "kv_capacity_tokens", rank=str(rank)) for rank in range(3)] == [1600, 1616, 1632]


@pytest.mark.parametrize(
    ("labels", "capacity"),
    [
        ('block_size="16",num_gpu_blocks="None"', ABSENT),
        ('block_size="None",num_gpu_blocks="100"', ABSENT),
        ('block_size="16",num_gpu_blocks="100"', 1600),
        ('block_size="16",num_gpu_blocks="100",kv_cache_size_tokens="None"', 1600),
        ('block_size="16",num_gpu_blocks="100",kv_cache_size_tokens="1584"', 1584),
        ('block_size="16",num_gpu_blocks="0"', ABSENT),
        ('block_size="16",num_gpu_blocks="True"', ABSENT),
        (f'block_size="16",num_gpu_blocks="{"9" * 400}"', ABSENT),
        ('block_size="16",num_gpu_blocks="1e3"', ABSENT),
        ('block_size="16"', ABSENT),
    ],
)
def test_capacity_is_what_the_cache_config_says_or_nothing(labels: str, capacity: float | None) -> None:
    reading = read(f"vllm:num_requests_running 1\nvllm:cache_config_info{{{labels}}} 1\n")
    if capacity is ABSENT:
        assert "kv_capacity_tokens" not in measures(reading)
        assert "kv_capacity_tokens" in reading.columns.absent
    else:
        assert total(reading, "kv_capacity_tokens") == capacity


def test_a_field_that_is_none_is_no_setting() -> None:
    reading = read(
        'vllm:num_requests_running 1\nvllm:cache_config_info{block_size="16",num_gpu_blocks="None"} 1\n'
    )
    assert "num_gpu_blocks" not in reading.config
    assert reading.config["block_size"].value == 16


def _sleep(awake: float, offloaded: float, discarded: float, engine: int = 0) -> str:
    states = (("awake", awake), ("weights_offloaded", offloaded), ("discard_all", discarded))
    return "".join(
        f'vllm:engine_sleep_state{{engine="{engine}",sleep_state="{name}"}} {value}\n'
        for name, value in states
    )


@pytest.mark.parametrize(
    ("text", "sleeping"),
    [
        (_sleep(1, 0, 0), False),
        (_sleep(0, 1, 0), True),
        (_sleep(0, 0, 1), True),
        (_sleep(0, 0, 0), True),  # level 0 sets no state of its own
        (_sleep(0, 1, 0) + _sleep(1, 0, 0, engine=1), False),
        (_sleep(float("nan"), 0, 0), None),
        ("", None),
    ],
)
def test_sleeping(text: str, sleeping: bool | None) -> None:
    assert read("vllm:num_requests_running 0\n" + text).flags.sleeping is sleeping


@pytest.mark.parametrize(
    ("label", "served", "model"),
    [
        ("/models/Llama-3.2-3B/", None, "/models/Llama-3.2-3B/"),
        ("undefined", None, None),
        ("undefined", "m", "m"),
        ("", "undefined", None),
        ("a", "b", "a"),
    ],
)
def test_the_model_is_named_in_full_or_not_at_all(label: str, served: str | None, model: str | None) -> None:
    sides: dict[str, object] = {"/v1/models": {"data": [{"id": served}]}} if served else {}
    assert read(f'vllm:num_requests_running{{model_name="{label}"}} 0\n', sides).identity.model == model


@pytest.mark.parametrize(
    "body",
    [None, [], {}, {"data": None}, {"data": [None, 3]}, {"data": [{"id": 5, "max_model_len": "x"}]}, "x"],
)
def test_side_pages_of_any_shape_are_no_fault(body: object) -> None:
    reading = read(LOADED, {"/version": body, "/v1/models": body})
    assert reading.identity.engine_version is None
    assert "max_model_len" not in reading.config


def test_text_from_side_pages_is_clean() -> None:
    reading = read(LOADED, {"/version": {"version": "0.3\x1b[2J2"}})
    assert reading.identity.engine_version is not None
    assert reading.identity.engine_version.isprintable()


def test_a_simulator_says_so() -> None:
    assert read("vllm:num_requests_running 0\nenginetop_simulated 1\n").identity.simulated
    assert not read("vllm:num_requests_running 0\n").identity.simulated


def test_a_dynamo_worker_is_its_engine_in_the_stack() -> None:
    reading = read(fixture("dynamo/1.6.1/dynamo-1.6.1-worker1-kvpressure.prom"))
    assert (reading.identity.engine, reading.identity.stack) == (EngineKind.VLLM, "dynamo")


@pytest.mark.parametrize(
    "text",
    [
        "python_gc_objects_collected_total 1\n",
        'vllm:num_requests_running{server="http://a:8000"} 3\n',
        "vllm:healthy_pods_total 3\n",
        "sglang:num_running_reqs 3\n",
        "",
    ],
)
def test_pages_that_are_no_vllm(text: str) -> None:
    assert not recognise(page_of(text).layout)
