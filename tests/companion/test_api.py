"""Requests and answers of the knob API, on a real board."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enginetop.fleet.knobs import parse_row, parse_sheet
from enginetop_companion.api import Api
from enginetop_companion.board import Answer
from enginetop_companion.settings import Objective
from enginetop_companion_vllm import engine_side
from enginetop_companion_vllm.ranks import Ranks
from enginetop_companion_vllm.serving_side import EngineSeenHere, EngineView
from tests.companion.fakes import FakeCore

KNOBS = "/enginetop/v1/knobs"
SLO = "/enginetop/v1/slo"
PATCH: dict[str, Any] = {
    "knob": "max_num_batched_tokens",
    "value": 128,
    "if_version": 0,
    "ttl_seconds": 180,
    "change": "id",
    "reason": "tpot",
}

pytestmark = pytest.mark.usefixtures("fake_vllm")


class World:
    def __init__(self) -> None:
        self.core = FakeCore()
        self.refreshed = 0

        async def call_all(verb: str, asked: dict[str, Any]) -> list[dict[str, Any]]:
            self.refreshed += verb == "view"
            return [engine_side.call(self.core, verb, asked)]

        ranks = Ranks(call_all, 1)
        self.view = EngineView(ranks, Objective())
        self.api = Api(EngineSeenHere(ranks, self.view), "vllm", "0.32.0", logging.getLogger("test"))

    def ask(self, method: str, path: str, body: object = None) -> Answer:
        raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        return asyncio.run(self.api.answer(method, path, raw))


def test_the_sheet_is_what_the_tool_reads() -> None:
    sheet = parse_sheet(World().ask("GET", KNOBS).body)
    assert (sheet.engine, sheet.engine_version, sheet.applied, sheet.total) == ("vllm", "0.32.0", 1, 1)
    budget = sheet.knob("max_num_batched_tokens")
    assert budget is not None
    assert (budget.value, budget.start, budget.min, budget.max, budget.version) == (512, 512, 80, 512, 0)


def test_a_change_a_conflict_a_renewal_and_the_way_back() -> None:
    world = World()
    done = world.ask("PATCH", KNOBS, PATCH)
    assert (done.status, done.body["applied"], done.body["total"]) == (200, 1, 1)
    row = parse_row(done.body)
    assert (row.value, row.version) == (128, 1)
    conflict = world.ask("PATCH", KNOBS, PATCH)
    assert (conflict.status, parse_row(conflict.body).version) == (409, 1)
    renewed = world.ask("PATCH", KNOBS, PATCH | {"if_version": 1})
    assert (renewed.status, renewed.body["version"]) == (200, 1)
    back = world.ask("DELETE", f"{KNOBS}/max_num_batched_tokens")
    assert (back.status, back.body["value"], back.body["version"]) == (200, 512, 2)
    assert world.core.scheduler.max_num_scheduled_tokens == 512
    assert world.refreshed == 4


def test_bounds_are_told() -> None:
    refused = World().ask("PATCH", KNOBS, PATCH | {"value": 79})
    assert (refused.status, refused.body["min"], refused.body["max"]) == (422, 80, 512)


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        ({"ttl_seconds": 0.5}, "ttl_seconds"),
        ({"ttl_seconds": "60"}, "ttl_seconds"),
        ({"ttl_seconds": True}, "ttl_seconds"),
        ({"ttl_seconds": 1e9}, "ttl_seconds"),
        ({"ttl_seconds": 10**400}, "ttl_seconds"),
        ({"value": 128.0}, "value"),
        ({"value": True}, "value"),
        ({"value": None}, "value"),
        ({"value": 1 << 60}, "value"),
        ({"if_version": "0"}, "if_version"),
        ({"knob": ""}, "knob"),
        ({"knob": 3}, "knob"),
        ({"change": ""}, "change"),
        ({"change": "x" * 129}, "change"),
    ],
)
def test_a_wrong_key_is_named(wrong: dict[str, Any], word: str) -> None:
    world = World()
    answer = world.ask("PATCH", KNOBS, PATCH | wrong)
    assert answer.status == 400
    assert word in answer.body["error"]
    assert world.core.scheduler.max_num_scheduled_tokens == 512


def test_a_change_must_say_how_long_it_is_for() -> None:
    without = {key: value for key, value in PATCH.items() if key != "ttl_seconds"}
    assert "ttl_seconds" in World().ask("PATCH", KNOBS, without).body["error"]
    assert World().ask("PATCH", KNOBS, PATCH | {"ttl_seconds": None}).body["expires_in_seconds"] is None


def test_objective() -> None:
    world = World()
    assert world.ask("GET", SLO).body == {"ttft_seconds": 1.0, "tpot_seconds": 0.1}
    put = world.ask("PUT", SLO, {"ttft_seconds": 0.6, "tpot_seconds": 0.05})
    assert (put.status, put.body) == (200, {"ttft_seconds": 0.6, "tpot_seconds": 0.05})
    for bad in (
        {},
        {"ttft_seconds": 1},
        {"ttft_seconds": 0, "tpot_seconds": 1},
        {"ttft_seconds": "1", "tpot_seconds": 1},
        {"ttft_seconds": 10**400, "tpot_seconds": 1},
    ):
        assert world.ask("PUT", SLO, bad).status == 400
    assert world.ask("GET", SLO).body == {"ttft_seconds": 0.6, "tpot_seconds": 0.05}


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", KNOBS, 405),
        ("DELETE", KNOBS, 405),
        ("GET", f"{KNOBS}/max_num_seqs", 405),
        ("DELETE", f"{KNOBS}/nothing", 404),
        ("DELETE", SLO, 405),
        ("GET", "/metrics", 404),
        ("GET", "/enginetop/v1/", 404),
    ],
)
def test_what_there_is_not(method: str, path: str, status: int) -> None:
    assert World().ask(method, path).status == status


@settings(max_examples=50, deadline=None)
@given(
    st.sampled_from(["GET", "PATCH", "PUT", "DELETE"]),
    st.sampled_from([KNOBS, SLO, f"{KNOBS}/%ff", f"{KNOBS}/max_num_seqs"]),
    st.one_of(
        st.binary(max_size=60), st.just(b"[" * 5000), st.just(json.dumps(PATCH | {"value": 1e999}).encode())
    ),
)
def test_no_body_breaks_it(method: str, path: str, body: bytes) -> None:
    world = World()
    assert world.ask(method, path, body).status in {200, 400, 404, 405}
    assert world.core.scheduler.max_num_scheduled_tokens == 512
