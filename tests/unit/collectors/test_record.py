"""Recordings: what gets into them, what never does, and what a broken disk ends."""

from __future__ import annotations

import gzip
import json
import math
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from collectors.answer import Answer
from collectors.record import Recorder
from collectors.recording_format import (
    GpuRecord,
    RecordError,
    ScrapeRecord,
    answer_line,
    gpu_line,
    header_line,
    parse_header,
    parse_record,
)
from collectors.redact import public_body
from enginetop.fleet.errors import ConfigError
from enginetop.fleet.model import Target
from enginetop.fleet.observation import FailureKind
from enginetop.fleet.snapshot import GpuDevice, GpuReport

URL = "http://r1:8000"
TEXT = {"content-type": "text/plain; version=0.0.4"}
JSON = {"content-type": "application/json"}
KEEP = {
    "/server_info": ("dp_size", "internal_states[].gen_throughput"),
    "/slots": ("[].id", "[].next_token[].n_decoded"),
    "/v1/models": ("data[].id",),
}
moderate = settings(max_examples=80, deadline=None)


def recorder(path: Path, **options: Any) -> Recorder:
    return Recorder(
        path, created=5.0, targets=[Target(URL, "r1")], interval_seconds=2.0, keep=KEEP, **options
    )


def written(answer: Answer) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(answer_line(URL, 7.0, answer, KEEP))
    return record


def body_of(answer: Answer) -> Any:
    return json.loads(public_body(answer, KEEP))


# What a line says


def test_a_page_as_the_format_names_its_keys() -> None:
    answer = Answer("/metrics", 1.0, 0.25, 200, {**TEXT, "server": "uvicorn"}, b"x 1\n")
    assert written(answer) == {
        "t": 7.0,
        "target": URL,
        "path": "/metrics",
        "status": 200,
        "headers": {**TEXT, "server": "uvicorn"},
        "seconds": 0.25,
        "body": "x 1\n",
    }


@pytest.mark.parametrize("word", ["timeout", "refused", "tls", "dns", "truncated", "too_large", "protocol"])
def test_a_fault_is_one_of_the_error_words_and_comes_back(word: str) -> None:
    answer = Answer("/metrics", 1.0, 0.5, error=FailureKind(word), detail="why")
    record = written(answer)
    assert (record["error"], "status" in record, "body" in record) == (word, False, False)
    again = parse_record(json.dumps(record))
    assert isinstance(again, ScrapeRecord)
    assert (again.answer.error, again.answer.detail, again.answer.seconds) == (word, "why", 0.5)


def test_a_key_that_could_not_be_had_is_recorded_as_the_servers_refusal() -> None:
    record = written(Answer("/metrics", 1.0, error=FailureKind.UNAUTHORIZED, detail="no API key"))
    assert (record["status"], record["body"], "error" in record) == (401, "", False)


def test_the_header_names_targets_without_credentials() -> None:
    line = header_line(3.5, [Target("http://u:hunter2@r1:8000/x", "a")], 2.0)
    assert json.loads(line)["enginetop_recording"] == 1
    assert "hunter2" not in line
    assert parse_header(line) == (Target("http://r1:8000/x", "a"),)
    assert parse_record(line) is None


def test_the_header_keeps_the_page_that_the_user_named() -> None:
    """Else a replay would not read what is read only where it is named."""
    target = Target("http://r1:8000", "a", "/metrics")
    assert parse_header(header_line(3.5, [target], 2.0)) == (target,)


@pytest.mark.parametrize("page", ["/v1/models", "metrics", 3, None, [], {}])
def test_a_header_names_known_pages_only(page: object) -> None:
    line = json.dumps({"enginetop_recording": 1, "targets": [{"url": "http://r1:8000", "page": page}]})
    assert parse_header(line) == (Target("http://r1:8000", "r1:8000"),)


@moderate
@given(st.binary(max_size=200), st.integers(100, 599), st.floats(0, 100))
@example(b"a\xff\xfe{\xc3\x28}\n", 200, 0.0)
def test_a_text_page_comes_back_byte_for_byte(body: bytes, status: int, seconds: float) -> None:
    answer = Answer("/metrics", 7.0, seconds, 200, TEXT, b"x" + body)
    again = parse_record(answer_line(URL, 7.0, answer, {}))
    assert isinstance(again, ScrapeRecord)
    assert (again.url, again.at, again.answer.path) == (URL, 7.0, "/metrics")
    assert (again.answer.body, dict(again.answer.headers)) == (b"x" + body, TEXT)
    assert again.answer.seconds == seconds


def test_gpus_come_back() -> None:
    device = GpuDevice(
        1, "GPU-2", "H200", "MIG-1", 0.5, 1e9, 2e9, True, 300.0, 700.0, 60.0, 1980.0, ("hw_slowdown",), 79,
        "error", "nvml", "note", (URL,),
    )  # fmt: skip
    bare = GpuDevice(0, "", "")
    report = GpuReport("host", 9.0, (device, bare), "late")
    record = parse_record(gpu_line(report))
    assert isinstance(record, GpuRecord)
    assert record.report.gpus == (device, bare)
    assert (record.at, record.report.host, record.report.problem) == (9.0, "host", "late")
    document = json.loads(gpu_line(report))
    assert (document["target"], document["kind"]) == ("gpu://host", "gpu")


def test_figures_that_are_no_numbers_are_written_as_unknown() -> None:
    line = gpu_line(GpuReport("h", 1.0, (GpuDevice(0, "u", "n", power_watts=float("nan")),)))
    assert json.loads(line, parse_constant=pytest.fail)["gpus"][0]["power_watts"] is None


# What never gets into one


def test_of_a_json_page_only_declared_fields_are_kept() -> None:
    document = {
        "dp_size": 2,
        "api_key": "s3cret",
        "launch": {"argv": ["--api-key", "s3cret"]},
        "internal_states": [{"gen_throughput": 9.5, "env": "s3cret"}, {"gen_throughput": 8}],
    }
    body = json.dumps(document).encode()
    kept = {"dp_size": 2, "internal_states": [{"gen_throughput": 9.5}, {"gen_throughput": 8}]}
    assert body_of(Answer("/server_info", 0, 0, 200, JSON, body)) == kept
    assert body_of(Answer("/server_info", 0, 0, 200, TEXT, body)) == kept


def test_lists_at_the_top_and_inside() -> None:
    slots = [
        {"id": 0, "prompt": "secret plans", "next_token": [{"n_decoded": 7, "text": "secret"}]},
        {"id": 1, "next_token": []},
    ]
    kept = [{"id": 0, "next_token": [{"n_decoded": 7}]}, {"id": 1, "next_token": []}]
    assert body_of(Answer("/slots", 0, 0, 200, JSON, json.dumps(slots).encode())) == kept


@pytest.mark.parametrize(
    "body",
    [
        b'{"dp_size": {"api_key": "s3cret"}}',
        b'{"dp_size": [{"api_key": "s3cret"}], "internal_states": "s3cret"}',
        b'["s3cret"]',
        b'"s3cret"',
        b'{"api_key": "s3cret"',  # cut off: not even JSON
        b'{"a":' * 3000,
    ],
)
def test_a_page_of_another_shape_leaks_nothing(body: bytes) -> None:
    assert b"s3cret" not in public_body(Answer("/server_info", 0, 0, 200, JSON, body), KEEP)


def test_an_undeclared_json_page_leaves_its_shape_only() -> None:
    answer = Answer("/get_server_args", 0, 0, 200, JSON, b'{"api_key": "s3cret"}')
    assert public_body(answer, KEEP) == b"{}"


@pytest.mark.parametrize("status", [401, 403])
def test_a_refusal_that_echoes_the_key_is_emptied(status: int) -> None:
    body = b'{"error": {"message": "Incorrect API key: s3cret"}}'
    assert public_body(Answer("/metrics", 0, 0, status, JSON, body), KEEP) == b""


def test_an_error_body_keeps_what_tells_loading_from_broken() -> None:
    body = b'{"error": {"message": "Loading model", "code": 503, "trace": "s3cret"}}'
    kept = {"error": {"message": "Loading model", "code": 503}}
    assert body_of(Answer("/metrics", 0, 0, 503, JSON, body)) == kept


def test_of_a_web_page_only_the_start_is_kept() -> None:
    page = b"<!DOCTYPE html>" + b" " * 600 + b"csrf=s3cret"
    for headers in (TEXT, {"content-type": "text/html"}):
        kept = public_body(Answer("/metrics", 0, 0, 200, headers, page), KEEP)
        assert kept.startswith(b"<!DOCTYPE html>")
        assert b"s3cret" not in kept


def test_a_prometheus_page_that_begins_with_a_brace_is_kept() -> None:
    page = b'{"vllm.requests", model="m"} 1\n'
    assert public_body(Answer("/metrics", 0, 0, 200, TEXT, page), KEEP) == page


def test_a_metrics_page_with_a_wrong_content_type_is_kept() -> None:
    page = b"vllm:num_requests_running 1\n"
    assert public_body(Answer("/metrics", 0, 0, 200, JSON, page), KEEP) == page
    assert public_body(Answer("/metrics", 0, 0, 200, JSON, b'{"key": "s3cret"'), KEEP) == b""
    assert public_body(Answer("/props", 0, 0, 200, JSON, b"s3cret"), KEEP) == b""


def test_headers_of_credentials_and_queries_are_dropped(tmp_path: Path) -> None:
    headers = {**TEXT, "authorization": "Bearer s3cret", "set-cookie": "s3cret", "x-api-key": "s3cret"}
    line = answer_line("http://u:s3cret@r1:8000", 7.0, Answer("/metrics", 0, 0, 200, headers, b""), {})
    assert "s3cret" not in line
    assert json.loads(line)["target"] == "http://r1:8000"


# Lines from anywhere


@moderate
@given(st.text(max_size=120))
@example('{"t": 1e999, "target": "http://a", "path": "/m"}')
@example('{"t": NaN, "target": "http://a", "path": "/m"}')
@example('{"t": true, "target": "http://a", "path": "/m"}')
@example('{"t": 1, "target": "http://a", "path": "/m", "body": "\\ud800"}')
@example('{"t": 1, "target": "http://a", "path": "/m", "status": "200"}')
@example('{"t": 1, "target": "gpu://a", "gpus": [{"index": "x", "throttle_reasons": 7, "name": null}]}')
@example('{"t": 1, "target": ["x"], "path": "/m"}')
@example('{"t": 1, "target": "http://[::", "path": "/m"}')
@example("[" * 5000)
def test_no_line_breaks_the_reader(line: str) -> None:
    try:
        record = parse_record(line)
    except RecordError:
        return
    assert record is None or math.isfinite(record.at)


@pytest.mark.parametrize("depth", [1, 400, 700, 900])
def test_a_page_that_nests_deeply_is_cut(depth: int) -> None:
    nested = Answer("/server_info", 1.0, 0.1, 200, JSON, b'{"dp_size":' + b"[" * depth + b"]" * depth + b"}")
    assert body_of(nested) == {"dp_size": []}


@pytest.mark.parametrize("key", ["target", "path"])
def test_an_address_that_a_terminal_would_obey_is_no_record(key: str) -> None:
    record = {"t": 1, "target": "http://a", "path": "/m", "body": ""}
    with pytest.raises(RecordError, match=key):
        parse_record(json.dumps({**record, key: "/\x1b[31mred"}))


# The file


def lines_of(path: Path) -> list[dict[str, Any]]:
    data = path.read_bytes()
    text = gzip.decompress(data) if path.suffix == ".gz" else data
    return [json.loads(line) for line in text.decode().splitlines()]


@pytest.mark.parametrize("name", ["run.jsonl", "run.jsonl.gz"])
def test_a_recording_holds_a_header_and_the_pages(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    with recorder(path) as writing:
        pages = [Answer("/health", 1, 0.1, body=b"ok"), Answer("/metrics", 1, 0.2, body=b"x 1\n")]
        writing.record_scrape(URL, 8.0, pages)
        writing.record_gpus(GpuReport("r1", 8.5, ()))
    header, health, metrics, gpu = lines_of(path)
    assert (header["enginetop_recording"], header["created"]) == (1, 5.0)
    assert [health["t"], metrics["t"], gpu["t"]] == [8.0, 8.0, 8.5]
    assert (metrics["path"], metrics["body"], writing.scrapes, writing.problem) == (
        "/metrics",
        "x 1\n",
        1,
        "",
    )


def test_a_new_recording_is_for_its_owner_alone(tmp_path: Path) -> None:
    """Whatever the umask allows; a file that somebody made for others stays as it is."""
    mine, shared = tmp_path / "mine.jsonl", tmp_path / "shared.jsonl"
    shared.touch()
    shared.chmod(0o644)
    before = os.umask(0)
    try:
        recorder(mine).close()
        recorder(shared).close()
    finally:
        os.umask(before)
    assert (mine.stat().st_mode & 0o777, shared.stat().st_mode & 0o777) == (0o600, 0o644)


def test_each_scrape_is_on_disk_before_the_end(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with recorder(path) as writing:
        writing.record_scrape(URL, 8.0, [Answer("/metrics", 1, body=b"x 1\n")])
        until = threading.Event()
        for _ in range(500):
            if path.read_bytes().count(b"\n") == 2:
                break
            until.wait(0.01)
        assert len(lines_of(path)) == 2


def test_a_full_disk_ends_the_recording_with_one_line() -> None:
    with recorder(Path("/dev/full")) as writing:
        for _ in range(3):
            writing.record_scrape(URL, 8.0, [Answer("/metrics", 1, body=b"x")])
    assert writing.problem == "recording stopped: /dev/full: no space left on device"


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_reader_that_goes_away_ends_the_recording(tmp_path: Path, suffix: str) -> None:
    pipe = tmp_path / f"pipe{suffix}"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    writing = recorder(pipe)
    os.close(reader)
    writing.record_scrape(URL, 8.0, [Answer("/metrics", 1, body=b"x")])
    writing.close()
    assert "broken pipe" in writing.problem


def test_a_disk_that_falls_behind_ends_the_recording_not_the_memory(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    writing = recorder(pipe, max_pending_bytes=300_000)
    for _ in range(10):  # nobody reads: the pipe takes 64 KiB, then writing waits
        writing.record_scrape(URL, 8.0, [Answer("/metrics", 1, body=b"x" * 100_000)])
    assert "too slow" in writing.problem
    os.close(reader)
    writing.close()


@pytest.mark.parametrize("path", ["/no/such/folder/x.jsonl", "/"])
def test_a_file_that_cannot_be_opened_is_a_usage_error(path: str) -> None:
    with pytest.raises(ConfigError, match="name a file that can be written"):
        recorder(Path(path))
