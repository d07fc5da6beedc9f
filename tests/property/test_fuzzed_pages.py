"""Five hundred fuzzed pages through all that reads and shows them; `make verify` takes a hundred thousand."""

from __future__ import annotations

import gc
import json
import random
import tracemalloc

import pytest

from collectors.layout import MAX_TEMPLATES, LayoutCache
from enginetop.fleet.document import snapshot_document
from enginetop.fleet.observation import FailureKind
from tests.support.engine_pages import answer
from tests.support.outputs import drawn
from tests.support.page_fuzz import HOSTILE, Story, fuzzed_page, page_of_one_number, pages, unsafe_in
from tests.support.small_fleet import new_feeds, target, tracker_of

PAGES = 500
MEBIBYTE = 2**20


def test_no_fuzzed_page_does_harm() -> None:
    """New targets and old ones, shared layouts; a failure names its seed."""
    layouts = LayoutCache()
    story = Story(layouts)
    for seed in range(PAGES):
        if seed % 10 == 0:
            story.begin()
        story.look(seed)
        if seed % 5 == 4:
            story.tell(seed)
    assert len(layouts) <= MAX_TEMPLATES


def test_memory_does_not_grow_with_what_was_seen() -> None:
    layouts, story = LayoutCache(max_bytes=2 * MEBIBYTE), None
    sizes = []
    tracemalloc.start()
    try:
        for round_ in range(3):
            story = Story(layouts)
            for seed in range(round_ * 40, round_ * 40 + 40):
                story.look(seed)
            story.tell(0)
            del story
            gc.collect()
            sizes.append(tracemalloc.get_traced_memory()[0])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # A cache of 2 MiB weighs about 3.2 MiB; what else a round leaves behind must not add up.
    assert sizes[2] - sizes[1] < 4 * MEBIBYTE, sizes
    assert peak < 160 * MEBIBYTE, peak


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_label_reaches_no_terminal(text: str) -> None:
    """In every place of a page that is shown: model, rank, backend, reason, config."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    lines = [
        f'vllm:num_requests_running{{engine="{escaped}",model_name="{escaped}"}} 1',
        f'vllm:num_requests_running{{engine="1",model_name="{escaped}"}} 1',
        f'vllm:kv_cache_usage_perc{{engine="{escaped}"}} 0.5',
        f'vllm:cache_config_info{{engine="{escaped}",cache_dtype="{escaped}",block_size="{escaped}"}} 1',
    ]
    router = [
        f'smg_worker_health{{worker="{escaped}"}} 0',
        f'smg_engine_running_requests{{worker="{escaped}",dp_rank="{escaped}"}} 1',
        f'smg_worker_pool_size{{model="{escaped}"}} 1',
    ]
    feeds, tracker = (
        new_feeds(),
        tracker_of([target("http://a:1"), target("http://b:1"), target("http://c:1")]),
    )
    bodies = ("\n".join(lines), "\n".join(router), f"<html><title>{text}</title></html>")
    for url, body in zip(("http://a:1", "http://b:1", "http://c:1"), bodies, strict=True):
        feed = feeds(target(url))
        raw = body.encode("utf-8", "surrogatepass")
        said = [answer("/metrics", raw), answer("/version", json.dumps({"version": text}))]
        for at in (100.0, 102.0):
            tracker.observe(url, feed.take(said, at, 0.01))
    snapshot = tracker.snapshot(102.0)
    assert snapshot.replicas[0].signals
    shown = drawn(snapshot)
    assert not unsafe_in(shown)
    document = json.dumps(snapshot_document(snapshot), ensure_ascii=False)
    assert not unsafe_in(document)


@pytest.mark.parametrize("number", ["+Inf", "-Inf", "NaN", "1e308", "-1", "0.5", "1e18"])
def test_every_number_of_a_page_may_be_odd(number: str) -> None:
    feeds = new_feeds()
    for at, page in enumerate(pages()):
        feed, tracker = feeds(target("http://a:1")), tracker_of([target("http://a:1")])
        for t in (0.0, 5.0):
            observation = feed.take([answer("/metrics", page_of_one_number(page, number))], t, 0.01)
            assert observation.failure is None or observation.failure.kind is not FailureKind.COLLECTOR, at
            tracker.observe("http://a:1", observation)
        json.dumps(snapshot_document(tracker.snapshot(5.0)), allow_nan=False)


def test_ten_thousand_ranks_are_read_and_added() -> None:
    count = 10_000
    page = "".join(
        f'vllm:num_requests_running{{engine="{n}"}} 1\nvllm:kv_cache_usage_perc{{engine="{n}"}} 0.5\n'
        for n in range(count)
    )
    tracker, feed = tracker_of([target("http://a:1")]), new_feeds()(target("http://a:1"))
    tracker.observe("http://a:1", feed.take([answer("/metrics", page)], 100.0, 0.01))
    (replica,) = tracker.snapshot(100.0).replicas
    assert len(replica.ranks) == count
    assert replica.scalar("requests_running").number == count


def test_a_page_follows_from_its_seed() -> None:
    assert [fuzzed_page(random.Random(7)) for _ in range(2)] == [fuzzed_page(random.Random(7))] * 2
