"""TGI's table against its pages. The capture is reconstructed: its names and buckets are real."""

from __future__ import annotations

import math
import random

import pytest

from collectors.engines.base import Look
from collectors.engines.tgi import TABLE, TgiReader
from enginetop.fleet.model import EngineKind, Quality
from enginetop.fleet.reading import Part, Reading
from tests.support.engine_pages import fixture, histogram_lines, measures, page_of, total
from tests.support.mutations import mutated_pages

PAGE = fixture("tgi/3.3/tgi-3.3-reconstructed-busy.prom")


def read(text: str | bytes, info: object = None) -> Reading:
    page = page_of(text)
    assert TABLE.is_on(page.layout)
    return TgiReader().read(Look(at=100.0, page=page, sides={} if info is None else {"/info": info}))


def test_a_busy_server() -> None:
    reading = read(PAGE)
    expected = {
        "requests_running": 22,
        "requests_waiting": 14,
        "kv_capacity_tokens": 65_536,
        "requests_finished": 120 + 2 + 6 + 1,  # not tgi_request_count, which counts arrivals
        "requests_aborted": 1,  # dropped
        "requests_errored": 2 + 6,  # validation and overloaded
        "requests_rejected": 6,  # overloaded
    }
    assert {measure: total(reading, measure) for measure in expected} == expected
    assert total(reading, "kv_usage_ratio") == 62_100 / 65_536
    assert total(reading, "prompt_tokens_processed") == 240_891.14288999993
    assert total(reading, "generation_tokens") == 50_443.111502000014
    for measure in ("tpot_seconds", "e2e_seconds", "queue_seconds", "prompt_tokens", "output_tokens"):
        assert total(reading, measure, Part.COUNT) == 120
        assert total(reading, measure, Part.BUCKET, le=math.inf) == 120
    assert total(reading, "queue_seconds", Part.SUM) == 193.21060300000005
    assert reading.start_token is None
    assert reading.live_progress  # the batch series move with each step


def test_estimates_say_why() -> None:
    estimated = read(PAGE).columns.estimated
    assert set(estimated) == {"kv_usage_ratio", "tpot_seconds"}
    assert "reserved" in estimated["kv_usage_ratio"]
    assert "prefill" in estimated["tpot_seconds"]


def test_what_it_does_not_export_has_its_reason() -> None:
    absent = read(PAGE).columns.absent
    for measure in ("ttft_seconds", "itl_seconds", "preemptions", "prefix_hits", "spec_drafts"):
        assert absent[measure].quality is Quality.UNSUPPORTED
        assert "TGI" in absent[measure].note


def test_identity_and_limits_of_version_3() -> None:
    info = {
        "model_id": "org/model",
        "version": "3.3.6-dev0",
        "max_concurrent_requests": 128,
        "max_input_tokens": 4095,
        "max_total_tokens": 4096,
        "sha": None,
    }
    reading = read(PAGE, info)
    identity = reading.identity
    assert (identity.engine, identity.engine_version, identity.model) == (
        EngineKind.TGI,
        "3.3.6-dev0",
        "org/model",
    )
    assert dict(identity.sources) == {"engine_version": "/info", "model": "/info"}
    assert {key: (value.value, value.source) for key, value in reading.config.items()} == {
        "max_model_len": (4096, "/info max_total_tokens"),
        "max_input_tokens": (4095, "/info max_input_tokens"),
        "max_concurrent_requests": (128, "/info max_concurrent_requests"),
    }


def test_older_versions_tell_the_limits_of_a_batch() -> None:
    info = {"max_input_length": 1024, "max_batch_size": 32, "max_batch_prefill_tokens": 4096}
    assert {key: value.value for key, value in read(PAGE, info).config.items()} == {
        "max_input_tokens": 1024,
        "max_num_seqs": 32,
        "max_num_batched_tokens": 4096,
    }


@pytest.mark.parametrize("info", [[], "x", {"model_id": 4, "version": [], "max_total_tokens": "many"}])
def test_an_information_page_of_another_form(info: object) -> None:
    reading = read(PAGE, info)
    assert (reading.identity.model, reading.identity.engine_version) == (None, None)
    assert dict(reading.config) == {}


def test_before_the_first_request() -> None:
    """Series are created when something is counted; the capacity is set at the start."""
    reading = read("tgi_batch_max_total_tokens 65536\n")
    assert measures(reading) == {"kv_capacity_tokens"}
    for later in (
        "requests_running",
        "requests_waiting",
        "kv_usage_ratio",
        "requests_finished",
        "e2e_seconds",
    ):
        assert reading.columns.absent[later].quality is Quality.UNKNOWN
    assert not reading.live_progress


def test_a_server_that_never_failed() -> None:
    reading = read("tgi_request_success 5\n# TYPE tgi_request_success counter\n")
    assert total(reading, "requests_finished") == 5
    assert reading.columns.absent["requests_errored"].quality is Quality.UNKNOWN
    assert "requests_rejected" not in measures(reading)


def test_counters_with_a_suffix_are_the_same() -> None:
    reading = read('tgi_request_success_total 5\ntgi_request_failure_total{err="dropped"} 2\n')
    assert total(reading, "requests_finished") == 7
    assert total(reading, "requests_aborted") == 2


def test_a_batch_without_a_size_has_no_usage() -> None:
    reading = read("tgi_batch_current_max_tokens 5\ntgi_batch_max_total_tokens 0\n")
    assert math.isnan(total(reading, "kv_usage_ratio"))


def test_a_step_is_movement() -> None:
    page = '# TYPE tgi_batch_inference_count counter\ntgi_batch_inference_count{{method="decode"}} {}\n'
    before, after = (read(page.format(steps)) for steps in (90, 91))
    assert before.progress_token != after.progress_token
    assert before.live_progress


def test_prefills_and_decodes_are_not_requests() -> None:
    """Durations of batches carry the method; no measure takes them for those of requests."""
    text = histogram_lines("tgi_batch_inference_duration", 9, labels='method="prefill"')
    assert "e2e_seconds" not in measures(read(text))


def test_the_order_of_lines_does_not_matter() -> None:
    lines = PAGE.decode().splitlines(keepends=True)
    random.Random(5).shuffle(lines)
    shuffled, ordered = read("".join(lines)), read(PAGE)
    for measure in measures(ordered):
        has_count = measure.endswith("_seconds") or measure in ("prompt_tokens", "output_tokens")
        part = Part.COUNT if has_count else Part.VALUE
        assert total(shuffled, measure, part) == total(ordered, measure, part), measure


def test_no_mutation_of_a_page_makes_trouble() -> None:
    for body in mutated_pages(PAGE, 40):
        page = page_of(body)
        if TABLE.is_on(page.layout):
            reading = TgiReader().read(Look(at=1.0, page=page))
            assert len(reading.values) == len(reading.columns.series)
