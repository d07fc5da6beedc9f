"""TensorRT-LLM's iteration records, read where the user names their page. The capture is reconstructed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.engines.base import Json
from collectors.engines.detect import RECORDED_FIELDS, SIDE_FIELDS
from collectors.engines.trtllm_queue import IterationQueue, is_queue
from collectors.feed import TargetFeed
from collectors.layout import LayoutCache
from collectors.recording_format import (
    ScrapeRecord,
    answer_line,
    header_line,
    parse_header,
    parse_record,
)
from collectors.redact import public_body
from enginetop.fleet.model import EngineKind, Quality, Target
from enginetop.fleet.observation import Observation
from enginetop.fleet.reading import Reading
from tests.support.engine_pages import answer, fixture, page_of, total

CAPTURE = json.loads(fixture("trtllm/1.3/trtllm-reconstructed-iteration_stats.json"))


class Named:
    """A target whose page the user named."""

    def __init__(self, path: str = "/metrics") -> None:
        self._path = path
        self._feed = TargetFeed(Target("http://r1:8000", "r1", path), LayoutCache())
        self._at = 100.0

    def look(self, body: Json) -> Observation:
        self._at += 2.0
        return self._feed.take([answer(self._path, body, at=self._at)], self._at, 0.01)

    def read(self, body: Json) -> Reading:
        reading = self.look(body).reading
        assert reading is not None
        return reading


def test_the_captured_record() -> None:
    reading = Named().read(CAPTURE)
    expected = {
        "requests_running": 48,
        "requests_waiting": 23,
        "paused_requests": 4,
        "kv_usage_ratio": 3879 / 4096,
        "kv_capacity_tokens": 4096 * 32,
        "requests_finished": 1,
        "prefix_hits": 3060,
        "prefix_queries": 3060 + 6800,
        "spec_draft_tokens": 135,
        "spec_accepted_tokens": 57,
    }
    assert {measure: total(reading, measure) for measure in expected} == expected
    assert reading.identity.engine is EngineKind.TRTLLM
    assert reading.config["max_num_batched_tokens"].value == 8192
    assert "other readers" in reading.columns.estimated["requests_running"]
    assert reading.columns.absent["ttft_seconds"].quality is Quality.UNKNOWN


def record(**fields: Json) -> dict[str, Json]:
    return {"iterLatencyMS": 10.0, "numActiveRequests": 2, "numQueuedRequests": 0, **fields}


def test_the_newest_record_holds_and_all_are_counted() -> None:
    target = Named()
    first = target.read([record(numCompletedRequests=3), record(numActiveRequests=5, numCompletedRequests=1)])
    assert (total(first, "requests_running"), total(first, "requests_finished")) == (5, 4)
    second = target.read([record(numActiveRequests=4, numCompletedRequests=2)])
    assert (total(second, "requests_running"), total(second, "requests_finished")) == (4, 6)
    assert first.progress_token != second.progress_token


def test_without_iterations_nothing_runs() -> None:
    target = Named()
    target.read([record(numCompletedRequests=3, kvCacheStats={"maxNumBlocks": 10, "usedNumBlocks": 5})])
    idle = target.read([])
    assert total(idle, "requests_running") == total(idle, "requests_waiting") == 0
    assert total(idle, "requests_finished") == 3
    assert total(idle, "kv_usage_ratio") == 0.5


def test_an_idle_server_seen_first() -> None:
    reading = Named().read([])
    assert total(reading, "requests_running") == 0
    assert reading.identity.engine is EngineKind.TRTLLM


@pytest.mark.parametrize("body", [["x"], [3], [{"id": 1}], [record(), {"id": 1}], [None]])
def test_other_lists_are_no_records(body: Json) -> None:
    observation = Named().look(body)
    assert observation.failure is not None
    assert "JSON array" in observation.failure.detail
    assert not is_queue(body)


def test_a_page_that_nobody_named_is_no_page() -> None:
    feed = TargetFeed(Target("http://r1:8000", "r1"), LayoutCache())
    assert feed.take([answer("/metrics", CAPTURE)], 100.0, 0.01).failure is not None


def test_a_recording_keeps_the_numbers_and_nothing_else() -> None:
    """A record may hold what a later release puts there; only declared figures are written."""
    body = [
        {**CAPTURE[0], "prompt": "secret", "kvCacheStats": {**CAPTURE[0]["kvCacheStats"], "key": "secret"}}
    ]
    page = answer("/metrics", body, headers={"content-type": "application/json"})
    kept = json.loads(public_body(page, RECORDED_FIELDS))
    assert "secret" not in json.dumps(kept)
    assert total(Named().read(kept), "requests_running") == 48
    assert total(Named().read(kept), "kv_capacity_tokens") == 4096 * 32
    assert "/metrics" not in SIDE_FIELDS


def test_a_recording_of_a_named_page_is_replayed_as_it_was_read() -> None:
    target = Target("http://r1:8000", "r1", "/metrics")
    page = answer("/metrics", CAPTURE, at=100.0, headers={"content-type": "application/json"})
    header = parse_header(header_line(100.0, [target], 2.0))
    record = parse_record(answer_line(target.url, 100.0, page, RECORDED_FIELDS))
    assert header is not None
    assert isinstance(record, ScrapeRecord)
    reading = TargetFeed(header[0], LayoutCache()).take([record.answer], 100.0, 0.01).reading
    assert reading is not None
    assert total(reading, "requests_waiting") == 23


FIELDS = st.sampled_from([*CAPTURE[0], *CAPTURE[0]["kvCacheStats"], "other"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=4),
    max_leaves=15,
)


@settings(max_examples=50, deadline=None)
@given(st.lists(VALUES, max_size=4), st.lists(VALUES, max_size=4))
def test_no_record_makes_trouble(first: list[Json], second: list[Json]) -> None:
    queue = IterationQueue()
    for records in (first, second):
        assert page_of(queue.page(records)).bad_lines == 0
