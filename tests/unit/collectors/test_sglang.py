"""SGLang's table against its pages, 0.4.6 to 0.5.23. Expected values were read off the pages by hand."""

from __future__ import annotations

import json
import math

import pytest

from collectors.engines.base import Look
from collectors.engines.sglang import SglangReader
from collectors.engines.sglang_page import recognise
from enginetop.fleet.model import EngineKind, Quality, Role
from enginetop.fleet.reading import Part, Reading
from tests.support.engine_pages import fixture, measures, page_of, total

ABSENT = None
LOADED = fixture("sglang/0.5.23/sglang-0.5.23-load-queued.prom")
KV_FULL = fixture("sglang/0.5.23/sglang-0.5.23-load-kv-full.prom")
IDLE = fixture("sglang/0.5.23/sglang-0.5.23-idle-nogen.prom")
LOADS = json.loads(fixture("sglang/0.5.23/sglang-0.5.23-load-v1_loads.json"))


def read(
    text: str | bytes, sides: dict[str, object] | None = None, reader: SglangReader | None = None
) -> Reading:
    page = page_of(text)
    assert recognise(page.layout)
    sides = sides or {}
    look = Look(at=100.0, page=page, sides=sides, fresh_sides=frozenset(sides))
    return (reader or SglangReader()).read(look)


def counts_of(reading: Reading, *names: str) -> dict[str, float]:
    return {name: total(reading, name, Part.COUNT) for name in names}


def values_of(reading: Reading, *names: str) -> dict[str, float]:
    return {name: total(reading, name) for name in names}


# Pages of 0.5.23


def test_a_loaded_server() -> None:
    reading = read(LOADED)
    expected = {
        "requests_running": 4,
        "requests_waiting": 15,
        "kv_usage_ratio": 0.78,
        "kv_capacity_tokens": 4096,
        "generation_tokens": 5769,  # realtime_tokens decode: 3201 ended, the rest runs
        "prompt_tokens_processed": 1789,  # 636 + 1153, by is_streaming
        "requests_finished": 6,  # 3 + 3
        "prefix_queries": 3085,  # input 1333 + device_hit 1752
        "prefix_hits": 1752,
        "prefill_steps": 9,  # prefill_none: no graph on a CPU
        "prefill_step_tokens": 1333,
        "grammar_waiting_requests": 0,
    }
    assert values_of(reading, *expected) == expected
    counts = {
        "ttft_seconds": 10,  # 4 + 6
        "tpot_seconds": 6,
        "itl_seconds": 5589,
        "e2e_seconds": 6,
        "queue_seconds": 10,
        "prompt_tokens": 6,
        "output_tokens": 6,
    }
    assert counts_of(reading, *counts) == counts
    assert total(reading, "ttft_seconds", Part.SUM) == pytest.approx(22.29319737871151 + 57.34063233799975)
    assert total(reading, "ttft_seconds", Part.BUCKET, le=0.2) == 4  # 2 + 2
    assert total(reading, "output_tokens", Part.SUM) == 3201
    assert dict(reading.columns.ranks) == {}
    assert reading.live_progress
    assert reading.start_token == 2.7835187969999424  # startup_time_seconds of the scheduler


def test_what_a_loaded_server_lacks_says_why() -> None:
    absent = read(LOADED).columns.absent
    unknown = {"preemptions", "requests_aborted"}  # counters that begin with the first event
    unsupported = {
        *("requests_errored", "reasoning_tokens", "iteration_tokens", "spec_accepted_at_position"),
        *("spec_drafts", "spec_draft_tokens", "spec_accepted_tokens"),
        *("external_prefix_queries", "external_prefix_hits"),
    }
    assert {name for name in unknown | unsupported if absent[name].note} == unknown | unsupported
    assert {absent[name].quality for name in unknown} == {Quality.UNKNOWN}
    assert {absent[name].quality for name in unsupported} == {Quality.UNSUPPORTED}
    assert "hierarchical" in absent["external_prefix_hits"].note


def test_totals_of_the_scheduler_and_single_priorities_of_requests() -> None:
    # With priority scheduling: num_running_reqs{priority=""} 4 and {priority="0"} 4 are the same requests,
    # and requests are counted under {priority="0"} only.
    reading = read(KV_FULL)
    expected = {
        "requests_running": 4,
        "requests_waiting": 19,
        "kv_usage_ratio": 0.99,
        "kv_capacity_tokens": 4096,
        "preemptions": 1,
        "generation_tokens": 5026,
        "prompt_tokens_processed": 553,  # 122 + 431
        "requests_finished": 9,  # 8 + 1
        "prefix_queries": 2271,  # 1081 + 1190
        "prefix_hits": 1190,
    }
    assert values_of(reading, *expected) == expected
    counts = {"ttft_seconds": 14, "itl_seconds": 4514, "e2e_seconds": 9, "queue_seconds": 14}
    assert counts_of(reading, *counts) == counts


def test_a_server_that_has_served_nothing() -> None:
    reading = read(IDLE)
    # Its gauges come with the first step of the scheduler; it is a whole engine all the same.
    assert measures(reading) >= {"kv_capacity_tokens", "prefix_queries", "prefix_hits"}
    assert not measures(reading) & {"requests_running", "requests_waiting", "kv_usage_ratio", "ttft_seconds"}
    for measure in ("requests_running", "kv_usage_ratio", "generation_tokens", "ttft_seconds"):
        assert reading.columns.absent[measure].quality is Quality.UNKNOWN
        assert reading.columns.absent[measure].note
    assert values_of(reading, "prefix_queries", "kv_capacity_tokens") == {
        "prefix_queries": 0,
        "kv_capacity_tokens": 4096,
    }
    assert not reading.live_progress


def test_a_pause_in_place_does_not_show_on_the_page() -> None:
    reading = read(fixture("sglang/0.5.23/sglang-0.5.23-paused.prom"))
    assert reading.flags.paused is None  # no page says so
    assert values_of(reading, "requests_running", "generation_tokens", "requests_finished") == {
        "requests_running": 1,
        "generation_tokens": 18503,
        "requests_finished": 25,  # 9 + 16
    }


def test_after_the_load() -> None:
    reading = read(fixture("sglang/0.5.23/sglang-0.5.23-idle-after-load.prom"))
    expected = {
        "requests_running": 1,
        "requests_waiting": 0,
        "kv_usage_ratio": 0.29,
        "generation_tokens": 19546,
        "prompt_tokens_processed": 7821,  # 2433 + 5388
        "requests_finished": 25,
        "prefix_queries": 7826,  # 2787 + 5039
        "prefix_hits": 5039,
    }
    assert values_of(reading, *expected) == expected


@pytest.mark.parametrize(
    ("name", "role", "running", "transfers"),
    [
        ("pd-prefill", Role.PREFILL, 12, 14),  # bootstrap 5 + inflight 9
        ("pd-decode", Role.DECODE, 61, 20),  # prealloc 14 + transfer 6
    ],
)
def test_the_two_halves_of_a_disaggregated_pair(name: str, role: Role, running: int, transfers: int) -> None:
    reading = read(fixture(f"sglang/0.5.23/sglang-0.5.23-collector-{name}.prom"))
    assert reading.identity.role is role
    assert reading.identity.sources["role"] == "label engine_type"
    assert {rank: dict(labels) for rank, labels in reading.columns.ranks.items()} == {"0": {"dp_rank": "0"}}
    expected = {
        "requests_running": running,
        "requests_waiting": 7,  # the queue alone: transfers are no waiting for a place
        "transfer_waiting_requests": transfers,
        "kv_transfer_failures": 2,  # 1 transfer + 1 bootstrap
        "preemptions": 3,
        "lora_slots_used": 3,
        "lora_slots_total": 8,
        "kv_host_used_tokens": 1.5e6,
        "kv_host_total_tokens": 2e6,
        "kv_host_hit_tokens": 0,
    }
    assert values_of(reading, *expected) == expected
    assert total(reading, "kv_transfer_seconds", Part.SUM) == pytest.approx(0.270)  # 270 ms
    assert total(reading, "kv_transfer_seconds", Part.BUCKET, le=0.025) == 1
    assert total(reading, "kv_transfer_seconds", Part.COUNT) == 3


def test_the_engines_own_mean_of_its_speculation() -> None:
    reading = read(fixture("sglang/0.5.23/sglang-0.5.23-collector-spec.prom"))
    assert values_of(reading, "spec_accepted_length_now", "spec_acceptance_ratio_now") == {
        "spec_accepted_length_now": 2.84,
        "spec_acceptance_ratio_now": 0.61,
    }
    told = reading.config["num_speculative_tokens"]
    # It verifies 4 tokens a step, of which one is not drafted; spec_num_steps is 3 as well.
    assert (told.value, told.source) == (3, "sglang:spec_num_draft_tokens")


def test_a_zero_for_speculation_is_none() -> None:
    reading = read(LOADED)
    assert math.isnan(total(reading, "spec_accepted_length_now"))
    assert math.isnan(total(reading, "spec_acceptance_ratio_now"))
    assert "num_speculative_tokens" not in reading.config


# Older releases: generated by SGLang's own classes


def test_0_4_6() -> None:
    reading = read(fixture("sglang/0.4.6/sglang-0.4.6-collector.prom"))
    expected = {
        "requests_running": 61,
        "requests_waiting": 7,
        "kv_usage_ratio": 0.91,
        "prompt_tokens_processed": 1200,
        "generation_tokens": 340,  # the finish counter: it has no other
        "requests_finished": 1,
        "prefix_queries": 1200,  # prompt_tokens
        "prefix_hits": 800,  # cached_tokens
        "spec_accepted_length_now": 2.84,
    }
    assert values_of(reading, *expected) == expected
    assert counts_of(reading, "ttft_seconds", "itl_seconds", "e2e_seconds") == {
        "ttft_seconds": 1,
        "itl_seconds": 10,
        "e2e_seconds": 1,
    }
    lacking = ("preemptions", "requests_aborted", "kv_capacity_tokens", "queue_seconds", "tpot_seconds")
    assert {reading.columns.absent[name].quality for name in lacking} == {Quality.UNSUPPORTED}
    assert reading.identity.model == "demo-70b"


def test_0_5_2() -> None:
    reading = read(fixture("sglang/0.5.2/sglang-0.5.2-collector.prom"))
    expected = {
        "requests_running": 61,
        "requests_waiting": 7,
        "kv_usage_ratio": 0.91,
        "preemptions": 9,  # total_retracted_reqs, a gauge that counts; num_retracted_reqs 2 is of an interval
        "generation_tokens": 340,
        "prefix_queries": 1200,
        "prefix_hits": 800,
        "grammar_waiting_requests": 1,
    }
    assert values_of(reading, *expected) == expected
    assert "transfer_waiting_requests" not in measures(reading)  # a unified server
    assert "kv_transfer_seconds" not in measures(reading)  # a gauge then


def test_0_5_15() -> None:
    reading = read(fixture("sglang/0.5.15/sglang-0.5.15-collector.prom"))
    expected = {
        "requests_running": 61,
        "requests_waiting": 7,
        "kv_usage_ratio": 0.91,
        "generation_tokens": 340,
        "prefix_hits": 800,  # cache_source="total"
        "spec_accepted_length_now": 2.84,
        "spec_acceptance_ratio_now": 0.61,
    }
    assert values_of(reading, *expected) == expected
    counts = {"queue_seconds": 3, "prompt_tokens": 1, "output_tokens": 1, "ttft_seconds": 1}
    assert counts_of(reading, *counts) == counts


# Names and labels


@pytest.mark.parametrize(
    ("text", "measure", "expected"),
    [
        ('sglang_num_running_reqs{model_name="m"} 3\n', "requests_running", 3),
        ("sglang:num_running_reqs 3\nsglang_num_running_reqs 4\n", "requests_running", 3),
        ("sglang:num_retracted_requests_total 5\nsglang:total_retracted_reqs 4\n", "preemptions", 5),
        ("sglang:num_aborted_requests 5\n", "requests_aborted", 5),
        ("sglang:num_aborted_requests_total 6\nsglang:num_aborted_requests 5\n", "requests_aborted", 6),
        ("sglang:queue_time_s_count 5\nsglang:num_running_reqs 1\n", "queue_seconds_count", 5),
        # 0.5.9 to 0.5.22: the tokens as they are computed, before the effective ones came.
        (
            (
                'sglang:realtime_tokens_total{mode="prefill_compute"} 30\n'
                'sglang:realtime_tokens_total{mode="prefill_cache"} 10\n'
                'sglang:realtime_tokens_total{mode="decode"} 7\n'
                "sglang:cached_tokens_total 900\nsglang:prompt_tokens_total 1000\n"
            ),
            "prefix_hits",
            10,
        ),
        (
            (
                'sglang:realtime_tokens_total{mode="prefill_compute"} 30\n'
                'sglang:realtime_tokens_total{mode="prefill_cache"} 10\n'
                "sglang:prompt_tokens_total 1000\n"
            ),
            "prefix_queries",
            40,
        ),
        (
            'sglang:realtime_tokens_total{mode="decode"} 7\nsglang:generation_tokens_total 5\n',
            "generation_tokens",
            7,
        ),
        (
            (
                'sglang:cached_tokens_total{cache_source="device"} 5\n'
                'sglang:cached_tokens_total{cache_source="host"} 3\n'
            ),
            "prefix_hits",
            8,
        ),
        # Grammar waiters and transfers are no part of the queue.
        ("sglang:num_queue_reqs 2\nsglang:num_grammar_queue_reqs 9\n", "requests_waiting", 2),
        # A capacity of 0 is one that is not set yet.
        ("sglang:max_total_num_tokens 0\n", "kv_capacity_tokens", math.nan),
        ("sglang:max_total_num_tokens 100\n", "kv_capacity_tokens", 100),
        (
            (
                'sglang:http_responses_total{endpoint="/generate",status_code="503"} 4\n'
                'sglang:http_responses_total{endpoint="/health",status_code="503"} 99\n'
                'sglang:http_responses_total{endpoint="/generate",status_code="200"} 50\n'
            ),
            "requests_rejected",
            4,
        ),
    ],
)
def test_names_by_version(text: str, measure: str, expected: float) -> None:
    reading = read(text)
    part = Part.COUNT if measure.endswith("_count") else Part.VALUE
    assert total(reading, measure.removesuffix("_count"), part) == pytest.approx(expected, nan_ok=True)


def test_series_of_a_gateway_are_not_the_servers() -> None:
    text = (
        'sglang_num_running_reqs{worker_addr="http://a"} 9\nsglang_token_usage{worker_addr="http://a"} 0.9\n'
    )
    assert not recognise(page_of(text).layout)
    assert not recognise(page_of("sglang_router_requests_total 1\n").layout)
    both = read(text + "sglang:num_running_reqs 2\n")
    assert total(both, "requests_running") == 2
    assert "kv_usage_ratio" not in measures(both)


def ranked(dp: int, tp: int, name: str, value: int, **labels: str) -> str:
    """A series of every scheduler: `value` plus its data-parallel rank, whatever the tensor rank."""
    extra = "".join(f',{key}="{text}"' for key, text in labels.items())
    return "".join(
        f'sglang:{name}{{dp_rank="{d}",tp_rank="{d * tp + t}",pp_rank="{p}",moe_ep_rank="{t}"{extra}}} '
        f"{value + d}\n"
        for d in range(dp)
        for p in range(2)
        for t in range(tp)
    )


def test_tensor_and_pipeline_ranks_are_the_same_requests_and_data_parallel_ranks_are_added() -> None:
    text = ranked(3, 4, "num_running_reqs", 10) + ranked(3, 4, "num_retracted_requests_total", 5)
    text += ranked(3, 4, "realtime_tokens_total", 100, mode="decode") + ranked(3, 4, "token_usage", 0)
    reading = read(text)
    assert sorted(reading.columns.ranks) == ["0", "1", "2"]
    assert values_of(reading, "requests_running", "preemptions", "generation_tokens") == {
        "requests_running": 33,  # 10 + 11 + 12, of 24 series
        "preemptions": 18,  # 5 + 6 + 7
        "generation_tokens": 303,
    }
    assert [total(reading, "requests_running", rank=str(rank)) for rank in range(3)] == [10, 11, 12]


def test_the_prefix_cache_names_a_rank_where_there_is_one_only() -> None:
    text = LOADED.decode() + 'sglang:load_back_bytes_total{cache_type="c",dp_rank="0",tp_rank="0"} 70\n'
    reading = read(text)
    assert dict(reading.columns.ranks) == {}
    assert total(reading, "kv_onload_bytes") == 70
    assert total(reading, "requests_running", rank="") == 4


def test_external_hits_where_there_is_a_host_tier() -> None:
    text = "".join(
        f'sglang:prefill_effective_tokens_total{{mode="{mode}"}} {value}\n'
        for mode, value in {"input": 100, "device_hit": 50, "host_hit": 30, "storage_hit": 7}.items()
    )
    assert "external_prefix_hits" not in measures(read(text))
    reading = read(text + "sglang:hicache_host_total_tokens 5000\n")
    assert values_of(
        reading,
        *("external_prefix_queries", "external_prefix_hits", "prefix_hits", "prefix_queries"),
        *("kv_host_hit_tokens", "kv_remote_hit_tokens"),
    ) == {
        "external_prefix_queries": 137,  # all that the device did not hold
        "external_prefix_hits": 37,
        "prefix_hits": 87,
        "prefix_queries": 187,
        "kv_host_hit_tokens": 30,
        "kv_remote_hit_tokens": 7,
    }


# Progress, restarts, pauses


@pytest.mark.parametrize(
    ("line", "moves"),
    [
        ('sglang:realtime_tokens_total{mode="decode"}', True),
        ("sglang:inter_token_latency_seconds_count", True),
        ("sglang:generation_tokens_total", True),
        ('sglang:http_requests_total{endpoint="/metrics"}', False),
        ('sglang:http_responses_total{endpoint="/v1/loads"}', False),
        ("sglang:get_loads_duration_seconds_count", False),
        ("sglang:scheduler_idle_seconds_total", False),
        ("sglang:scheduler_process_cpu_seconds_total", False),
        ('sglang:scheduler_stage_seconds_total{category="idle"}', False),
        ('sglang:process_cpu_seconds_total{component="tokenizer"}', False),
        ("sglang:gen_throughput", False),
    ],
)
def test_what_is_progress(line: str, moves: bool) -> None:
    start = "# TYPE sglang:gen_throughput gauge\nsglang:num_running_reqs 3\n"
    tokens = [read(f"{start}{line} {value}\n").progress_token for value in (1, 2)]
    assert (tokens[0] != tokens[1]) is moves


def test_a_restart_has_another_start() -> None:
    page = 'sglang:num_running_reqs 1\nsglang:startup_time_seconds{phase="scheduler_e2e"} %s\n'
    assert [read(page % value).start_token for value in ("2.5", "2.75", "0", "NaN")] == [
        2.5,
        2.75,
        None,
        None,
    ]
    assert read("sglang:num_running_reqs 1\n").start_token is None


# Speculation from the counters of ended requests


def ended(tokens: int, requests: int, steps: int, verified: int = 4, start: str = "2.5") -> str:
    return (
        f"sglang:generation_tokens_total {tokens}\nsglang:num_requests_total {requests}\n"
        f"sglang:spec_verify_calls_total {steps}\nsglang:spec_num_draft_tokens {verified}\n"
        f'sglang:startup_time_seconds{{phase="scheduler_e2e"}} {start}\n'
    )


def spec_of(reading: Reading) -> tuple[float, float, float]:
    names = ("spec_drafts", "spec_draft_tokens", "spec_accepted_tokens")
    drafts, drafted, accepted = (total(reading, name) for name in names)
    return drafts, drafted, accepted


def test_accepted_drafts_of_ended_requests() -> None:
    reader = SglangReader()
    # 10 requests: 1000 tokens, 10 out of prefills, 330 one in each step, 660 accepted of 330 x 3.
    first = read(ended(1000, 10, 330), reader=reader)
    assert spec_of(first) == (330, 990, 660)
    assert {"spec_draft_tokens", "spec_accepted_tokens"} <= first.columns.estimated.keys()
    # 100 steps more, now of 2 drafts: 250 tokens, 2 out of prefills, 148 accepted.
    assert spec_of(read(ended(1250, 12, 430, verified=3), reader=reader)) == (430, 1190, 808)


def test_counts_of_drafts_fall_only_when_the_server_restarts() -> None:
    reader = SglangReader()
    read(ended(1000, 10, 330), reader=reader)
    # A page between two updates: the tokens are in, the steps are not.
    assert spec_of(read(ended(1300, 10, 330), reader=reader)) == (330, 990, 960)
    assert spec_of(read(ended(1300, 13, 430), reader=reader)) == (430, 1290, 960)
    assert spec_of(read(ended(50, 1, 20, start="3.5"), reader=reader)) == (20, 60, 29)


def test_no_steps_are_counted_without_their_series() -> None:
    reading = read("sglang:generation_tokens_total 5\nsglang:num_requests_total 1\n")
    assert not measures(reading) & {"spec_drafts", "spec_draft_tokens", "spec_accepted_tokens"}


def test_the_balance_of_the_experts_is_that_of_the_passes_since_the_page_before() -> None:
    reader = SglangReader()

    def balance(decode: tuple[float, int], extend: tuple[float, int]) -> float:
        text = "".join(
            f'sglang:eplb_balancedness_sum{{forward_mode="{mode}"}} {total}\n'
            f'sglang:eplb_balancedness_count{{forward_mode="{mode}"}} {count}\n'
            for mode, (total, count) in {"decode": decode, "extend": extend}.items()
        )
        return total_of(text)

    def total_of(text: str) -> float:
        return total(read(text, reader=reader), "expert_balance_ratio")

    assert math.isnan(balance((0, 0), (0, 0)))
    assert balance((6, 8), (2, 2)) == 0.8
    assert balance((6.5, 9), (2.5, 3)) == 0.5  # one more of each, 0.5 and 0.5
    assert balance((6.5, 9), (2.5, 3)) == 0.5  # no pass since
    assert balance((0.9, 1), (0, 0)) == 0.9  # a new process
    assert "expert_balance_ratio" not in measures(read("sglang:num_running_reqs 1\n"))


def test_identity() -> None:
    identity = read(LOADED, {"/v1/loads": LOADS}).identity
    assert (identity.engine, identity.engine_version) == (EngineKind.SGLANG, "0.5.23")
    assert (identity.model, identity.role, identity.stack) == ("tinyq3", Role.AGGREGATED, None)
    assert dict(identity.sources) == {
        "engine_version": "/v1/loads",
        "model": "label model_name",
        "role": "label engine_type",
    }
    behind = read(LOADED.decode() + "dynamo_component_requests_total 3\n").identity
    assert (behind.engine, behind.stack) == (EngineKind.SGLANG, "dynamo")
