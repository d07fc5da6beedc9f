"""SGLang's page: held against real and collector-generated pages of 0.5.23, and against the vLLM page of the
same requests.
"""

from __future__ import annotations

import math
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from enginetop.fleet.model import EngineKind, Role
from enginetop.fleet.snapshot import Slo
from enginetop.simulator.builtin import SCENARIOS
from enginetop.simulator.replica import SimulatedReplica
from enginetop.simulator.scenario import ReplicaPlan

FIXTURES = Path(__file__).parents[2] / "fixtures" / "sglang" / "0.5.23"
LOADED = (FIXTURES / "sglang-0.5.23-load-queued.prom").read_text()
SPECULATING = (FIXTURES / "sglang-0.5.23-collector-spec.prom").read_text()
DISAGGREGATED = (FIXTURES / "sglang-0.5.23-collector-pd-decode.prom").read_text()
VLLM = SCENARIOS["demo"].pools[0].members[4]
PLAN = VLLM.with_engine(kind=EngineKind.SGLANG)

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def page_of(plan: ReplicaPlan, seconds: float = 60.0) -> str:
    replica = SimulatedReplica("r", plan, Slo(), seed=1, epoch=1_764_446_400.0)
    replica.advance(seconds)
    page = replica.page()
    assert page is not None
    return page.decode()


def shapes(text: str) -> dict[str, tuple[str, frozenset[frozenset[str]]]]:
    """Of each family: its type and the label names of its samples."""
    return {
        family.name: (family.type, frozenset(frozenset(s.labels) for s in family.samples))
        for family in text_string_to_metric_families(text)
    }


def samples(text: str, *common: str) -> Samples:
    """Every sample by name and by its labels without the `common` ones."""
    return {
        (s.name, frozenset((k, v) for k, v in s.labels.items() if k not in common)): s.value
        for family in text_string_to_metric_families(text)
        for s in family.samples
    }


def bounds(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.endswith("_bucket") and sample.labels["le"] not in found.get(family.name, []):
                found.setdefault(family.name, []).append(sample.labels["le"])
    return found


def test_names_types_and_labels_are_those_of_real_pages() -> None:
    # Retractions and aborts stand on a page from the first one on: no capture of one engine has all.
    real = shapes(SPECULATING) | shapes(LOADED)
    absent = {"sglang:num_retracted_requests", "sglang:num_aborted_requests"}
    ours = {name: shape for name, shape in shapes(page_of(PLAN)).items() if name.startswith("sglang:")}
    assert len(ours) > 35
    assert ours.keys() - real.keys() <= absent
    for name in ours.keys() - absent:
        assert ours[name][0] == real[name][0], name
        assert ours[name][1] <= real[name][1], name


def test_all_that_is_read_of_a_real_page_stands_on_ours() -> None:
    wanted = {
        *("num_running_reqs", "num_queue_reqs", "token_usage", "full_token_usage", "max_total_num_tokens"),
        *("kv_used_tokens", "kv_available_tokens", "kv_evictable_tokens", "cache_hit_rate"),
        *("gen_throughput", "new_token_ratio", "prefill_effective_tokens", "realtime_tokens"),
        *("prompt_tokens", "generation_tokens", "cached_tokens", "num_requests"),
        *("time_to_first_token_seconds", "inter_token_latency_seconds", "e2e_request_latency_seconds"),
        *("request_time_per_output_token_seconds", "queue_time_seconds"),
        *("spec_accept_length", "spec_accept_rate", "prompt_tokens_histogram", "generation_tokens_histogram"),
    }
    assert {f"sglang:{name}" for name in wanted} <= shapes(page_of(PLAN)).keys()


def test_bucket_bounds_are_those_of_a_real_page() -> None:
    real, ours = bounds(LOADED), bounds(page_of(PLAN))
    common = real.keys() & ours.keys()
    assert len(common) == 8
    for name in common:
        assert ours[name] == real[name], name


def test_there_are_no_times_of_creation_and_no_process_series() -> None:
    page = page_of(PLAN)
    assert "_created" not in page
    assert not [name for name in shapes(page) if name.startswith(("process_", "python_", "vllm"))]


def test_the_same_requests_under_both_names() -> None:
    sglang = samples(page_of(PLAN), "engine_type", "model_name", "moe_ep_rank", "pp_rank", "tp_rank")
    vllm = samples(page_of(VLLM), "engine", "model_name")

    def ours(name: str, **labels: str) -> float:
        return sglang[f"sglang:{name}", frozenset(labels.items())]

    def theirs(name: str, **labels: str) -> float:
        return vllm[f"vllm:{name}", frozenset(labels.items())]

    streaming = {"is_streaming": "true"}
    assert theirs("num_requests_running") > 0
    assert ours("num_running_reqs") == theirs("num_requests_running")
    assert ours("num_queue_reqs") == theirs("num_requests_waiting")
    assert math.isclose(ours("full_token_usage"), theirs("kv_cache_usage_perc"))
    assert ours("token_usage") == round(theirs("kv_cache_usage_perc"), 2)
    assert ours("realtime_tokens_total", mode="decode") == theirs("generation_tokens_total")
    # At the end of a request, where vLLM counts step by step.
    assert ours("generation_tokens_total", **streaming) == theirs("request_generation_tokens_sum")
    assert 0 < ours("generation_tokens_total", **streaming) < theirs("generation_tokens_total")
    assert ours("prompt_tokens_total", **streaming) == theirs("request_prompt_tokens_sum")
    assert ours("num_requests_total", **streaming) == theirs("e2e_request_latency_seconds_count")
    assert ours("num_aborted_requests_total") == theirs("request_success_total", finished_reason="abort")
    for name in ("time_to_first_token_seconds", "e2e_request_latency_seconds"):
        for part in ("count", "sum"):
            assert ours(f"{name}_{part}", **streaming) == theirs(f"{name}_{part}")
    # le="1.0" is a bound of both.
    assert ours("time_to_first_token_seconds_bucket", le="1.0", **streaming) == theirs(
        "time_to_first_token_seconds_bucket", le="1.0"
    )
    drafts = theirs("spec_decode_num_drafts_total")
    accepted = theirs("spec_decode_num_accepted_tokens_total")
    assert math.isclose(ours("spec_accept_length"), 1 + accepted / drafts)
    assert math.isclose(ours("spec_accept_rate"), accepted / theirs("spec_decode_num_draft_tokens_total"))
    assert ours("spec_num_draft_tokens") == 4
    assert math.isnan(ours("fwd_occupancy"))
    for key, value in vllm.items():
        if key[0].startswith("enginetop_") and not key[0].endswith("_created"):
            assert sglang[key] == value, key


def test_ranks_have_their_own_gauges_and_one_count_of_requests() -> None:
    page = page_of(PLAN.with_engine(ranks=2))
    running = {
        s.labels["dp_rank"]: s.value
        for family in text_string_to_metric_families(page)
        for s in family.samples
        if s.name == "sglang:num_running_reqs"
    }
    assert running.keys() == {"0", "1"}
    replica = SimulatedReplica("r", PLAN.with_engine(ranks=2), Slo(), seed=1, epoch=0.0)
    replica.advance(60.0)
    assert list(running.values()) == [engine.requests_running for engine in replica.engines]
    of_requests = samples(page, "engine_type", "model_name")
    ended = sum(sum(engine.metrics.finished.values()) for engine in replica.engines)
    assert all(engine.metrics.finished["stop"] for engine in replica.engines)
    streaming = frozenset({("is_streaming", "true")})
    assert of_requests["sglang:num_requests_total", streaming] == ended
    assert of_requests["sglang:e2e_request_latency_seconds_count", streaming] == ended
    completed = sum(engine.metrics.finished[why] for engine in replica.engines for why in ("stop", "length"))
    assert of_requests["enginetop_ttft_seconds_count", frozenset()] == completed
    assert of_requests["enginetop_simulated", frozenset()] == 1
    labels = {labels for _, shape in shapes(DISAGGREGATED).items() for labels in shape[1]}
    assert all(
        shape[1] <= labels for name, shape in shapes(page).items() if name == "sglang:num_running_reqs"
    )


def test_the_role_is_told() -> None:
    page = page_of(PLAN.with_engine(role=Role.DECODE), seconds=1.0)
    assert 'engine_type="decode"' in page
    assert "unified" not in page
