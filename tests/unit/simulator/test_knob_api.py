"""The knob API's documents and statuses, without a wire; bodies of any kind change nothing by accident."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enginetop.fleet.knobs import KNOBS_PATH, SLO_PATH, KnobTransport, parse_row, parse_sheet
from enginetop.fleet.snapshot import Slo
from enginetop.simulator.http_messages import Reply, Request
from enginetop.simulator.knob_api import KnobApi
from enginetop.simulator.knob_board import KnobBoard
from tests.unit.simulator.knob_engine import BUDGET, START, Engine


class Served:
    """An API with a clock that a test moves."""

    def __init__(self, token: str | None = None) -> None:
        self.now = 50.0
        self.slo = Slo(0.6, 0.05, 0.9)
        self.engine = Engine()
        self.board = KnobBoard(self.engine, "life-7", engine_version="0.32.0", ranks=2)
        self.api = KnobApi(self.board, lambda: self.now, lambda: self.slo, self.put, token)

    def put(self, slo: Slo) -> None:
        self.slo = slo

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any, Reply]:
        sent = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        reply = self.api.handler(Request(method, path, headers, sent))
        assert isinstance(reply, Reply)
        assert reply.content_type == "application/json"
        assert b"\n" not in reply.body
        return reply.status, json.loads(reply.body), reply

    def patch(self, **fields: Any) -> tuple[int, Any, Reply]:
        body = {
            "knob": BUDGET,
            "value": 128,
            "if_version": 0,
            "ttl_seconds": 180,
            "change": "c1",
            "reason": "TPOT",
        }
        return self.ask("PATCH", KNOBS_PATH, {**body, **fields})


def test_the_sheet_is_the_contract_s() -> None:
    status, document, _ = Served().ask("GET", KNOBS_PATH)
    assert status == 200
    assert document["schema"] == "enginetop.knobs/1"
    assert document["instance"] == "life-7"
    assert (document["engine"], document["engine_version"]) == ("vllm", "0.32.0")
    assert (document["applied"], document["total"]) == (2, 2)
    assert document["knobs"][0] == {
        "name": BUDGET,
        "value": 512,
        "start": 512,
        "min": 80,
        "max": 512,
        "unit": "tokens",
        "version": 0,
        "expires_in_seconds": None,
        "note": "",
    }
    assert {row.name: row.value for row in parse_sheet(document).knobs} == START


def test_a_change_answers_with_the_row_and_who_confirmed() -> None:
    served = Served()
    status, document, _ = served.patch()
    assert status == 200
    assert document == {
        "name": BUDGET,
        "value": 128,
        "start": 512,
        "min": 80,
        "max": 512,
        "unit": "tokens",
        "version": 1,
        "expires_in_seconds": 180.0,
        "note": "goes back to 512 by itself",
        "applied": 2,
        "total": 2,
    }
    served.now += 180.0
    assert served.ask("GET", KNOBS_PATH)[1]["knobs"][0]["value"] == 512


def test_refusals_carry_the_row_and_say_why() -> None:
    served = Served()
    served.patch()
    status, document, _ = served.patch(value=200)
    assert (status, document["version"], document["value"]) == (409, 1, 128)
    assert document["detail"] == "at version 1, not 0"
    status, document, _ = served.patch(value=79, if_version=1)
    assert (status, document["min"], document["max"]) == (422, 80, 512)
    status, document, reply = served.patch(value=200, if_version=1)
    assert (status, document["detail"]) == (429, "changed a moment ago")
    assert reply.headers == (("retry-after", "1"),)
    served.now += 1.0
    served.board.refusing_ranks = 1
    status, document, _ = served.patch(value=200, if_version=1)
    assert (status, document["applied"], document["total"], document["value"]) == (503, 0, 2, 128)
    assert parse_row(document).version == 1


def test_delete() -> None:
    served = Served()
    served.patch(ttl_seconds=None)
    status, document, _ = served.ask("DELETE", f"{KNOBS_PATH}/{BUDGET}")
    assert (status, document["value"], document["version"], document["applied"]) == (200, 512, 2, 2)
    assert served.ask("DELETE", f"{KNOBS_PATH}/max%5Fnum%5Fseqs")[0] == 200
    status, document, _ = served.ask("DELETE", f"{KNOBS_PATH}/warp")
    assert status == 404
    assert document["detail"].startswith("no knob 'warp' here; there are: max_num_batched_tokens, ")


@pytest.mark.parametrize(
    ("method", "path", "status", "allowed"),
    [
        ("POST", KNOBS_PATH, 405, "HEAD, GET, PATCH"),
        ("DELETE", KNOBS_PATH, 405, "HEAD, GET, PATCH"),
        ("PATCH", SLO_PATH, 405, "HEAD, GET, PUT"),
        ("PATCH", f"{KNOBS_PATH}/{BUDGET}", 405, "DELETE"),
        ("GET", "/enginetop/v1/knob", 404, None),
        ("GET", "/enginetop/v1", 404, None),
    ],
)
def test_wrong_methods_and_paths(method: str, path: str, status: int, allowed: str | None) -> None:
    found, document, reply = Served().ask(method, path)
    assert (found, dict(reply.headers).get("allow")) == (status, allowed)
    assert list(document) == ["detail"]


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"knob": 7}, "knob: not a plain text"),
        ({"knob": "a\nb"}, "knob: not a plain text"),
        ({"value": None}, "value: not a whole number"),
        ({"value": "128"}, "value: not a whole number"),
        ({"value": 128.0}, "value: not a whole number"),
        ({"value": True}, "value: not a whole number"),
        ({"value": 10**30}, "value: not a whole number"),
        ({"if_version": "0"}, "if_version: not a whole number"),
        ({"if_version": False}, "if_version: not a whole number"),
        ({"ttl_seconds": 0}, "ttl_seconds: not a number above 0 and at most 86400"),
        ({"ttl_seconds": -1}, "ttl_seconds: not a number"),
        ({"ttl_seconds": 86401}, "ttl_seconds: not a number"),
        ({"ttl_seconds": "180"}, "ttl_seconds: not a number"),
        ({"ttl_seconds": True}, "ttl_seconds: not a number"),
        ({"ttl_seconds": float("nan")}, "ttl_seconds: not a number"),
        ({"ttl_seconds": float("inf")}, "ttl_seconds: not a number"),
        ({"change": 5}, "change: not a plain text"),
        ({"reason": "x" * 513}, "reason: not a plain text"),
        ({"ttl": 180}, "unknown key 'ttl'; known: knob, value, if_version, ttl_seconds, change, reason"),
    ],
)
def test_bodies_that_are_refused(fields: dict[str, Any], problem: str) -> None:
    served = Served()
    status, document, _ = served.patch(**fields)
    assert status == 400
    assert document["detail"].startswith(problem)
    assert served.engine.values == START
    assert served.board.next_expiry is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"7",
        b"null",
        b"\xff\xfe",
        b"[" * 10_000,
        b'{"knob":"max_num_batched_tokens","value":128,"value":256}',
        b'{"value":128}',
        b'{"knob":"max_num_batched_tokens"}',
    ],
)
def test_bodies_that_are_no_document(body: bytes) -> None:
    served = Served()
    status, document, _ = served.ask("PATCH", KNOBS_PATH, body)
    assert status in {400, 404}
    assert document["detail"]
    assert served.engine.values == START


def test_a_large_body_is_not_looked_at() -> None:
    served = Served()
    status, _, _ = served.patch(reason="x" * 16 * 1024)
    assert status == 413
    assert served.engine.values == START


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)


@given(
    st.dictionaries(
        st.sampled_from(["knob", "value", "if_version", "ttl_seconds", "change", "reason"]),
        _JSON | st.sampled_from([BUDGET, 128, 0, 180]),
    )
)
@settings(max_examples=120, deadline=None)
def test_any_body_is_answered_and_takes_effect_only_with_200(body: dict[str, Any]) -> None:
    served = Served()
    status, _, _ = served.ask("PATCH", KNOBS_PATH, body)
    assert status in {200, 400, 404, 409, 422}
    assert (served.engine.values == START) is (status != 200 or body["value"] == START[body["knob"]])


def test_the_slo_can_be_read_and_put() -> None:
    served = Served()
    assert served.ask("GET", SLO_PATH)[1] == {"ttft_seconds": 0.6, "tpot_seconds": 0.05}
    status, document, _ = served.ask("PUT", SLO_PATH, {"ttft_seconds": 2, "tpot_seconds": 0.1})
    assert (status, document) == (200, {"ttft_seconds": 2.0, "tpot_seconds": 0.1})
    assert (served.slo.ttft_seconds, served.slo.tpot_seconds, served.slo.target) == (2.0, 0.1, 0.9)


@pytest.mark.parametrize(
    "body",
    [
        {"ttft_seconds": 1},
        {"ttft_seconds": 0, "tpot_seconds": 1},
        {"ttft_seconds": 1, "tpot_seconds": None},
        {"ttft_seconds": 1, "tpot_seconds": 1, "target": 0.9},
        {"ttft_seconds": 1, "tpot_seconds": float("nan")},
        {"ttft_seconds": 3601, "tpot_seconds": 1},
    ],
)
def test_a_wrong_slo_changes_nothing(body: dict[str, Any]) -> None:
    served = Served()
    assert served.ask("PUT", SLO_PATH, body)[0] == 400
    assert served.slo == Slo(0.6, 0.05, 0.9)


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer wrong", "Basic s3cret", "s3cret", "Bearer s3crét"])
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", KNOBS_PATH),
        ("PATCH", KNOBS_PATH),
        ("DELETE", f"{KNOBS_PATH}/{BUDGET}"),
        ("GET", SLO_PATH),
        ("PUT", SLO_PATH),
    ],
)
def test_without_the_token_nothing_is_told(method: str, path: str, header: str) -> None:
    served = Served(token="s3cret")
    status, document, reply = served.ask(method, path, {}, authorization=header)
    assert (status, document) == (401, {"detail": "a valid bearer token is needed"})
    assert ("www-authenticate", "Bearer") in reply.headers
    assert b"s3cret" not in reply.body


def test_with_the_token_and_without_a_wire() -> None:
    served = Served(token="s3cret")
    assert served.ask("GET", KNOBS_PATH, authorization="bearer s3cret")[0] == 200
    transport: KnobTransport = served.api
    answer = transport.request("GET", KNOBS_PATH)
    assert answer.status == 200
    assert parse_sheet(json.loads(answer.body)).instance == "life-7"
    body = json.dumps({"knob": BUDGET, "value": 80, "if_version": 0, "ttl_seconds": 9}).encode()
    assert transport.request("PATCH", KNOBS_PATH, body).status == 200
    assert served.engine.values[BUDGET] == 80
