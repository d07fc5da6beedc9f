"""SGLang's pages beside the metrics: loads, fresher than gauges; start values; none of its secrets."""

from __future__ import annotations

import copy
import json
import math
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.answer import Answer
from collectors.engines.base import Look
from collectors.engines.detect import SIDE_FIELDS
from collectors.engines.sglang import SGLANG, SglangReader
from collectors.engines.sglang_loads import MAX_RANKS, loads_of
from collectors.engines.sglang_page import facts_of
from collectors.feed import TargetFeed
from collectors.layout import LayoutCache
from collectors.page import Page
from collectors.record import Recorder
from enginetop.fleet.fleet_tracker import FleetTracker
from enginetop.fleet.model import ReplicaState, Role, Target
from enginetop.fleet.observation import Observation
from enginetop.fleet.reading import Reading
from enginetop.fleet.snapshot import Slo
from tests.support.engine_pages import answer, fixture, measures, page_of, total

LOADED = fixture("sglang/0.5.23/sglang-0.5.23-load-queued.prom")
OLD = fixture("sglang/0.4.6/sglang-0.4.6-collector.prom")
LOADS: dict[str, Any] = json.loads(fixture("sglang/0.5.23/sglang-0.5.23-load-v1_loads.json"))
SERVER_INFO: dict[str, Any] = json.loads(fixture("sglang/0.5.23/sglang-0.5.23-server_info.json"))
MODEL_INFO: dict[str, Any] = json.loads(fixture("sglang/0.5.23/sglang-0.5.23-model_info.json"))
SECRET = "sk-admin-5f1e0c"


@cache
def parsed(page: str | bytes) -> Page:
    return page_of(page)


def read(page: str | bytes, sides: dict[str, Any], fresh: bool = True) -> Reading:
    look = Look(at=1.0, page=parsed(page), sides=sides, fresh_sides=frozenset(sides if fresh else ()))
    return SglangReader().read(look)


def loads(*entries: dict[str, Any]) -> dict[str, Any]:
    return {"version": "0.5.23", "loads": [{"timestamp": 5.0, **entry} for entry in entries]}


def gauges(reading: Reading, rank: str = "") -> list[float]:
    names = ("requests_running", "requests_waiting", "kv_usage_ratio", "kv_capacity_tokens")
    return [total(reading, name, rank=rank) for name in names]


# Loads


def test_loads_are_taken_instead_of_the_gauges() -> None:
    # The page says 0.78, as of the last report of the scheduler.
    assert gauges(read(LOADED, {"/v1/loads": LOADS})) == [4, 15, 0.7759, 4096]
    assert gauges(read(LOADED, {"/v1/loads": LOADS}, fresh=False)) == [4, 15, 0.78, 4096]
    assert gauges(read(LOADED, {})) == [4, 15, 0.78, 4096]


def test_loads_tell_what_an_idle_page_lacks() -> None:
    idle = fixture("sglang/0.5.23/sglang-0.5.23-idle-nogen.prom")
    entry = {"dp_rank": 0, "num_running_reqs": 0, "num_waiting_reqs": 0, "token_usage": 0.0}
    reading = read(idle, {"/v1/loads": loads({**entry, "max_total_num_tokens": 4096})})
    assert gauges(reading) == [0, 0, 0, 4096]


def test_counters_are_the_same_series_with_and_without_loads() -> None:
    with_loads, without = read(LOADED, {"/v1/loads": LOADS}), read(LOADED, {})
    names = ("generation_tokens", "prefix_hits", "requests_finished", "queue_seconds")
    keys = [
        {one.key for one in reading.columns.series if one.measure in names}
        for reading in (with_loads, without)
    ]
    assert keys[0] == keys[1]


def test_ranks_of_the_loads_are_those_of_the_page() -> None:
    page = "".join(
        f'sglang:num_running_reqs{{dp_rank="{rank}"}} 9\n'
        f'sglang:realtime_tokens_total{{dp_rank="{rank}",mode="decode"}} 50\n'
        for rank in range(2)
    )
    both = loads(
        {"dp_rank": 1, "num_running_reqs": 3, "queues": {"waiting": 1}, "token_usage": 0.2},
        {"dp_rank": 0, "num_running_reqs": 2, "queues": {"waiting": 0}, "token_usage": 0.1},
    )
    reading = read(page, {"/v1/loads": both})
    assert sorted(reading.columns.ranks) == ["0", "1"]
    assert [total(reading, "requests_running", rank=rank) for rank in "01"] == [2, 3]
    assert [total(reading, "kv_usage_ratio", rank=rank) for rank in "01"] == [0.1, 0.2]
    # They do not tell the capacity: the page's own gauge would stand, if it had one.
    assert "kv_capacity_tokens" not in measures(reading)
    # A rank that the loads leave out has its gauges on the page only.
    assert (
        total(read(page, {"/v1/loads": loads({"dp_rank": 0, "num_running_reqs": 2})}), "requests_running")
        == 18
    )


def test_ranks_that_the_page_does_not_have_yet() -> None:
    page = "sglang:generation_tokens_total 0\n"
    both = loads({"dp_rank": 0, "num_running_reqs": 2}, {"dp_rank": 1, "num_running_reqs": 3})
    reading = read(page, {"/v1/loads": both})
    assert {key: dict(labels) for key, labels in reading.columns.ranks.items()} == {
        "0": {"dp_rank": "0"},
        "1": {"dp_rank": "1"},
    }
    assert total(reading, "requests_running") == 5


@pytest.mark.parametrize(
    ("entry", "waiting"),
    [
        ({"num_waiting_reqs": 7, "queues": {"waiting": 5}}, 5),
        ({"num_waiting_reqs": 7}, 7),
        ({"num_waiting_reqs": 7, "disaggregation": {"mode": "null"}}, 7),
        # Its transfers are in that number: the page's queue is taken.
        ({"num_waiting_reqs": 7, "disaggregation": {"mode": "decode"}}, 15),
    ],
)
def test_waiting_is_the_queue_alone(entry: dict[str, Any], waiting: int) -> None:
    reading = read(LOADED, {"/v1/loads": loads({"dp_rank": 0, "num_running_reqs": 1, **entry})})
    assert total(reading, "requests_waiting") == waiting
    assert total(reading, "requests_running") == 1


@pytest.mark.parametrize(
    "body",
    [
        None,
        7,
        [],
        {"loads": []},
        {"loads": {}},
        {"loads": [7]},
        {"loads": [{"dp_rank": "0", "num_running_reqs": 99}]},
        {"loads": [{"dp_rank": -1, "num_running_reqs": 99}]},
        {"loads": [{"dp_rank": 0, "num_running_reqs": "99", "token_usage": None}]},
        {"loads": [{"dp_rank": 0, "num_running_reqs": -99, "token_usage": math.inf}]},
        {"loads": [{"dp_rank": 0, "num_running_reqs": 99}] * 2},
        {"loads": [{"dp_rank": rank, "num_running_reqs": 99} for rank in range(MAX_RANKS + 1)]},
        # Not published yet: the zeros of the start.
        {"loads": [{"timestamp": 0.0, "dp_rank": 0, "num_running_reqs": 0, "token_usage": 0.0}]},
    ],
)
def test_loads_that_are_not_believable_change_nothing(body: Any) -> None:
    assert gauges(read(LOADED, {"/v1/loads": body})) == [4, 15, 0.78, 4096]


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(sorted(LOADS["loads"][0])), inner)
    ),
    max_leaves=12,
)


@settings(max_examples=60, deadline=None)
@given(entries=st.lists(JSON_VALUES, max_size=4), info=JSON_VALUES)
def test_no_json_breaks_the_reader(entries: list[Any], info: Any) -> None:
    told = loads_of({"loads": entries})
    assert all(len(values) == len(told.ranks) for values in told.measures.values())
    sides = {"/v1/loads": {"loads": entries}, "/server_info": info, "/model_info": info, "/v1/models": info}
    reading = read(LOADED, sides)
    assert len(reading.values) == len(reading.columns.series)
    assert total(reading, "requests_finished") == 6


def test_changing_loads_do_not_pile_up_plans() -> None:
    page, reader = page_of(LOADED), SglangReader()
    for rank in range(60):
        body = loads({"dp_rank": 0, "num_running_reqs": 1}, {"dp_rank": rank + 1, "num_running_reqs": 1})
        sides = {"/v1/loads": body}
        reading = reader.read(Look(at=1.0, page=page, sides=sides, fresh_sides=frozenset(sides)))
        assert total(reading, "requests_running") == 2
    assert len(facts_of(page.layout)._plans) <= 16


# Settings and identity


def test_how_it_was_started() -> None:
    sides = {"/server_info": SERVER_INFO, "/model_info": MODEL_INFO, "/v1/loads": LOADS}
    told = read(LOADED, sides).config
    expected = {
        "max_num_batched_tokens": (256, "/server_info chunked_prefill_size, as started"),
        "max_prefill_tokens": (16384, "/server_info, as started"),
        "max_num_seqs": (8, "/server_info, as started"),
        "pp_max_micro_batch_size": (2, "/server_info internal_states, when it was asked"),
        "block_size": (1, "sglang:page_size"),
        "max_model_len": (2048, "sglang:context_len"),
        "kv_cache_dtype": ("auto", "/server_info, as started"),
        "schedule_policy": ("fcfs", "/server_info, as started"),
        "schedule_conservativeness": (1.0, "/server_info, as started"),
        "mem_fraction_static": (0.1, "/server_info, as started"),
        "enable_prefix_caching": (True, "/server_info, as started"),
        "enable_hierarchical_cache": (False, "/server_info, as started"),
        "enable_priority_scheduling": (False, "/server_info, as started"),
        "tp_size": (1, "/server_info, as started"),
        "pp_size": (1, "/server_info, as started"),
        "dp_size": (1, "/server_info, as started"),
    }
    assert {name: (one.value, one.source) for name, one in told.items()} == expected


@pytest.mark.parametrize(
    ("info", "setting", "value"),
    [
        ({"chunked_prefill_size": -1, "max_prefill_tokens": 8192}, "max_num_batched_tokens", 8192),
        ({"chunked_prefill_size": None}, "max_num_batched_tokens", None),
        ({"max_running_requests": None}, "max_num_seqs", None),
        (
            {
                "max_running_requests": None,
                "internal_states": [{"effective_max_running_requests_per_dp": n} for n in (30, 31)],
            },
            "max_num_seqs",
            61,
        ),
        ({"internal_states": [{"effective_max_running_requests_per_dp": None}]}, "max_num_seqs", None),
        ({"speculative_num_draft_tokens": 4, "speculative_algorithm": "EAGLE"}, "num_speculative_tokens", 3),
        (
            {"speculative_num_draft_tokens": 4, "speculative_algorithm": "EAGLE"},
            "speculative_algorithm",
            "EAGLE",
        ),
        ({"speculative_num_draft_tokens": None}, "num_speculative_tokens", None),
        ({"reasoning_parser": "qwen3"}, "reasoning_parser", "qwen3"),
        ({"reasoning_parser": "\x1b[2Jqwen3"}, "reasoning_parser", "\ufffd[2Jqwen3"),
        ({"disable_radix_cache": True}, "enable_prefix_caching", False),
        ({"page_size": 10**400}, "block_size", None),
        ({"page_size": True}, "block_size", None),
    ],
)
def test_settings(info: dict[str, Any], setting: str, value: object) -> None:
    told = read("sglang:num_running_reqs 1\n", {"/server_info": info}).config.get(setting)
    assert (told and told.value) == value


def test_the_limit_that_a_rank_works_out_comes_with_the_loads() -> None:
    reading = read(LOADED, {"/v1/loads": LOADS})
    assert (reading.config["max_num_seqs"].value, reading.config["max_num_seqs"].source) == (8, "/v1/loads")


@pytest.mark.parametrize(
    ("sides", "role"),
    [
        ({}, Role.AGGREGATED),
        ({"/model_info": {"disaggregation_mode": "decode"}}, Role.DECODE),
        ({"/server_info": {"disaggregation_mode": "prefill"}}, Role.PREFILL),
        (
            {
                "/v1/loads": {"loads": [{"disaggregation": {"mode": "decode"}}]},
                "/server_info": {"disaggregation_mode": "prefill"},  # as started; it has switched since
            },
            Role.DECODE,
        ),
    ],
)
def test_the_role_of_a_server_that_can_switch_it(sides: dict[str, Any], role: Role) -> None:
    page = 'sglang:num_running_reqs{engine_type="dynamic"} 1\n'
    assert read(page, sides).identity.role is role


@pytest.mark.parametrize(
    ("sides", "model", "source"),
    [
        ({"/v1/models": {"data": [{"id": "m1"}]}}, "m1", "/v1/models"),
        ({"/model_info": {"served_model_name": "m2", "model_path": "/m"}}, "m2", "/model_info"),
        ({"/get_server_info": {"model_path": "/models/m3/"}}, "/models/m3/", "/get_server_info"),
        (
            {"/v1/models": {"data": [{"id": "undefined"}]}, "/model_info": {"model_path": "m4"}},
            "m4",
            "/model_info",
        ),
    ],
)
def test_the_model_where_no_label_names_it(sides: dict[str, Any], model: str, source: str) -> None:
    identity = read("sglang:num_running_reqs 1\n", sides).identity
    assert (identity.model, identity.sources["model"]) == (model, source)


# Which pages are asked


class Server:
    """A server with these pages, and `status` elsewhere."""

    def __init__(self, pages: dict[str, Any], status: int = 404) -> None:
        self.pages = pages
        self.status = status
        self.feed = TargetFeed(Target("http://s1:30000", "s1"), LayoutCache())
        self.at = 100.0

    def scrape(self) -> tuple[list[Answer], Observation]:
        answers: list[Answer] = []
        while (path := self.feed.next_path(answers)) is not None:
            assert len(answers) < 12
            name = path.partition("?")[0]
            found = name in self.pages
            body = self.pages[name] if found else {"detail": "Not Found"}
            status = 200 if found else self.status
            if isinstance(body, int):
                status, body = body, b""
            answers.append(answer(name, body, at=self.at, status=status))
        self.at += 2.0
        return answers, self.feed.take(answers, self.at, 0.05)

    def asked(self) -> list[str]:
        return [one.path for one in self.scrape()[0]]


def test_a_new_server_is_asked_once_how_it_was_started_and_its_loads_each_time() -> None:
    server = Server(
        {
            "/metrics": LOADED,
            "/v1/loads": LOADS,
            "/ready": 200,
            "/server_info": SERVER_INFO,
            "/model_info": MODEL_INFO,
        }
    )
    first = server.asked()
    assert first == [
        *("/prometheus/metrics", "/metrics", "/v1/loads", "/ready"),
        *("/server_info", "/model_info", "/v1/models"),
    ]
    assert [server.asked() for _ in range(3)] == [["/metrics", "/v1/loads", "/ready"]] * 3
    reading = server.scrape()[1].reading
    assert reading is not None
    assert total(reading, "kv_usage_ratio") == 0.7759
    assert reading.identity.engine_version == "0.5.23"


def test_an_old_server_is_asked_once_for_what_it_does_not_have() -> None:
    server = Server({"/metrics": OLD, "/get_server_info": {"version": "0.4.6", "max_total_num_tokens": 99}})
    assert set(server.asked()) >= {"/v1/loads", "/server_info", "/get_server_info"}
    assert [server.asked() for _ in range(3)] == [["/metrics"]] * 3
    reading = server.scrape()[1].reading
    assert reading is not None
    assert reading.identity.engine_version == "0.4.6"
    assert (total(reading, "requests_running"), total(reading, "requests_waiting")) == (61, 7)


@pytest.mark.parametrize(
    ("status", "again"),
    [
        (401, []),
        (403, []),
        (404, []),
        (503, ["/v1/loads", "/ready", "/ping"]),
        (500, ["/v1/loads", "/ready"]),
    ],
)
def test_loads_that_are_not_for_us_are_not_asked_for_again(status: int, again: list[str]) -> None:
    server = Server({"/metrics": LOADED}, status)
    server.pages["/prometheus/metrics"] = b""
    for _ in range(4):
        server.scrape()
    assert server.asked() == ["/metrics", *again]


def test_no_page_with_a_side_effect_is_asked() -> None:
    paths = {side.path for side in SGLANG.side_pages} | {SGLANG.liveness_path}
    refused = {path for path, _ in SGLANG.never}
    assert {"/ready", "/ping"} <= paths
    assert {"/health", "/health_generate", "/flush_cache", "/slow_down"} <= refused
    assert not paths & refused
    assert SGLANG.liveness_path == "/ready"


# Pauses


@pytest.mark.parametrize(
    ("ready", "ping", "paused"),
    [
        (200, None, False),
        (503, 200, True),
        (503, 503, None),  # shutting down, or not well
        (503, 404, None),  # gone in some later release
        (404, None, None),  # before 0.5.23
        (401, None, None),
    ],
)
def test_a_pause_shows_in_what_the_server_takes(ready: int, ping: int | None, paused: bool | None) -> None:
    pages: dict[str, Any] = {"/metrics": LOADED, "/v1/loads": LOADS, "/ready": ready}
    server = Server(pages | ({} if ping is None else {"/ping": ping}))
    for _ in range(2):
        answers, observation = server.scrape()
        assert observation.reading is not None
        assert observation.reading.flags.paused is paused
        assert ("/ping" in [one.path for one in answers]) is (ping is not None) or ping == 404


def test_a_paused_server_is_no_hung_one() -> None:
    server = Server({"/metrics": LOADED, "/v1/loads": LOADS, "/ready": 503, "/ping": 200})
    tracker = FleetTracker(
        [Target("http://s1:30000", "s1")],
        interval_seconds=2.0,
        window_seconds=60.0,
        slo_for=lambda _: Slo(),
        fixed_spacing_seconds=2.0,
    )
    for _ in range(40):
        tracker.observe("http://s1:30000", server.scrape()[1])
    assert tracker.snapshot(server.at).replicas[0].state is ReplicaState.PAUSED
    server.pages["/ready"] = 200
    for _ in range(40):
        tracker.observe("http://s1:30000", server.scrape()[1])
    assert tracker.snapshot(server.at).replicas[0].state is ReplicaState.NO_PROGRESS


# Secrets


def with_secrets() -> dict[str, Any]:
    """The server's own page with keys where SGLang shows them, and where it might."""
    info = copy.deepcopy(SERVER_INFO)
    planted = {
        "api_key": SECRET,
        "admin_api_key": SECRET,
        "launch_command": f"--api-key {SECRET} --admin-api-key={SECRET}",
        "ssl_keyfile_password": SECRET,
        "watermark_key": SECRET,
        "model_path": {"token": SECRET},
        "version": [SECRET],
        "reasoning_parser": {SECRET: SECRET},
    }
    info.update(planted)
    for state in info["internal_states"]:
        state.update(planted)
    return info


def test_no_secret_of_the_server_is_kept_shown_or_recorded(tmp_path: Path) -> None:
    pages = {
        "/metrics": LOADED,
        "/v1/loads": LOADS,
        "/server_info": with_secrets(),
        "/model_info": MODEL_INFO,
    }
    server = Server({**pages, "/get_server_info": with_secrets()})
    path = tmp_path / "recording.jsonl"
    recorder = Recorder(
        path,
        created=1.0,
        targets=[Target("http://s1:30000", "s1")],
        interval_seconds=2.0,
        keep=SIDE_FIELDS,
    )
    answers, observation = server.scrape()
    recorder.record_scrape("http://s1:30000", 102.0, answers)
    recorder.close()
    recorded = path.read_text()
    assert "max_running_requests" in recorded
    assert SECRET not in recorded
    assert observation.reading is not None
    assert observation.reading.config["max_num_seqs"].value == 8
    assert SECRET not in repr(observation.reading)
    assert SECRET not in repr(server.feed._sides)
