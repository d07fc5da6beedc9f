"""A served fleet as clients see it: knobs that go back, completions in the counters, silence and restarts."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from enginetop.fleet.knobs import KNOBS_PATH, SLO_PATH, parse_row, parse_sheet
from enginetop.fleet.model import EngineKind
from enginetop.simulator.builtin import SCENARIOS
from enginetop.simulator.faults import Fault, FaultKind
from enginetop.simulator.scenario import Pool, ReplicaPlan, Scenario
from enginetop.simulator.simulated_fleet import SimulatedFleet
from tests.unit.simulator.read_page import ReadPage

QWEN = SCENARIOS["steady"].pools[0].members[0]
BUDGET = "max_num_batched_tokens"
QUIET = QWEN.with_traffic(requests_per_second=1e-9)
"""A replica without traffic of its own: what is on its page is ours."""


class Clock:
    """A clock that a test moves; with a `pace` every look at it moves it on."""

    def __init__(self, pace: float = 0.0) -> None:
        self.now = 1000.0
        self.pace = pace

    def __call__(self) -> float:
        self.now += self.pace
        return self.now


class Client:
    """JSON over one connection to one replica."""

    def __init__(self, url: str) -> None:
        host, _, port = url.removeprefix("http://").rpartition(":")
        self.address = (host, int(port))
        self.connection = http.client.HTTPConnection(host, int(port), timeout=20)

    def ask(self, method: str, path: str, body: object = None, token: str | None = None) -> tuple[int, Any]:
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        sent = None if body is None else json.dumps(body)
        self.connection.request(method, path, sent, headers)
        reply = self.connection.getresponse()
        text = reply.read()
        return reply.status, json.loads(text) if text else None

    def page(self) -> ReadPage:
        self.connection.request("GET", "/metrics")
        return ReadPage.of(self.connection.getresponse().read())

    def patch(self, **fields: Any) -> tuple[int, Any]:
        return self.ask("PATCH", KNOBS_PATH, {"knob": BUDGET, "change": "c1", **fields})

    def events(self, path: str, body: dict[str, Any]) -> list[Any]:
        """The events of a stream, each as JSON, the last one as it came."""
        self.connection.request("POST", path, json.dumps({**body, "stream": True}))
        reply = self.connection.getresponse()
        assert reply.status == 200
        assert (reply.getheader("content-type") or "").startswith("text/event-stream")
        *parts, last, rest = reply.read().split(b"\n\n")
        assert (last, rest) == (b"data: [DONE]", b"")
        return [json.loads(part.removeprefix(b"data: ")) for part in parts]


def fleet_of(plan: ReplicaPlan, clock: Clock, replicas: int = 1, token: str | None = None) -> SimulatedFleet:
    scenario = Scenario("s", "s", (Pool("a", (plan,)),))
    return SimulatedFleet(
        scenario, replicas, start_time=1.7e9, warm_up_seconds=10.0, clock=clock, token=token
    )


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def served(clock: Clock) -> Iterator[Client]:
    """A client of a quiet replica whose clock stands still."""
    with fleet_of(QUIET, clock) as fleet:
        client = Client(fleet.urls[0])
        yield client
        client.connection.close()


def test_a_knob_is_changed_renewed_and_goes_back_by_itself(served: Client, clock: Clock) -> None:
    status, document = served.ask("GET", KNOBS_PATH)
    sheet = parse_sheet(document)
    row = sheet.knob(BUDGET)
    assert status == 200
    assert row is not None
    # 256 requests, one token each
    assert (row.value, row.start, row.min, row.max, row.version) == (2048, 2048, 256, 2048, 0)
    assert (sheet.engine, sheet.engine_version, sheet.applied, sheet.total) == ("vllm", "0.32.0", 1, 1)

    status, document = served.patch(value=512, if_version=0, ttl_seconds=180)
    assert (status, document["applied"], document["total"]) == (200, 1, 1)
    assert parse_row(document).value == 512
    clock.now += 170.0
    status, document = served.patch(value=512, if_version=1, ttl_seconds=180)
    assert (status, document["version"], document["expires_in_seconds"]) == (200, 1, 180.0)
    clock.now += 179.0
    assert served.ask("GET", KNOBS_PATH)[1]["knobs"][0]["value"] == 512
    clock.now += 1.0
    after = served.ask("GET", KNOBS_PATH)[1]
    assert (after["knobs"][0]["value"], after["knobs"][0]["version"]) == (2048, 2)
    assert after["instance"] == sheet.instance


def test_refusals_over_http(served: Client) -> None:
    assert served.patch(value=512, if_version=4)[0] == 409
    status, document = served.patch(value=4096, if_version=0)
    assert (status, document["min"], document["max"]) == (422, 256, 2048)
    assert served.ask("PATCH", KNOBS_PATH, {"knob": "x", "value": 1})[0] == 404
    assert served.patch(value="512")[0] == 400
    assert served.ask("POST", KNOBS_PATH)[0] == 405
    assert served.ask("PATCH", KNOBS_PATH, {"reason": "x" * 17_000})[0] == 413
    assert served.ask("DELETE", f"{KNOBS_PATH}/{BUDGET}")[1]["version"] == 0, "nothing was changed"


def test_a_token_guards_the_knobs_and_nothing_else(clock: Clock) -> None:
    with fleet_of(QUIET, clock, token="s3cret") as fleet:
        client = Client(fleet.urls[0])
        for token in (None, "wrong"):
            assert client.ask("GET", KNOBS_PATH, token=token)[0] == 401
            assert client.ask("PUT", SLO_PATH, {}, token=token)[0] == 401
        assert client.ask("GET", KNOBS_PATH, token="s3cret")[0] == 200
        assert client.ask("GET", "/v1/models")[0] == 200
        assert client.page().value("enginetop_simulated") == 1.0
        client.connection.close()


def test_the_value_goes_back_at_its_moment_and_not_at_the_next_look(clock: Clock) -> None:
    """Two fleets with equal seeds, one looked at often and one once, end at the same page."""
    pages = []
    for looks in (1, 20):
        clock.now = 1000.0
        with fleet_of(QWEN, clock) as fleet:
            client = Client(fleet.urls[0])
            assert client.patch(value=256, ttl_seconds=7.3)[0] == 200
            for _ in range(looks):
                clock.now += 20.0 / looks
                page = client.page()
            pages.append(page.samples)
            client.connection.close()
    assert pages[0] == pages[1]


def test_a_restart_drops_all_changes(clock: Clock) -> None:
    plan = QUIET.with_faults(Fault(FaultKind.DOWN, at_seconds=50.0, for_seconds=10.0))
    with fleet_of(plan, clock, replicas=2) as fleet:
        client, other = map(Client, fleet.urls)
        assert client.patch(value=512, ttl_seconds=None)[0] == 200
        assert client.ask("PUT", SLO_PATH, {"ttft_seconds": 9, "tpot_seconds": 9})[0] == 200
        instances = {served.ask("GET", KNOBS_PATH)[1]["instance"] for served in (client, other)}
        assert len(instances) == 2
        clock.now += 65.0
        for served in (client, other):
            served.connection.close()
        sheet = parse_sheet(client.ask("GET", KNOBS_PATH)[1])
        row = sheet.knob(BUDGET)
        assert row is not None
        assert (row.value, row.version) == (2048, 0)
        assert sheet.instance not in instances
        assert client.ask("GET", SLO_PATH)[1] == {"ttft_seconds": 1.0, "tpot_seconds": 0.1}
        client.connection.close()
        other.connection.close()


def test_a_process_that_answers_nothing_answers_later(clock: Clock) -> None:
    plan = QUIET.with_faults(Fault(FaultKind.UNRESPONSIVE, at_seconds=10.0, for_seconds=20.0))
    with fleet_of(plan, clock) as fleet:
        client = Client(fleet.urls[0])
        clock.now += 15.0
        client.connection.request("GET", "/health")
        waiting = client.connection.sock
        assert waiting is not None
        waiting.settimeout(0.3)
        with pytest.raises(TimeoutError):
            waiting.recv(1, socket.MSG_PEEK)
        waiting.settimeout(20)
        clock.now += 20.0
        reply = client.connection.getresponse()
        assert (reply.status, reply.read()) == (200, b"")
        client.connection.close()


# Completions


@pytest.fixture
def working() -> Iterator[Client]:
    """A client of a quiet replica whose clock moves on with every look."""
    with fleet_of(QUIET, Clock(pace=0.05)) as fleet:
        client = Client(fleet.urls[0])
        yield client
        client.connection.close()


CHAT = {"messages": [{"role": "user", "content": "x" * 392}], "max_tokens": 60, "ignore_eos": True}
"""392 characters and a message: 102 tokens."""


def test_a_stream_of_tokens_and_what_the_page_says_of_it(working: Client) -> None:
    first, *parts, end, usage = working.events("/v1/chat/completions", {**CHAT, "thinking_token_budget": 20})
    assert first["choices"][0]["delta"]["role"] == "assistant"
    deltas = [part["choices"][0]["delta"] for part in parts]
    words = {
        key: " ".join(delta[key] for delta in deltas if key in delta).split()
        for key in ("reasoning", "content")
    }
    assert end["choices"][0]["finish_reason"] == "length"
    counted = usage["usage"]
    assert (counted["prompt_tokens"], counted["completion_tokens"]) == (102, 60)
    reasoning = counted["completion_tokens_details"]["reasoning_tokens"]
    assert 0 < reasoning <= 20
    assert (len(words["reasoning"]), len(words["content"])) == (reasoning, 60 - reasoning)
    assert len(parts) > 5, "it came in pieces"
    page = working.page()
    assert page.value("vllm:prompt_tokens_total") == 102
    assert page.value("vllm:generation_tokens_total") == 60
    assert page.value("vllm:request_success_total", finished_reason="length") == 1
    assert page.value("enginetop_requests_total", outcome="length") == 1
    assert page.value("enginetop_reasoning_tokens_sum") == reasoning
    assert page.value("enginetop_ttft_seconds_count") == 1


def test_answers_in_one_piece(working: Client) -> None:
    status, document = working.ask("POST", "/v1/completions", {"prompt": "hello", "max_tokens": 5})
    assert status == 200
    assert document["object"] == "text_completion"
    assert len(document["choices"][0]["text"].split()) == document["usage"]["completion_tokens"] <= 5
    status, chat = working.ask("POST", "/v1/chat/completions", {**CHAT, "thinking_token_budget": 0})
    assert status == 200
    assert chat["id"] != document["id"]
    assert chat["choices"][0]["message"]["reasoning"] is None
    assert chat["usage"]["completion_tokens_details"] == {"reasoning_tokens": 0}


def test_the_default_thinking_budget_counts_unless_the_request_has_its_own(working: Client) -> None:
    status, _ = working.patch(knob="thinking_token_budget", value=3, ttl_seconds=None)
    assert status == 200
    spent = [
        working.ask("POST", "/v1/chat/completions", {**CHAT, **own})[1]["usage"]["completion_tokens_details"]
        for own in ({}, {"thinking_token_budget": 5}, {"thinking_token_budget": -1})
    ]
    assert [details["reasoning_tokens"] for details in spent[:2]] == [3, 5]
    assert spent[2]["reasoning_tokens"] > 5


def test_errors_of_the_openai_kind(working: Client) -> None:
    status, document = working.ask("POST", "/v1/chat/completions", {"messages": []})
    assert status == 400
    assert document["error"]["type"] == "BadRequestError"
    assert document["error"]["message"].startswith("messages: ")
    assert working.ask("GET", "/v1/completions")[0] == 405


@pytest.mark.parametrize("drafts", [0, 3])
def test_a_client_that_hangs_up_is_an_aborted_request(drafts: int) -> None:
    plan = QUIET.with_engine(num_speculative_tokens=drafts, acceptance=(0.7, 0.5, 0.3)[:drafts])
    body = json.dumps({**CHAT, "max_tokens": 20_000, "stream": True}).encode()
    with fleet_of(plan, Clock(pace=0.05)) as fleet:
        client = Client(fleet.urls[0])
        with socket.create_connection(client.address, timeout=20) as caller:
            caller.sendall(
                b"POST /v1/chat/completions HTTP/1.1\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
            )
            received = b""
            while b'"reasoning":' not in received:
                received += caller.recv(65536)
        page = client.page()
        while not page.value("enginetop_requests_total", outcome="abort"):
            page = client.page()
        client.connection.close()
    assert page.value("vllm:num_requests_running") == 0
    assert page.value("vllm:kv_cache_usage_perc") == 0
    assert page.value("enginetop_requests_total", outcome="abort") == 1
    assert page.value("vllm:generation_tokens_total") == page.value("vllm:request_generation_tokens_sum")
    assert page.value("vllm:generation_tokens_total") < 10_000


def test_too_many_at_a_time_are_refused(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    monkeypatch.setattr("enginetop.simulator.frontend.MOST_COMPLETIONS", 1)
    with fleet_of(QUIET, clock) as fleet:
        waiting, other = Client(fleet.urls[0]), Client(fleet.urls[0])
        # Time stands still, so that this one is not answered.
        waiting.connection.request("POST", "/v1/chat/completions", json.dumps({**CHAT, "stream": True}))
        reply = waiting.connection.getresponse()
        assert reply.status == 200
        status, document = other.ask("POST", "/v1/chat/completions", CHAT)
        assert (status, document["error"]["type"]) == (503, "ServiceUnavailableError")
        # It is answered, and there is room again.
        clock.pace = 0.05
        assert reply.read().endswith(b"data: [DONE]\n\n")
        assert other.ask("POST", "/v1/completions", {"prompt": "x", "max_tokens": 2})[0] == 200
        other.connection.close()
        waiting.connection.close()


def test_a_stream_is_cut_when_the_process_dies(clock: Clock) -> None:
    plan = QUIET.with_faults(Fault(FaultKind.DOWN, at_seconds=5.0, for_seconds=10.0))
    with fleet_of(plan, clock) as fleet:
        client = Client(fleet.urls[0])
        client.connection.request("POST", "/v1/chat/completions", json.dumps({**CHAT, "stream": True}))
        reply = client.connection.getresponse()
        clock.now += 6.0
        with pytest.raises((http.client.IncompleteRead, ConnectionError)):
            reply.read()
        client.connection.close()


# The SLO


def test_the_slo_is_put_and_each_objective_has_its_count(working: Client) -> None:
    def ask_once() -> None:
        assert working.ask("POST", "/v1/completions", {"prompt": "x", "max_tokens": 4})[0] == 200

    ask_once()
    assert working.ask("PUT", SLO_PATH, {"ttft_seconds": 1e-6, "tpot_seconds": 0.1})[0] == 200
    ask_once()
    ask_once()
    page = working.page()
    name = "enginetop_requests_within_slo_total"
    assert page.value(name, ttft_seconds="1.0", tpot_seconds="0.1") == 1
    assert page.value(name, ttft_seconds="1e-06", tpot_seconds="0.1") == 0
    assert working.ask("PUT", SLO_PATH, {"ttft_seconds": 1, "tpot_seconds": 0.1})[0] == 200
    ask_once()
    page = working.page()
    assert page.value(name, ttft_seconds="1.0", tpot_seconds="0.1") == 2
    assert sum(page.by_label("enginetop_requests_total", "outcome").values()) == 4


# SGLang


def test_a_replica_that_imitates_sglang() -> None:
    plan = QUIET.with_engine(kind=EngineKind.SGLANG)
    with fleet_of(plan, Clock(pace=0.05)) as fleet:
        client = Client(fleet.urls[0])
        assert client.ask("GET", "/version")[0] == 404
        info = client.ask("GET", "/server_info")[1]
        assert (info["chunked_prefill_size"], info["max_running_requests"]) == (2048, 256)
        assert info["version"] == "0.5.23"
        assert client.ask("GET", "/ready")[0] == 200
        loads = client.ask("GET", "/v1/loads")[1]["loads"]
        assert [load["dp_rank"] for load in loads] == [0]
        assert (loads[0]["num_running_reqs"], loads[0]["queues"]["waiting"]) == (0, 0)
        assert loads[0]["max_total_num_tokens"] == info["max_total_num_tokens"]
        assert client.ask("GET", KNOBS_PATH)[1]["engine"] == "sglang"
        chat = client.ask("POST", "/v1/chat/completions", {**CHAT, "thinking_token_budget": 4})[1]
        assert chat["choices"][0]["message"]["reasoning_content"] == " the engine takes a"
        page = client.page()
        labels = {"engine_type": "unified", "is_streaming": "true"}
        assert page.value("sglang:generation_tokens_total", **labels) == 60
        client.connection.close()
