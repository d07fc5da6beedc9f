"""`enginetop probe`: what it asks, sends, counts and refuses."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from collectors.fetch import Credentials
from collectors.probe.client import (
    MOST_AT_ONCE,
    MOST_REQUESTS,
    MOST_TOKENS,
    ProbeAnswer,
    ProbeClient,
    ProbePlan,
)
from collectors.records.lines import RequestLine
from enginetop.cli.main import main
from enginetop.cli.parser import parse
from enginetop.cli.probe_report import probe_document, report_lines
from enginetop.simulator.builtin import scenario_named
from enginetop.simulator.simulated_fleet import SimulatedFleet
from tests.support.faulty_server import HANG, RESET, FaultyServer, Replica, Reply, Request, chunked, page

KEY = "sk-0123456789abcdef"
JSON = "application/json"

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))

    def call(*argv: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(["probe", *argv])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call


def sse(*events: object) -> Reply:
    return chunked(
        *(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events), b"data: [DONE]\n\n"
    )


def thought(reasoning: int | None = 3, output: int = 5) -> Reply:
    usage: dict[str, Any] = {"prompt_tokens": 30, "completion_tokens": output}
    if reasoning is not None:
        usage["completion_tokens_details"] = {"reasoning_tokens": reasoning}
    return sse(
        {"choices": [{"delta": {"reasoning_content": "let me see"}}]},
        {"choices": [{"delta": {"content": "four"}, "finish_reason": "stop"}]},
        {"choices": [], "usage": usage},
    )


def serving(server: FaultyServer, reply: Reply | Callable[[Request], Reply]) -> Replica:
    """A server of one model whose chat completions are answered so."""

    def script(request: Request) -> Reply:
        if request.path == "/v1/models":
            return page(json.dumps({"data": [{"id": "qwen3"}, {"id": "other"}]}).encode(), content_type=JSON)
        return reply(request) if callable(reply) else reply

    return server.replica(script)


def asked(replica: Replica) -> list[dict[str, Any]]:
    return [json.loads(one.body) for one in replica.requests if one.path == "/v1/chat/completions"]


def test_what_is_sent_and_what_is_told(run: Run, server: FaultyServer) -> None:
    replica = serving(server, thought())
    code, out, err = run(replica.url, "--requests", "3", "--max-tokens", "64", "--yes", "--format", "json")
    assert code == 0
    assert "model qwen3: 3 requests of up to 64 tokens each, 1 at a time" in err
    document = json.loads(out)
    assert (document["schema"], document["model"]) == ("enginetop.probe/1", "qwen3")
    assert document["requests"] == {"planned": 3, "sent": 3, "answered": 3, "failed": []}
    assert document["finish"] == {"stop": 3}
    assert document["cost"] == {"prompt_tokens": 90, "output_tokens": 15, "requests_not_counted": 0}
    reasoning = document["signals"]["reasoning_tokens"]
    assert (reasoning["count"], reasoning["p50"]["value"], reasoning["p95"]["value"]) == (3, 3, None)
    assert reasoning["note"] == "request records of the probe: 3 counted; p95 needs 60; p99 needs 300"
    assert document["signals"]["reasoning_share_ratio"]["value"] == pytest.approx(9 / 15)
    assert document["signals"]["ttft_seconds"]["count"] == 3
    bodies = asked(replica)
    assert all((body["max_tokens"], body["stream"]) == (64, True) for body in bodies)
    assert len({body["messages"][0]["content"] for body in bodies}) == 3  # no prefix cache answers for them


def test_nothing_is_sent_before_it_is_approved(
    run: Run, server: FaultyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = serving(server, thought())
    code, out, err = run(replica.url)
    assert (code, out) == (2, "")
    assert "needs a typed confirmation on a terminal, or --yes" in err
    for typed, sent in (("no", 0), ("probe", 8)):
        monkeypatch.setattr(
            "enginetop.cli.probe.approval", lambda *_, typed=typed: typed if typed == "probe" else None
        )
        run(replica.url)
        assert len(asked(replica)) == sent


@pytest.mark.parametrize(
    "argv",
    [
        ["--requests", "101"],
        ["--requests", "0"],
        ["--max-tokens", "16385"],
        ["--concurrency", "5"],
        ["--concurrency", "-1"],
        ["--requests", "many"],
    ],
)
def test_caps_of_the_command_line(argv: list[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        parse(["probe", "r1:8000", *argv])


def test_the_caps_hold_whoever_asks() -> None:
    caps = ("--requests", MOST_REQUESTS, "--max-tokens", MOST_TOKENS, "--concurrency", MOST_AT_ONCE)
    _, args = parse(["probe", "r1:8000", *map(str, caps)])
    assert (args.requests, args.max_tokens, args.concurrency) == (100, 16384, 4)
    for beyond in ({"requests": 101}, {"max_tokens": 16385}, {"at_once": 5}, {"requests": 0}):
        with pytest.raises(ValueError, match="lies between 1 and"):
            ProbePlan("http://r1", "m", ("p",), **beyond)


def test_a_zero_beside_reasoning_text_is_unknown_and_its_share_estimated(
    run: Run, server: FaultyServer
) -> None:
    replica = serving(server, thought(reasoning=0))
    _, out, _ = run(replica.url, "--requests", "2", "--yes", "--format", "json")
    signals = json.loads(out)["signals"]
    assert (signals["reasoning_tokens"]["count"], signals["reasoning_tokens"]["quality"]) == (0, "unknown")
    assert signals["reasoning_share_ratio"]["value"] is None
    text = signals["reasoning_text_share_ratio"]
    assert text["value"] == pytest.approx(10 / 14)  # "let me see" and "four"
    assert text["quality"] == "estimated"
    _, table, _ = run(replica.url, "--requests", "2", "--yes")
    assert "reasoning_share_ratio: unknown" in table
    assert "reasoning_text_share_ratio: 71.4 % (estimated; 20 of 28 characters" in table


def test_a_server_that_does_not_stream(run: Run, server: FaultyServer) -> None:
    whole = {
        "choices": [{"message": {"content": "four", "reasoning": "so"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 30, "completion_tokens": 5},
    }
    replica = serving(server, page(json.dumps(whole).encode(), content_type=JSON))
    _, out, _ = run(replica.url, "--requests", "1", "--yes", "--format", "json")
    document = json.loads(out)
    assert document["cost"]["output_tokens"] == 5
    assert document["signals"]["ttft_seconds"]["count"] == 0


FAULTS: dict[str, tuple[Reply, str, int]] = {
    "unauthorized": (page(b'{"error": {"message": "bad key"}}', 401, JSON), "status 401: bad key", 1),
    "not there": (page(b"<html>", 404, "text/html"), "status 404", 1),
    "too much asked": (page(b'{"error": {"message": "max_tokens"}}', 400, JSON), "status 400: max_tokens", 1),
    "busy": (page(b"{}", 429, JSON), "status 429", 3),
    "broken": (page(b"oops", 500), "status 500", 3),
    "redirect": (page(b"", 307, extra="location: http://127.0.0.1:1/\r\n"), "status 307", 3),
    "html": (page(b"<html></html>", content_type="text/html"), "the answer broke off", 3),
    "not the chat API": (page(b"[]", content_type=JSON), "no answer of the chat API", 3),
    "cut off": (Reply((*sse({"choices": [{"delta": {"content": "a"}}]}).parts[:-1],), close=True), "", 3),
    "reset": (RESET, "", 3),
    "an error in the stream": (sse({"error": {"message": "out of memory"}}), "out of memory", 3),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_told_and_counted(run: Run, server: FaultyServer, fault: str) -> None:
    reply, said, sent = FAULTS[fault]
    replica = serving(server, reply)
    code, out, err = run(replica.url, "--requests", "3", "--yes", "--format", "json")
    assert code == 1
    failed = json.loads(out)["requests"]["failed"]
    assert len(failed) == sent  # one that would be refused again is not tried again
    assert all(said in text and text for text in failed)
    assert "Traceback" not in err
    assert json.loads(out)["signals"]["reasoning_tokens"]["count"] in (None, 0)


def test_a_request_that_never_ends_is_given_up(run: Run, server: FaultyServer) -> None:
    replica = serving(server, HANG)
    code, out, _ = run(
        replica.url, "--requests", "2", "--concurrency", "2", "--timeout", "0.2", "--yes", "--format", "json"
    )
    assert code == 1
    assert json.loads(out)["requests"]["failed"] == ["no end within 0.2 s"] * 2


def test_a_server_that_is_not_there(run: Run, server: FaultyServer) -> None:
    code, out, err = run("127.0.0.1:1", "--yes")
    assert (code, out) == (1, "")
    assert "http://127.0.0.1:1/v1/models: connection refused; name one with --model" in err
    code, out, err = run("127.0.0.1:1", "--yes", "--model", "m", "--requests", "1", "--format", "json")
    assert code == 1
    assert json.loads(out)["requests"]["failed"] == ["connection refused"]


@pytest.mark.parametrize("models", [b"{}", b"[]", b'{"data": [{"id": 7}, 5]}', b"<html>", b'{"data": {}}'])
def test_a_server_that_names_no_model(run: Run, server: FaultyServer, models: bytes) -> None:
    replica = server.replica(page(models, content_type=JSON))
    code, _, err = run(replica.url, "--yes")
    assert code == 1
    assert "no model in the answer; name one with --model" in err


def test_a_hostile_model_name_does_not_reach_the_terminal(run: Run, server: FaultyServer) -> None:
    def script(request: Request) -> Reply:
        if request.path == "/v1/models":
            return page(json.dumps({"data": [{"id": "\x1b[2Jm"}]}).encode(), content_type=JSON)
        return thought()

    replica = server.replica(script)
    code, out, err = run(replica.url, "--requests", "1", "--yes")
    assert code == 0
    assert "\x1b" not in out + err
    assert asked(replica)[0]["model"] == "\x1b[2Jm"


def test_the_key_of_the_config_file_is_sent_and_never_shown(
    run: Run, server: FaultyServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def script(request: Request) -> Reply:
        said = json.dumps({"error": {"message": f"not with {request.headers.get('authorization')}"}})
        return page(said.encode(), 403, JSON)

    replica = serving(server, script)
    config = tmp_path / "fleet.toml"
    config.write_text(f'[[targets]]\nurl = "{replica.url}"\napi_key_env = "PROBE_KEY"\n', encoding="utf-8")
    monkeypatch.setenv("PROBE_KEY", KEY)
    _, out, err = run(replica.url, "--config", str(config), "--yes", "--format", "json")
    assert [one.headers.get("authorization") for one in replica.requests] == [f"Bearer {KEY}"] * 2
    assert "status 403: not with Bearer" in err
    assert KEY not in out + err
    monkeypatch.delenv("PROBE_KEY")
    code, out, err = run(replica.url, "--config", str(config), "--yes", "--model", "m")
    assert code == 1
    assert "no API key: the variable PROBE_KEY is not set or empty" in err


def test_no_more_at_a_time_than_asked_for(server: FaultyServer) -> None:
    gate = threading.Event()
    busy, most = 0, 0

    def script(_: Request) -> Reply:
        nonlocal busy, most
        busy += 1
        most = max(most, busy)
        if busy == 3:
            gate.set()  # as many as may be at once are there: let them go on
        return Reply(thought().parts, gate=gate)

    def take(_: ProbeAnswer) -> None:
        nonlocal busy
        busy -= 1

    replica = server.replica(script)
    plan = ProbePlan(replica.url, "m", ("p",), requests=9, at_once=3)
    ProbeClient(Credentials()).run(plan, take)
    assert (most, len(replica.requests)) == (3, 9)


def test_a_prompt_of_ones_own(run: Run, server: FaultyServer, tmp_path: Path) -> None:
    replica = serving(server, thought())
    own = tmp_path / "prompt.txt"
    own.write_text("why is the sky blue?", encoding="utf-8")
    code, *_ = run(replica.url, "--requests", "2", "--yes", "--prompt-file", str(own))
    assert code == 0
    assert {body["messages"][0]["content"] for body in asked(replica)} == {"why is the sky blue?"}
    for content, why in (
        (b"\xff", "not UTF-8 text"),
        (b" \n", "1 byte and 1 MiB"),
        (b"x" * 2**20 + b"y", "1 MiB"),
    ):
        own.write_bytes(content)
        code, _, err = run(replica.url, "--yes", "--prompt-file", str(own))
        assert code == 2
        assert why in err
    code, _, err = run(replica.url, "--yes", "--prompt-file", str(tmp_path / "none"))
    assert code == 2
    assert "no such file" in err.lower()


def test_its_records_are_appended_and_a_file_that_cannot_be_written_is_named(
    run: Run, server: FaultyServer, tmp_path: Path
) -> None:
    replica = serving(server, thought())
    out = tmp_path / "probe.jsonl"
    for _ in range(2):
        assert run(replica.url, "--requests", "1", "--yes", "--records-out", str(out))[0] == 0
    lines = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert [(line["target"], line["kind"], line["reasoning_tokens"]) for line in lines] == [
        (replica.url, "request", 3)
    ] * 2
    assert "let me see" not in out.read_text(encoding="utf-8")
    code, _, err = run(replica.url, "--yes", "--records-out", str(tmp_path / "no" / "file"))
    assert code == 2
    assert "name a file that can be written" in err
    code, printed, err = run(replica.url, "--requests", "2", "--yes", "--records-out", "/dev/full")
    assert code == 0
    assert err.count("records are no longer written: no space left on device") == 1
    assert "2 of 2 requests answered" in printed


def test_tails_of_a_long_probe() -> None:
    plan = ProbePlan("http://r1", "m", ("p",), requests=60)
    answers = [
        ProbeAnswer(1.0, RequestLine(reasoning_tokens=float(i), output_tokens=100.0, ttft_seconds=i / 100))
        for i in range(1, 61)
    ]
    found = probe_document(plan, answers)["signals"]
    assert found["reasoning_tokens"]["p95"]["value"] == 57  # the 57th of 60
    assert found["ttft_seconds"]["p95"]["value"] == 0.57
    assert found["ttft_seconds"]["p99"]["value"] is None
    assert any("0.57" in line for line in report_lines(probe_document(plan, answers)))
    assert all(math.isfinite(one) for one in (found["reasoning_share_ratio"]["value"],))


def test_the_simulated_engine_answers_and_its_records_can_be_followed(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "probe.jsonl"
    with SimulatedFleet(scenario_named("reasoning-overrun"), 1) as fleet:
        code, printed, _ = run(
            fleet.urls[0], "--requests", "4", "--max-tokens", "12", "--concurrency", "4", "--yes",
            "--format", "json", "--records-out", str(out),
        )  # fmt: skip
        document = json.loads(printed)
        assert code == 0
        assert document["cost"]["output_tokens"] == 48  # the model thinks for hundreds: all end at the limit
        assert document["finish"] == {"length": 4}
        assert document["signals"]["reasoning_share_ratio"]["value"] == 1.0
    assert len(out.read_text(encoding="utf-8").splitlines()) == 4
