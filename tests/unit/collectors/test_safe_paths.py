"""No side effects: no engine, in no state, is asked for a page that it did not declare or that would act.

A monitor that drains a queue, loads or wakes a model, spends tokens, counts as a health probe or ends a
server changes what it is there to watch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from fnmatch import fnmatchcase
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.clock import SteadyClock
from collectors.engines.detect import TABLES
from collectors.feed import TargetFeed
from collectors.http import HttpFetcher
from collectors.layout import LayoutCache
from collectors.origin import METRICS_PATHS
from collectors.scrape import Scraper
from enginetop.fleet.admin_surface import KEYLESS
from enginetop.fleet.model import Target
from tests.support.faulty_server import FaultyServer, Reply, Request, page
from tests.support.strict_engines import ENGINES, Engine, State, StrictServer, declared, scrape

BY_NAME = pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)


_TELLING = tuple(State(word) for word in State if word not in (State.IDLE, State.EMPTY, State.WEB_PAGE))
_LAYOUTS = LayoutCache()


def feed_of() -> TargetFeed:
    return TargetFeed(Target("http://r1:8000", "r1"), _LAYOUTS)


@BY_NAME
def test_a_server_that_is_well_is_read_from_declared_pages_only(engine: Engine) -> None:
    feed, server = feed_of(), StrictServer(engine)
    for at in range(4):
        observation = scrape(feed, server, float(at))
        assert observation.reading is not None, observation.failure
    assert feed.engine is engine.table.kind


@BY_NAME
def test_each_change_of_state(engine: Engine) -> None:
    """Each state first of all, and each after each other one on a server that was well before."""
    stories: list[tuple[State, ...]] = [(first, first, State.OK) for first in State]
    stories += [(State.OK, first, first, second, State.OK) for first, second in product(_TELLING, _TELLING)]
    for story in stories:
        feed, server = feed_of(), StrictServer(engine)
        for at, server.state in enumerate(story):
            scrape(feed, server, float(at))


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(ENGINES), st.lists(st.sampled_from(State), max_size=12))
def test_any_story(engine: Engine, states: list[State]) -> None:
    feed, server = feed_of(), StrictServer(engine)
    for at, server.state in enumerate(states):
        scrape(feed, server, float(at))


@BY_NAME
def test_after_any_trouble_a_server_that_is_well_is_read_again(engine: Engine) -> None:
    for trouble in State:
        feed, server = feed_of(), StrictServer(engine)
        for at, server.state in enumerate((State.OK, trouble, trouble, State.OK, State.OK)):
            observation = scrape(feed, server, float(at))
        assert observation.failure is None, (trouble, observation.failure)


@pytest.mark.parametrize("fast", [True, False], ids=["lean", "httpx"])
def test_nothing_but_get_goes_over_the_wire(fast: bool) -> None:
    async def look(urls: list[str]) -> None:
        fetcher = HttpFetcher(fast_path=fast)
        try:
            for url in urls:
                scraper = Scraper(
                    Target(url, url), TargetFeed(Target(url, url), _LAYOUTS), fetcher, SteadyClock()
                )
                for _ in range(2):
                    assert (await scraper.scrape(10.0)).observation.failure is None
        finally:
            await fetcher.aclose()

    with FaultyServer() as wire:
        replicas = [wire.replica(_script(StrictServer(engine))) for engine in ENGINES]
        asyncio.run(look([replica.url for replica in replicas]))
    requests = [request for replica in replicas for request in replica.requests]
    assert {request.method for request in requests} == {"GET"}
    assert not any("content-length" in request.headers for request in requests)


def _script(server: StrictServer) -> Callable[[Request], Reply]:
    def answer(request: Request) -> Reply:
        said = server.get(request.path)
        return page(said.body, said.status, extra=f"server: {said.headers['server']}\r\n")

    return answer


def test_a_queue_is_drained_once_at_most_before_it_is_known_for_one() -> None:
    """TensorRT-LLM without its Prometheus page: `/metrics` is the queue of iteration records."""
    trtllm = next(engine for engine in ENGINES if engine.name == "trtllm")
    feed, server = feed_of(), StrictServer(trtllm)
    server.state = State.NO_PAGE
    details = []
    for at in range(5):
        failure = scrape(feed, server, float(at)).failure
        assert failure is not None
        details.append(failure.detail)
    assert server.asked.count("/metrics") == 1
    assert all("TensorRT-LLM" in detail for detail in details), details


def test_another_engine_on_the_same_address_is_found_after_the_first_was_gone() -> None:
    trtllm, vllm = (next(one for one in ENGINES if one.name == name) for name in ("trtllm", "vllm"))
    feed, server = feed_of(), StrictServer(trtllm)
    scrape(feed, server, 0.0)
    server.state = State.REFUSED
    scrape(feed, server, 1.0)
    observation = scrape(feed, StrictServer(vllm), 2.0)
    assert observation.reading is not None
    assert observation.reading.identity.engine == "vllm"


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.title)
def test_what_is_declared_is_never_what_is_forbidden(table: object) -> None:
    one = next(known for known in TABLES if known is table)
    asked = {request.partition("?")[0] for request in declared(one)} - set(METRICS_PATHS)
    assert not [path for path in asked for pattern, _ in one.never if fnmatchcase(path, pattern)]
    assert all(path.startswith("/") and why for path, why in one.never)
    assert len(one.never) == len({path for path, _ in one.never})


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.title)
def test_the_doctor_asks_nothing_that_is_forbidden_either(table: object) -> None:
    one = next(known for known in TABLES if known is table)
    pages = [page.partition("?")[0] for page in KEYLESS.get(one.kind, ())]
    assert not [page for page in pages for pattern, _ in one.never if fnmatchcase(page, pattern)]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.title)
def test_what_is_read_and_what_can_be_changed_is_said(table: object) -> None:
    one = next(known for known in TABLES if known is table)
    assert one.reads
    assert one.changes
