"""Routers and gateways: what their pages say, worked out by hand from the fixtures."""

from __future__ import annotations

import math

import pytest

from collectors.engines.base import Look
from collectors.engines.detect import TABLES, recognise
from collectors.engines.gateway_reader import IN_FLIGHT_NOTE
from collectors.engines.gateways import GATEWAYS
from enginetop.fleet.model import EngineKind, Role
from enginetop.fleet.observation import Failure
from enginetop.fleet.reading import Part, Reading
from tests.support.engine_pages import fixture, measures, page_of, total

STACK = "router/production-stack-0.1.12/production-stack-0.1.12-collector"
VLLM_ROUTER = "router/vllm-router-0.1.17/vllm-router-0.1.17"
SGLANG_ROUTER = "router/sglang-router-0.3.2/sglang-router-0.3.2"
SMG = "router/smg-1.13.0/smg-1.13.0"
EPP = "router/llm-d-epp-2026-08/llm-d-epp-2026-08-reconstructed-from-source.prom"


def reading_of(text: bytes | str) -> Reading:
    page = page_of(text)
    found = recognise(page.layout)
    assert found is not None
    assert found.kind is EngineKind.ROUTER
    read = found.new_reader().read(Look(at=100.0, page=page))
    assert not isinstance(read, Failure)
    return read


def of_backend(reading: Reading, measure: str) -> dict[str, float]:
    return {
        series.rank: value
        for series, value in zip(reading.columns.series, reading.values, strict=True)
        if series.measure == measure
    }


@pytest.mark.parametrize(
    ("path", "title", "role"),
    [
        (f"{STACK}-idle.prom", "vLLM Production Stack router", Role.ROUTER),
        (f"{STACK}-load.prom", "vLLM Production Stack router", Role.ROUTER),
        (f"{SMG}-load.prom", "SMG", Role.ROUTER),
        (f"{SGLANG_ROUTER}-idle.prom", "SMG", Role.ROUTER),
        (f"{SMG}-engine_metrics.prom", "SGLang workers behind a router", Role.ROUTER),
        (f"{SGLANG_ROUTER}-engine_metrics.prom", "SGLang workers behind a router", Role.ROUTER),
        (f"{VLLM_ROUTER}-idle.prom", "vllm-router", Role.ROUTER),
        (EPP, "llm-d endpoint picker", Role.GATEWAY),
    ],
)
def test_every_gateway_is_told_from_the_engines_behind_it(path: str, title: str, role: Role) -> None:
    page = page_of(fixture(path))
    found = recognise(page.layout)
    assert found is not None
    assert found.title == title
    identity = reading_of(fixture(path)).identity
    assert (identity.engine, identity.role) == (EngineKind.ROUTER, role)


def test_no_gateway_claims_the_page_of_an_engine() -> None:
    for path in ("vllm/0.32.0/vllm-0.32.0-loaded.prom", "llamacpp/b11549/llama_cpp-b11549-busy.prom"):
        layout = page_of(fixture(path)).layout
        assert not any(table.recognise(layout) for table in GATEWAYS)


def test_production_stack_adds_its_backends_and_leaves_out_what_left_discovery() -> None:
    reading = reading_of(fixture(f"{STACK}-load.prom"))
    # Two backends: 2 + 5 and 1 + 3 requests in prefill and decode; the third (9) is not in discovery.
    assert of_backend(reading, "requests_running") == {
        "http://10.0.0.1:8000": 7.0,
        "http://10.0.0.2:8000": 4.0,
    }
    assert reading.columns.estimated["requests_running"] == IN_FLIGHT_NOTE
    assert total(reading, "requests_finished") == 60 + 39
    assert total(reading, "prompt_tokens_processed") == 100 * (60 + 39)
    assert total(reading, "generation_tokens") == 50 * (60 + 39)
    assert total(reading, "prefix_hits") / total(reading, "prefix_queries") == (400 + 100) / (1000 + 500)
    # Every second request takes 0.4 s, from the second on: 30 of 60 and 19 of 39.
    assert total(reading, "e2e_seconds", Part.BUCKET, le=0.5) == 30 + 19
    assert (total(reading, "backends_healthy"), total(reading, "backends_total")) == (2, 2)
    assert reading.identity.model == "llama"
    assert "requests_waiting" not in measures(reading)
    assert reading.columns.absent["requests_waiting"].note.startswith(
        "the router does not tell how many wait in the engines"
    )


def test_a_dead_backend_keeps_its_counters_and_says_nothing_about_now() -> None:
    reading = reading_of(fixture(f"{STACK}-dead.prom"))
    running = of_backend(reading, "requests_running")
    assert running["http://10.0.0.1:8000"] == 6.0
    assert math.isnan(running["http://10.0.0.2:8000"])
    assert total(reading, "requests_finished") == 80 + 39 + 4
    assert total(reading, "requests_errored") == 4
    assert (total(reading, "backends_healthy"), total(reading, "backends_total")) == (1, 2)
    assert reading.config["unhealthy_backends"].value == "http://10.0.0.2:8000"


def test_a_router_without_traffic_has_a_row_without_numbers() -> None:
    reading = reading_of(fixture(f"{STACK}-idle.prom"))
    assert not reading.columns.series
    assert reading.columns.absent["requests_running"].note


def test_smg_tells_what_its_workers_say_and_not_also_what_is_in_flight() -> None:
    reading = reading_of(fixture(f"{SMG}-real-worker-load.prom"))
    # 8 run and 6 wait in the worker; 14 are in flight.
    assert total(reading, "requests_running") == 8
    assert total(reading, "requests_waiting") == 6
    assert total(reading, "kv_usage_ratio") == 0.7473
    assert "requests_running" not in reading.columns.estimated
    assert list(reading.columns.ranks.values()) == [{"worker": "http://127.0.0.1:47300", "dp_rank": "0"}]
    assert total(reading, "routed_prefix_match_ratio", Part.COUNT) == 14
    assert reading.identity.model == "tinyq3"


def test_smg_counts_what_it_refused_and_tried_again() -> None:
    reading = reading_of(fixture(f"{SMG}-load.prom"))
    assert total(reading, "requests_rejected") == 19
    assert total(reading, "requests_finished") == 21
    assert total(reading, "retries") == 2
    assert total(reading, "gateway_waiting_requests") == 0
    assert (total(reading, "backends_healthy"), total(reading, "backends_total")) == (2, 2)


def test_a_router_that_polls_no_worker_tells_what_is_in_flight() -> None:
    text = fixture(f"{SGLANG_ROUTER}-load.prom").replace(
        b'smg_worker_requests_active{worker="http://127.0.0.1:41001"} 0',
        b'smg_worker_requests_active{worker="http://127.0.0.1:41001"} 5',
    )
    reading = reading_of(text)
    assert total(reading, "requests_running") == 5
    assert reading.columns.estimated["requests_running"] == IN_FLIGHT_NOTE
    assert total(reading, "requests_finished") == 26 + 7
    assert total(reading, "requests_rejected") == 39
    assert reading.identity.model == "tiny"


@pytest.mark.parametrize(
    ("path", "dead"),
    [
        (f"{SGLANG_ROUTER}-one-worker-unhealthy.prom", "http://127.0.0.1:41002"),
        (f"{VLLM_ROUTER}-one-worker-dead.prom", "http://127.0.0.1:41102"),
    ],
)
def test_a_dead_worker_is_named(path: str, dead: str) -> None:
    reading = reading_of(fixture(path))
    assert (total(reading, "backends_healthy"), total(reading, "backends_total")) == (1, 2)
    assert reading.config["unhealthy_backends"].value == dead
    running = of_backend(reading, "requests_running")
    assert math.isnan(running.get(dead, math.nan))
    assert all(not math.isnan(value) for backend, value in running.items() if backend != dead)


def test_vllm_router_counts_answered_requests_and_those_given_up() -> None:
    reading = reading_of(fixture(f"{VLLM_ROUTER}-load.prom"))
    assert total(reading, "requests_running") == 3 + 3
    assert total(reading, "requests_finished") == 20 + 1
    assert total(reading, "requests_errored") == 1
    assert total(reading, "retries") == 4
    assert total(reading, "e2e_seconds", Part.COUNT) == 20


def test_sglang_router_before_0_3_has_the_same_names_under_its_own_prefix() -> None:
    renamed = fixture(f"{VLLM_ROUTER}-load.prom").replace(b"vllm_router_", b"sgl_router_")
    reading = reading_of(renamed)
    assert total(reading, "requests_running") == 6
    assert total(reading, "requests_finished") == 21
    assert reading.columns.estimated["requests_running"] == IN_FLIGHT_NOTE


EPP_TOTALS = {
    "requests_running": 3,
    "requests_waiting": 1 + 3,
    "requests_finished": 30,
    "requests_errored": 2,
    "prompt_tokens_processed": 25 * 500,
    "generation_tokens": 25 * 100,
    "prefix_hits": 25 * 200,
    "backends_healthy": 2,
    "gateway_waiting_requests": 5,
    "pool_saturation_ratio": 0.9,
    "kv_usage_ratio": 0.45,
}


def test_the_endpoint_picker_is_read_once_of_each_pair_of_twins() -> None:
    reading = reading_of(fixture(EPP))
    assert {measure: total(reading, measure) for measure in EPP_TOTALS} == pytest.approx(EPP_TOTALS)
    # RejectedCapacity 2 and EvictedTTL 1; the 4 whose client went away were not refused.
    assert total(reading, "requests_rejected") == 3
    assert total(reading, "gateway_queue_seconds", Part.COUNT) == 28
    assert total(reading, "routed_prefix_match_ratio", Part.COUNT) == 28
    assert total(reading, "e2e_seconds", Part.COUNT) == 25
    assert reading.columns.estimated["kv_usage_ratio"].startswith("mean over the endpoints")
    assert [dict(labels) for labels in reading.columns.ranks.values()] == [
        {"model_server_endpoint": "llama-0"},
        {"model_server_endpoint": "llama-1"},
    ]


def test_the_ttft_of_a_request_that_is_not_streamed_is_its_duration_and_no_ttft() -> None:
    reading = reading_of(fixture(EPP))
    assert total(reading, "ttft_seconds", Part.COUNT) == 20
    assert total(reading, "ttft_seconds", Part.SUM) == pytest.approx(20 * 0.3)


@pytest.mark.parametrize("left", ["new", "old"])
def test_either_twin_alone_tells_the_same(left: str) -> None:
    def name(line: bytes) -> bytes:
        return line.split(b" ")[2 if line.startswith(b"# ") else 0]

    lines = [
        line for line in fixture(EPP).splitlines() if name(line).startswith(b"llm_d_epp_") == (left == "new")
    ]
    reading = reading_of(b"\n".join(lines) + b"\n")
    assert {measure: total(reading, measure) for measure in EPP_TOTALS} == pytest.approx(EPP_TOTALS)


def test_the_joined_pages_of_workers_are_a_view_by_worker() -> None:
    reading = reading_of(fixture(f"{SMG}-engine_metrics.prom"))
    assert total(reading, "requests_running") == 8
    assert total(reading, "requests_waiting") == 6
    assert total(reading, "kv_usage_ratio", rank="http://127.0.0.1:47300") == 0.81
    # A mean that is 0 because nothing speculates is not a figure.
    assert "spec_accepted_length_now" not in measures(reading)


def test_several_models_are_no_model() -> None:
    text = 'smg_worker_pool_size{model="a"} 1\nsmg_worker_pool_size{model="b"} 1\n'
    assert reading_of(text).identity.model is None
    assert reading_of('smg_worker_pool_size{model="a"} 1\nsmg_x{model="default"} 1\n').identity.model == "a"


def test_many_dead_backends_are_counted_not_listed() -> None:
    text = "".join(f'smg_worker_health{{worker="http://w{n:02}"}} 0\n' for n in range(40))
    listed = reading_of(text).config["unhealthy_backends"].value
    assert isinstance(listed, str)
    assert listed.startswith("http://w00, http://w01")
    assert listed.endswith("http://w07 and 32 more")


def test_what_can_be_read_and_changed_is_said_of_every_gateway() -> None:
    assert {table.title for table in GATEWAYS} <= {table.title for table in TABLES}
    assert all(table.reads and table.changes for table in GATEWAYS)
