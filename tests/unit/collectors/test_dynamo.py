"""Every page of NVIDIA Dynamo 1.6.1 and what it means. Expected values were read off the pages by hand."""

from __future__ import annotations

import copy
import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.answer import Answer
from collectors.engines.base import Look, Reader
from collectors.engines.detect import SIDE_FIELDS, recognise
from collectors.engines.dynamo import DYNAMO, DynamoReader
from collectors.engines.dynamo_card import METADATA
from collectors.engines.dynamo_frontend import BUSY_THRESHOLD, OPENAPI
from collectors.engines.dynamo_worker import role_of_component
from collectors.feed import TargetFeed
from collectors.layout import LayoutCache
from collectors.redact import public_body
from enginetop.fleet.model import EngineKind, Quality, Role, Target
from enginetop.fleet.reading import Part, Reading
from enginetop.fleet.workers import worker_from_decimal, worker_from_hex
from tests.support.engine_pages import answer, fixture, measures, page_of, total

FOLDER = "dynamo/1.6.1/dynamo-1.6.1-"


def capture(name: str) -> bytes:
    return fixture(f"{FOLDER}{name}.prom")


def reader_of(text: str | bytes) -> Reader:
    found = recognise(page_of(text).layout)
    assert found is not None
    return found.new_reader()


def read(text: str | bytes, sides: dict[str, object] | None = None) -> Reading:
    outcome = reader_of(text).read(Look(at=100.0, page=page_of(text), sides=sides or {}))
    assert isinstance(outcome, Reading)
    return outcome


def counts(reading: Reading, *names: str) -> dict[str, float]:
    return {name: total(reading, name, Part.COUNT) for name in names}


def values(reading: Reading, expected: dict[str, float]) -> dict[str, float]:
    return {name: total(reading, name) for name in expected}


# Frontends


def test_a_frontend_under_pressure() -> None:
    reading = read(capture("frontend-kvpressure"))
    expected: dict[str, float] = {
        "requests_running": 47 - 26,  # active_requests holds those that still wait for their first token
        "requests_waiting": 26,
        "prompt_tokens_processed": 47846,
        "generation_tokens": 6552,
        "requests_finished": 26,
        "prefix_queries": 74314,
        "prefix_hits": 12800,
        "backends_total": 2,
        "models_ready": 1,
        "admission_waiting_requests": 0,
    }
    assert values(reading, expected) == expected
    histograms = ("ttft_seconds", "itl_seconds", "e2e_seconds", "prompt_tokens", "output_tokens")
    assert list(counts(reading, *histograms).values()) == [47, 6178, 26, 47, 26]
    assert total(reading, "e2e_seconds", Part.SUM) == 185.484922498
    assert total(reading, "ttft_seconds", Part.BUCKET, le=math.inf) == 47
    identity = reading.identity
    assert (identity.engine, identity.role, identity.model) == (EngineKind.DYNAMO, Role.GATEWAY, "tiny")
    assert identity.worker is None  # the id on its component series is its own
    assert reading.live_progress
    assert reading.columns.estimated["prefix_hits"].startswith("as the router predicted")
    assert "kv_usage_ratio" not in measures(reading)
    assert reading.columns.absent["kv_usage_ratio"].quality is Quality.UNSUPPORTED


def test_limits_of_the_only_model_and_thresholds_with_their_sources() -> None:
    sides: dict[str, object] = {
        OPENAPI: {"info": {"version": "1.6.1"}},
        BUSY_THRESHOLD: {
            "thresholds": [
                {"model": "other", "active_decode_blocks_threshold": 0.5},
                {
                    "model": "tiny",
                    "active_decode_blocks_threshold": 0.9,
                    "active_prefill_tokens_threshold": None,
                    "active_prefill_tokens_threshold_frac": None,
                },
            ]
        },
    }
    reading = read(capture("frontend-kvpressure"), sides)
    assert reading.identity.engine_version == "1.6.1"
    assert {key: (one.value, one.source) for key, one in reading.config.items()} == {
        "max_model_len": (8192, "dynamo_frontend_model_context_length"),
        "block_size": (16, "dynamo_frontend_model_kv_cache_block_size"),
        "num_gpu_blocks": (600, "dynamo_frontend_model_total_kv_blocks"),
        "max_num_seqs": (64, "dynamo_frontend_model_max_num_seqs"),
        "max_num_batched_tokens": (2048, "dynamo_frontend_model_max_num_batched_tokens"),
        "active_decode_blocks_threshold": (0.9, "/busy_threshold"),
    }


def test_an_idle_frontend_has_no_requests_and_is_not_silent_about_it() -> None:
    reading = read(capture("frontend-idle"))
    assert total(reading, "requests_running") == 0  # nothing in flight to any worker
    assert total(reading, "models_ready") == 1
    for later in ("requests_waiting", "generation_tokens", "requests_finished", "ttft_seconds"):
        assert reading.columns.absent[later].quality is Quality.UNKNOWN
        assert "first request" in reading.columns.absent[later].note


def test_a_frontend_after_a_decode_worker_was_killed() -> None:
    reading = read(capture("frontend-decode-killed"))
    expected: dict[str, float] = {
        "requests_running": 31 - 9,
        "requests_waiting": 9,
        "requests_finished": 61 + 5 + 2,
        "requests_errored": 5 + 2,
        "migrations": 5 + 9,
        "generation_tokens": 9909,
        # prefill selections alone: each request was routed to a decode worker too, 66210 tokens again
        "prefix_queries": 66210,
        "prefix_hits": 16928,
        "backends_total": 3,  # the dead one stays registered
    }
    assert values(reading, expected) == expected
    assert reading.workers == {
        11137041305136860992: Role.PREFILL,
        14684414278461046022: Role.DECODE,
        9280387338421580281: Role.DECODE,
    }


def test_decode_means_aggregated_while_no_worker_prefills() -> None:
    reading = read(capture("frontend-kvpressure"))
    assert reading.workers == {10978209915756794289: Role.AGGREGATED, 3958544179298557453: Role.AGGREGATED}


def test_a_worker_that_is_not_registered_any_more_has_no_role() -> None:
    page = capture("frontend-decode-killed").replace(
        b'router_worker_id="11137041305136860992",worker_id="50a3f52ee01f7bf0",worker_type="prefill"} 1',
        b'router_worker_id="11137041305136860992",worker_id="50a3f52ee01f7bf0",worker_type="prefill"} 0',
    )
    assert read(page).workers == {14684414278461046022: Role.AGGREGATED, 9280387338421580281: Role.AGGREGATED}


def test_the_prefix_of_a_frontend_may_be_any() -> None:
    renamed = capture("frontend-kvpressure").replace(b"dynamo_frontend_", b"acme_llm_")
    plain, other = read(capture("frontend-kvpressure")), read(renamed)
    assert other.identity == plain.identity
    assert list(other.values) == list(plain.values)
    assert other.config["max_num_seqs"].source == "acme_llm_model_max_num_seqs"


def test_several_models_behind_one_frontend() -> None:
    page = (
        'dynamo_frontend_active_requests{model="a"} 5\n'
        'dynamo_frontend_active_requests{model="b"} 7\n'
        'dynamo_frontend_queued_requests{model="a"} 2\n'
        'dynamo_frontend_model_max_num_seqs{model="a"} 64\n'
        'dynamo_frontend_model_max_num_seqs{model="b"} 8\n'
    )
    reading = read(page)
    assert reading.identity.model is None
    assert total(reading, "requests_running") == 5 + 7 - 2
    assert reading.config == {}  # one row cannot show two limits


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        # 0.7: no live token counter, no active_requests, no kinds of errors
        (
            (
                'dynamo_frontend_inflight_requests{model="m"} 9\n'
                'dynamo_frontend_queued_requests{model="m"} 4\n'
                'dynamo_frontend_output_sequence_tokens_sum{model="m"} 500\n'
                'dynamo_frontend_requests_total{model="m",endpoint="chat_completions",'
                'request_type="unary",status="success"} 12\n'
            ),
            {"requests_running": 5, "generation_tokens": 500, "requests_finished": 12},
        ),
        # both spellings of in-flight requests: one series, never a sum
        (
            (
                'dynamo_frontend_active_requests{model="m"} 9\n'
                'dynamo_frontend_inflight_requests{model="m"} 9\n'
                'dynamo_frontend_queued_requests{model="m"} 4\n'
                'dynamo_frontend_output_tokens_total{model="m"} 70\n'
                'dynamo_frontend_output_sequence_tokens_sum{model="m"} 60\n'
            ),
            {"requests_running": 5, "generation_tokens": 70},
        ),
        # a gauge may lag behind the other
        (
            'dynamo_frontend_active_requests{model="m"} 3\ndynamo_frontend_queued_requests{model="m"} 4\n',
            {"requests_running": 0, "requests_waiting": 4},
        ),
        (
            (
                "dynamo_frontend_disconnected_clients 0\n"
                'dynamo_frontend_requests_total{model="m",status="error",error_type="cancelled"} 3\n'
                'dynamo_frontend_requests_total{model="m",status="error",error_type="overload"} 5\n'
                'dynamo_frontend_requests_total{model="m",status="success",error_type=""} 7\n'
                'dynamo_frontend_model_rejection_total{model="m",endpoint="chat_completions"} 5\n'
            ),
            {"requests_finished": 15, "requests_aborted": 3, "requests_errored": 5, "requests_rejected": 5},
        ),
    ],
)
def test_frontends_of_other_releases(lines: str, expected: dict[str, float]) -> None:
    assert values(read(lines), expected) == expected


def test_no_live_progress_without_a_live_token_counter() -> None:
    old = 'dynamo_frontend_queued_requests 1\ndynamo_frontend_output_sequence_tokens_sum{model="m"} 500\n'
    assert not read(old).live_progress


def test_the_last_worker_of_a_model_goes_and_its_gauge_vanishes() -> None:
    page = capture("frontend-kvpressure")
    gone = b"\n".join(line for line in page.split(b"\n") if b"frontend_model_ready" not in line)
    reader = reader_of(page)
    before, after = (reader.read(Look(at=1.0, page=page_of(one))) for one in (page, gone))
    assert isinstance(before, Reading)
    assert isinstance(after, Reading)
    assert (total(before, "models_ready"), total(after, "models_ready")) == (1, 0)
    assert math.isnan(total(read(gone), "models_ready"))  # an older release never had it


def test_only_tokens_and_ends_of_requests_are_progress_of_a_frontend() -> None:
    page = capture("frontend-kvpressure")
    housekeeping = page.replace(b"event_loop_stall_total 409", b"event_loop_stall_total 500").replace(
        b'requests_started_total{endpoint="chat_completions",model="tiny",request_type="stream"} 73',
        b'requests_started_total{endpoint="chat_completions",model="tiny",request_type="stream"} 99',
    )
    tokens = page.replace(
        b'output_tokens_total{model="tiny"} 6552', b'output_tokens_total{model="tiny"} 6553'
    )
    assert housekeeping != page
    assert tokens != page
    assert read(housekeeping).progress_token == read(page).progress_token
    assert read(tokens).progress_token != read(page).progress_token


def test_a_router_on_its_own() -> None:
    labels = 'dynamo_component="backend",router_id="1",worker_id="ab"'
    reading = read(
        f"dynamo_component_router_requests_total{{{labels}}} 26\n"
        f'dynamo_component_router_input_sequence_tokens_sum{{{labels},phase="aggregated"}} 74314\n'
        f'dynamo_component_router_input_sequence_tokens_count{{{labels},phase="aggregated"}} 73\n'
        f"dynamo_component_router_output_sequence_tokens_sum{{{labels}}} 3900\n"
        f"dynamo_component_router_output_sequence_tokens_count{{{labels}}} 26\n"
    )
    assert reading.identity.role is Role.ROUTER
    expected: dict[str, float] = {
        "requests_finished": 26,
        "generation_tokens": 3900,
        "prompt_tokens_processed": 74314,
    }
    assert values(reading, expected) == expected
    assert total(reading, "output_tokens", Part.COUNT) == 26


# Workers


@pytest.mark.parametrize(
    ("name", "engine", "expected"),
    [
        (
            "worker1-kvpressure",
            EngineKind.VLLM,
            {
                "requests_running": 11,
                "requests_waiting": 13,
                "kv_usage_ratio": 0.9916666666666667,  # its two names are one series
                "preemptions": 7,
                "requests_finished": 13,  # 37 taken, 24 in flight
                "requests_aborted": 0,
                "generation_tokens": 24 + 3410,  # first tokens and gaps
                "requests_rejected": 0,
                "admission_waiting_requests": 0,
            },
        ),
        (
            "worker-disagg-decode",
            EngineKind.VLLM,
            {
                "requests_running": 12,
                "requests_waiting": 2,
                "kv_usage_ratio": 0.964,
                "preemptions": 4,
                "requests_finished": 2,
                "generation_tokens": 16 + 1874,
            },
        ),
        (
            "worker-disagg-decode-mtp",
            EngineKind.VLLM,
            {
                "requests_running": 6,
                "requests_waiting": 0,
                "kv_usage_ratio": 0.462,
                "preemptions": 16,
                "requests_finished": 25,
                "generation_tokens": 31 + 4024,
            },
        ),
        (
            "worker-trtllm-kvpressure",
            EngineKind.TRTLLM,
            {
                "requests_running": 11,
                "requests_waiting": 21,
                "kv_usage_ratio": 0.838,
                "preemptions": 0,
                "requests_finished": 11,
                "generation_tokens": 22 + 1750,
            },
        ),
    ],
)
def test_a_worker_that_passes_its_engine_through(
    name: str, engine: EngineKind, expected: dict[str, float]
) -> None:
    reading = read(capture(name))
    assert values(reading, expected) == expected
    identity = reading.identity
    assert (identity.engine, identity.stack, identity.model) == (engine, "dynamo", "tiny")
    assert "generation_tokens" in reading.columns.estimated
    assert "requests_finished" not in reading.columns.estimated
    assert len(reading.values) == len(reading.columns.series)


def test_of_an_engine_and_dynamo_the_engine_is_believed() -> None:
    reading = read(capture("worker1-kvpressure"))
    # vllm:e2e_..._sum, and not dynamo_component_request_duration_seconds_sum 83.70379330000002
    assert total(reading, "e2e_seconds", Part.SUM) == 83.69475018300001
    assert counts(reading, "ttft_seconds", "itl_seconds", "e2e_seconds") == {
        "ttft_seconds": 24,
        "itl_seconds": 3410,
        "e2e_seconds": 13,
    }
    assert dict(reading.columns.ranks) == {"0": {"engine": "0"}}


@pytest.mark.parametrize(
    ("engine", "kind"),
    [
        ("vllm:num_requests_running 3\nvllm:generation_tokens_total 500\n", EngineKind.VLLM),
        ("sglang:num_running_reqs 3\nsglang:generation_tokens_total 500\n", EngineKind.SGLANG),
        ("trtllm_num_requests_running 3\ntrtllm_generation_tokens_total 500\n", EngineKind.TRTLLM),
    ],
)
def test_any_engine_behind_a_worker(engine: str, kind: EngineKind) -> None:
    own = (
        'dynamo_component_requests_total{dynamo_endpoint="generate",dynamo_component="prefill",'
        'worker_id="36ef92f532c7de0d"} 8\n'
        'dynamo_component_gpu_cache_usage_percent{dynamo_endpoint="generate",dp_rank="0",'
        'model="m",worker_id="36ef92f532c7de0d"} 0.5\n'
        'dynamo_component_total_blocks{dynamo_endpoint="generate",dp_rank="0",model="m"} 1000\n'
        'dynamo_component_request_duration_seconds_count{dynamo_endpoint="generate"} 5\n'
    )
    reading = read(engine + own)
    assert (reading.identity.engine, reading.identity.stack) == (kind, "dynamo")
    assert (reading.identity.role, reading.identity.model) == (Role.PREFILL, "m")
    assert reading.identity.worker == 3958544179298557453
    assert total(reading, "requests_running") == 3
    assert total(reading, "kv_usage_ratio") == 0.5
    assert total(reading, "requests_finished") == 5
    assert reading.config["num_gpu_blocks"].value == 1000


def test_a_token_counter_of_the_engine_wins_over_counted_gaps() -> None:
    reading = read(
        "vllm:num_requests_running 3\nvllm:generation_tokens_total 500\n"
        "vllm:inter_token_latency_seconds_count 90\nvllm:time_to_first_token_seconds_count 9\n"
        'dynamo_component_requests_total{dynamo_endpoint="generate"} 8\n'
    )
    assert total(reading, "generation_tokens") == 500
    assert "generation_tokens" not in reading.columns.estimated


def test_the_side_pages_of_an_engine_are_not_at_a_workers_port() -> None:
    found = recognise(page_of(capture("worker1-kvpressure")).layout)
    assert found is not None
    assert [side.path for side in found.side_pages] == [METADATA]
    assert found.liveness_path == "/live"


def test_a_prefill_worker_without_an_engines_series() -> None:
    reading = read(capture("worker-disagg-prefill"))
    expected: dict[str, float] = {"requests_running": 0, "requests_finished": 46, "requests_aborted": 0}
    assert values(reading, expected) == expected
    # 46, and not the request of worker_kv_query_source
    assert counts(reading, "e2e_seconds") == {"e2e_seconds": 46}
    assert total(reading, "e2e_seconds", Part.SUM) == 13.844720403
    identity = reading.identity
    assert (identity.engine, identity.role, identity.stack) == (EngineKind.DYNAMO, Role.PREFILL, None)
    assert identity.worker == int("9a8eb80f79890f40", 16) == 11137041305136860992
    assert identity.model is None


@pytest.mark.parametrize(
    ("name", "usage", "finished"),
    [
        ("worker-unified-seqs4", 0.02800000086426735, 24),
        ("worker-unified-seqs32", 0.1679999977350235, 116),
    ],
)
def test_a_unified_backend(name: str, usage: float, finished: int) -> None:
    reading = read(capture(name))
    assert total(reading, "kv_usage_ratio") == usage
    assert total(reading, "requests_finished") == finished
    # 24 in flight in both, of which the engine ran 4 and 24: the page cannot tell
    assert total(reading, "requests_running") == 24
    assert "queued in its engine" in reading.columns.estimated["requests_running"]
    assert reading.columns.absent["requests_waiting"].quality is Quality.UNSUPPORTED
    assert reading.columns.absent["kv_capacity_tokens"].quality is Quality.UNKNOWN
    assert reading.config["num_gpu_blocks"].value == 1000
    assert reading.identity.model == "tiny"
    assert dict(reading.columns.ranks) == {"0": {"dp_rank": "0"}}


def test_an_idle_worker_has_counted_nothing() -> None:
    reading = read(capture("worker1-idle"))
    expected: dict[str, float] = {"requests_running": 0, "requests_finished": 0}
    assert values(reading, expected) == expected
    assert "kv_usage_ratio" not in measures(reading)
    assert reading.identity.worker == int("608eff91ef672614", 16)


def test_the_names_of_kv_figures_before_1_0() -> None:
    worker = 'dynamo_endpoint="generate",worker_id="ab"'
    reading = read(
        f"dynamo_component_kvstats_gpu_cache_usage_percent{{{worker}}} 0.25\n"
        f"dynamo_component_kvstats_total_blocks{{{worker}}} 700\n"
    )
    assert total(reading, "kv_usage_ratio") == 0.25
    assert reading.config["num_gpu_blocks"].value == 700


def test_arrivals_are_no_progress_of_a_worker_and_answers_are() -> None:
    page = capture("worker-disagg-prefill")
    arrival = page.replace(b'worker_id="9a8eb80f79890f40"} 136794', b'worker_id="9a8eb80f79890f40"} 140000')
    answer = page.replace(b'worker_id="9a8eb80f79890f40"} 25982', b'worker_id="9a8eb80f79890f40"} 25999')
    assert arrival != page
    assert answer != page
    assert read(arrival).progress_token == read(page).progress_token
    assert read(answer).progress_token != read(page).progress_token


def test_a_restart_is_another_worker_id() -> None:
    page = capture("worker1-kvpressure")
    again = page.replace(b"36ef92f532c7de0d", b"26ef92f532c7de0d")
    assert read(page).start_token != read(again).start_token
    assert read(page).start_token == read(page.replace(b"} 17.238678874", b"} 19.1")).start_token
    # and the same before and after the engine's series come with the first request
    assert read(capture("worker1-idle")).start_token is not None
    own = b"\n".join(line for line in page.split(b"\n") if b"vllm:" not in line)
    assert read(own).start_token == read(page).start_token


@pytest.mark.parametrize(
    ("component", "role"),
    [
        ("prefill", Role.PREFILL),
        ("VllmPrefillWorker", Role.PREFILL),
        ("decode", Role.DECODE),
        ("backend", Role.AGGREGATED),
        ("", Role.AGGREGATED),
    ],
)
def test_the_role_in_a_components_name(component: str, role: Role) -> None:
    assert role_of_component(component) is role


@pytest.mark.parametrize(
    ("name", "product"),
    [
        ("frontend-idle", "Dynamo frontend"),
        ("worker-unified-seqs4", "Dynamo worker"),
        ("worker-disagg-prefill", "Dynamo worker"),
        ("worker1-kvpressure", None),  # it is its engine
        ("planner-schema", "Dynamo planner"),
    ],
)
def test_which_part_of_dynamo_it_is(name: str, product: str | None) -> None:
    assert read(capture(name)).identity.product == product


def test_where_identity_was_read() -> None:
    assert read(capture("worker1-kvpressure")).identity.sources == {
        "model": "label model_name",
        "stack": "names of the metrics page",
    }
    assert read(capture("worker-disagg-prefill")).identity.sources == {"role": "label dynamo_component"}
    assert read(capture("worker-unified-seqs4")).identity.sources == {"model": "label model"}
    sides: dict[str, object] = {OPENAPI: {"info": {"version": "1.6.1"}}}
    assert read(capture("frontend-idle"), sides).identity.sources == {
        "engine_version": "/openapi.json",
        "model": "label model",
    }
    card = copy.deepcopy(CARD)
    card["card_json"]["worker_type"] = "prefill"
    idle = capture("worker1-idle").replace(b"608eff91ef672614", OWN)
    assert read(idle, {METADATA: card}).identity.sources == {"model": "model card", "role": "model card"}


# One worker, two spellings


def test_the_same_worker_on_its_own_page_and_on_a_frontends() -> None:
    worker = read(capture("worker1-kvpressure")).identity.worker
    frontend = read(capture("frontend-kvpressure"))
    health = json.loads(fixture("dynamo/1.6.1/dynamo-1.6.1-frontend-health.json"))
    assert worker == 3958544179298557453
    assert worker in frontend.workers
    assert worker in {instance["instance_id"] for instance in health["instances"]}


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("ed97b902cfce3ff", 1070022245637481471),  # 15 digits: no leading zero is written
        ("ffffffffffffffff", 2**64 - 1),
        ("10000000000000000", None),
        ("1234567890123456", 0x1234567890123456),  # digits alone: the page says which base it is
        ("0x12", None),
        ("-1", None),
        ("", None),
        (None, None),
        (" 1", None),
        ("1_0", None),
        ("٣", None),
        ("1" * 5000, None),
    ],
)
def test_ids_in_hexadecimal(text: str | None, number: int | None) -> None:
    assert worker_from_hex(text) == number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("18446744073709551615", 2**64 - 1),
        ("18446744073709551616", None),
        ("3958544179298557453", 3958544179298557453),  # more than a float holds
        ("36ef92f532c7de0d", None),
        ("1.0", None),
        ("1e3", None),
        ("", None),
    ],
)
def test_ids_in_decimal(text: str, number: int | None) -> None:
    assert worker_from_decimal(text) == number


# Cards


CARD = json.loads(fixture("dynamo/1.6.1/dynamo-1.6.1-discovery-mdc-card.json"))
OWN = b"3011aed8889de208"
assert int(OWN, 16) == CARD["instance_id"]


@pytest.mark.parametrize(
    "body", [CARD, {"endpoints": {}, "model_cards": {"dynamo/backend/generate/3011aed8889de208": CARD}}]
)
@pytest.mark.parametrize(
    ("page", "worker", "had"),
    [
        ("worker1-kvpressure", b"36ef92f532c7de0d", {}),
        ("worker1-idle", b"608eff91ef672614", {}),
        ("worker-unified-seqs4", b"fa7d3c0556ddd04d", {"num_gpu_blocks": 1000}),
    ],
)
def test_limits_of_a_worker_from_its_card(
    page: str, worker: bytes, had: dict[str, int], body: object
) -> None:
    reading = read(capture(page).replace(worker, OWN), {METADATA: body})
    expected = {
        "max_num_batched_tokens": 2048,
        "max_num_seqs": 64,
        "num_gpu_blocks": 2000,
        "data_parallel_size": 1,
        "block_size": 16,
        "max_model_len": 8192,
    }
    assert {key: one.value for key, one in reading.config.items()} == expected | had
    assert reading.config["max_num_seqs"].source == "model card"
    assert total(reading, "kv_capacity_tokens") == 2000 * 16
    assert reading.identity.model == "tiny"
    assert reading.identity.role is Role.AGGREGATED
    # and without a card again, with the same layout
    assert "kv_capacity_tokens" not in measures(read(capture(page)))


def test_a_card_names_role_parser_and_drafts() -> None:
    card = copy.deepcopy(CARD)
    card["card_json"]["worker_type"] = "decode"
    card["card_json"]["runtime_config"] |= {
        "reasoning_parser": "qwen3",
        "runtime_data": {"spec_decode": {"nextn": 3}},
        "data_parallel_size": 2,
    }
    reading = read(capture("worker1-kvpressure").replace(b"36ef92f532c7de0d", OWN), {METADATA: card})
    assert reading.identity.role is Role.DECODE
    assert reading.config["reasoning_parser"].value == "qwen3"
    assert reading.config["num_speculative_tokens"].value == 3
    assert "kv_capacity_tokens" not in measures(reading)  # blocks of one rank, or of both: it does not say


def test_the_card_of_another_worker_says_nothing() -> None:
    assert read(capture("worker1-kvpressure"), {METADATA: CARD}).config == {}


@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        "x",
        {"model_cards": []},
        {"model_cards": {"a": None, "b": 5}},
        {"card_json": []},
        {"card_json": {}, "instance_id": "36ef92f532c7de0d"},
        {"card_json": {"runtime_config": 7, "kv_cache_block_size": "16"}, "instance_id": 1e300},
        {"card_json": {"runtime_config": {"max_num_seqs": -1, "total_kv_blocks": True}}},
    ],
)
def test_cards_of_any_shape_are_no_fault(body: object) -> None:
    assert read(capture("worker1-kvpressure"), {METADATA: body}).config == {}


def test_a_recording_keeps_limits_of_cards_and_nothing_else() -> None:
    card = copy.deepcopy(CARD)
    card["card_json"]["user_data"] = {"api_key": "s3cret"}
    page = {"endpoints": {"a": "s3cret"}, "model_cards": {"x": card}, "token": "s3cret"}
    kept = public_body(answer(METADATA, page, headers={"content-type": "application/json"}), SIDE_FIELDS)
    assert b"s3cret" not in kept
    assert b"192.0.2.2" not in kept  # where the worker's files are
    worker = capture("worker1-kvpressure").replace(b"36ef92f532c7de0d", OWN)
    assert read(worker, {METADATA: json.loads(kept)}).config == read(worker, {METADATA: page}).config != {}


# Any page


WORKER_LINES = [
    line
    for name in ("worker1-kvpressure", "worker-unified-seqs4", "worker-trtllm-kvpressure")
    for line in capture(name).decode().splitlines()
    if not line.startswith("#")
]
FRONTEND_LINES = [
    line for line in capture("frontend-decode-killed").decode().splitlines() if not line.startswith("#")
]
NUMBERS = st.sampled_from(["0", "7", "-1", "NaN", "+Inf", "-Inf", "1e308", "-1e308", "x"])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(WORKER_LINES), min_size=1, max_size=60))
def test_no_measure_comes_from_an_engine_and_from_dynamo(lines: list[str]) -> None:
    reading = read("\n".join(lines) + "\n")
    own = {s.measure for s in reading.columns.series if s.key.startswith(("dynamo_", "kvbm_"))}
    engine = {s.measure for s in reading.columns.series if not s.key.startswith(("dynamo_", "kvbm_"))}
    if reading.identity.engine is not EngineKind.DYNAMO:
        assert own.isdisjoint(engine)
    assert len(reading.values) == len(reading.columns.series)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(FRONTEND_LINES + WORKER_LINES), NUMBERS), min_size=1, max_size=40))
def test_numbers_of_any_kind_are_no_fault(lines: list[tuple[str, str]]) -> None:
    text = "".join(f"{line.rpartition(' ')[0]} {number}\n" for line, number in lines)
    if recognise(page_of(text).layout) is not None:
        reading = read(text)
        assert len(reading.values) == len(reading.columns.series)
        assert all(isinstance(one.value, int | float | str) for one in reading.config.values())


@given(st.integers(0, 2**64 - 1))
def test_both_spellings_are_one_number(worker: int) -> None:
    assert worker_from_hex(f"{worker:x}") == worker_from_decimal(str(worker)) == worker


# Planner and block manager


def test_a_planner_has_a_row_and_adds_nothing() -> None:
    page = (
        capture("planner-schema")
        .replace(b"dynamo_planner_num_decode_replicas 0.0", b"dynamo_planner_num_decode_replicas 3.0")
        .replace(
            b"dynamo_planner_predicted_num_decode_replicas 0.0",
            b"dynamo_planner_predicted_num_decode_replicas 4.0",
        )
        .replace(b"dynamo_planner_sla_target_ttft_ms 0.0", b"dynamo_planner_sla_target_ttft_ms 500.0")
        .replace(b'load_scaling_decision="unset"} 1.0', b'load_scaling_decision="unset"} 0.0')
        .replace(b'load_scaling_decision="scale_up"} 0.0', b'load_scaling_decision="scale_up"} 1.0')
    )
    reading = read(page)
    assert (reading.identity.engine, reading.identity.role) == (EngineKind.DYNAMO, Role.GATEWAY)
    assert measures(reading) == {
        "prefill_replicas",
        "prefill_replicas_wanted",
        "decode_replicas",
        "decode_replicas_wanted",
    }
    assert total(reading, "decode_replicas") == 3
    assert total(reading, "decode_replicas_wanted") == 4
    assert {key: one.value for key, one in reading.config.items()} == {
        "sla_target_ttft_ms": 500.0,
        "load_scaling_decision": "scale_up",
        "throughput_scaling_decision": "unset",
    }


def test_a_block_manager() -> None:
    reading = read(
        "kvbm_offload_blocks_d2h 40\nkvbm_offload_blocks_d2d 2\nkvbm_onboard_blocks_h2d 30\n"
        "kvbm_host_cache_hit_rate 0.4\nkvbm_disk_cache_hit_rate 0.1\n"
    )
    expected = {
        "kv_offload_blocks": 42,
        "kv_onload_blocks": 30,
        "kv_host_hit_ratio": 0.4,
        "kv_disk_hit_ratio": 0.1,
    }
    assert values(reading, expected) == expected
    assert reading.identity.role is Role.GATEWAY


# Paths


def test_side_pages_are_for_frontends_only_and_a_missing_one_is_asked_no_more() -> None:
    frontend, worker = page_of(capture("frontend-idle")), page_of(capture("worker1-idle"))
    reader = DynamoReader()
    assert reader.wants_side(OPENAPI, frontend)
    assert reader.wants_side(BUSY_THRESHOLD, frontend)
    assert reader.wants_side(METADATA, worker)
    assert not reader.wants_side(METADATA, frontend)
    assert not reader.wants_side(OPENAPI, worker)
    assert not reader.wants_side(BUSY_THRESHOLD, worker)
    for at in (1.0, 2.0):  # each 404 counts as a failed request of the frontend
        reader.read(Look(at=at, page=frontend))
    assert not reader.wants_side(BUSY_THRESHOLD, frontend)
    restarted = page_of(capture("frontend-idle").replace(b"b5d7055c9dfee6f8", b"c5d7055c9dfee6f8"))
    reader.read(Look(at=3.0, page=restarted))
    assert reader.wants_side(BUSY_THRESHOLD, restarted)


@pytest.mark.parametrize(
    ("page", "asked"),
    [
        ("frontend-idle", ["/openapi.json", "/busy_threshold"]),
        ("worker1-idle", ["/metadata"]),
        ("worker1-kvpressure", ["/metadata"]),
        ("worker-trtllm-kvpressure", ["/metadata"]),
        ("planner-schema", []),
    ],
)
def test_no_process_is_asked_for_a_path_of_another(page: str, asked: list[str]) -> None:
    """From the first scrape on: of a frontend each path that does not exist counts as a failed request."""
    feed = TargetFeed(Target("http://h:1", "h", metrics_path="/metrics"), LayoutCache())
    for scrape in (1.0, 2.0):
        answers: list[Answer] = []
        while (path := feed.next_path(answers)) is not None:
            body = capture(page) if path == "/metrics" else b"{}"
            answers.append(answer(path, body, at=scrape))
        feed.take(answers, scrape, 0.1)
        again = ["/busy_threshold"] if asked[1:] else []  # changes at any time
        assert [one.path for one in answers] == ["/metrics", *(asked if scrape == 1.0 else again)]


def test_what_is_kept_of_side_pages_and_what_is_never_asked() -> None:
    assert SIDE_FIELDS[OPENAPI] == ("info.version",)
    asked = {side.path for side in DYNAMO.side_pages} | {DYNAMO.liveness_path}
    assert asked == {"/openapi.json", "/busy_threshold", "/metadata", "/live"}
    assert "/health" in {path for path, _ in DYNAMO.never}
    assert asked.isdisjoint(path for path, _ in DYNAMO.never)


@pytest.mark.parametrize(
    "body", [None, [], {}, {"thresholds": None}, {"thresholds": [None, 3]}, {"info": 7}, "x", 5]
)
def test_side_pages_of_any_shape_are_no_fault(body: object) -> None:
    reading = read(capture("frontend-kvpressure"), {OPENAPI: body, BUSY_THRESHOLD: body})
    assert reading.identity.engine_version is None
    assert "active_decode_blocks_threshold" not in reading.config
