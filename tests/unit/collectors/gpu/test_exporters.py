"""Exporters over HTTP: ages, failures of one, redirects of a host's name, and what a run shows of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from collectors.answer import Answer
from collectors.gpu.exporters import ExporterGpus
from collectors.recording_format import GpuRecord, gpu_line, parse_record
from enginetop.cli import exit_codes
from enginetop.cli.main import main
from enginetop.fleet.model import Target
from enginetop.fleet.observation import FailureKind
from tests.support.engine_pages import fixture
from tests.support.small_fleet import vllm_page

A = Target("http://10.0.0.1:9400", "10.0.0.1:9400")
B = Target("http://10.0.0.2:9400", "b", metrics_path="/m")
KEY = "sk-0123456789abcdef"


def page(uuid: str = "GPU-1", power: float = 300.0, host: str = "node-a", more: str = "") -> bytes:
    labels = f'gpu="0",UUID="{uuid}",modelName="H200",hostname="{host}"'
    return f"DCGM_FI_DEV_POWER_USAGE{{{labels}}} {power}\n{more}".encode()


class Pages:
    """A fetcher that answers from a table; a callable there is called."""

    def __init__(self, answers: Mapping[str, Callable[[], Answer]]) -> None:
        self.answers = answers
        self.asked: list[str] = []

    async def fetch(self, url: str, path: str, *, timeout_seconds: float) -> Answer:
        self.asked.append(url + path)
        return self.answers[url + path]()

    async def forget(self, url: str) -> None:
        raise AssertionError

    async def aclose(self) -> None:
        self.asked.append("closed")


def good(body: bytes) -> Answer:
    return Answer("/metrics", 0.0, body=body)


def source(pages: Pages, *exporters: Target) -> ExporterGpus:
    made = ExporterGpus(exporters, lambda: pages, 1.0)
    made.open(())
    return made


def test_a_value_is_as_old_as_its_change() -> None:
    bodies = [page(), page(), page(power=301.0), page(power=301.0)]
    pages = Pages({"http://10.0.0.1:9400/metrics": lambda: good(bodies.pop(0))})
    gpus = source(pages, A)
    seen = [gpus.read(at)[0].gpus[0].changed_at for at in (10.0, 15.0, 20.0, 25.0)]
    assert seen == [10.0, 10.0, 20.0, 20.0]
    gpus.close()
    assert pages.asked[-1] == "closed"


def test_an_exporter_that_fails_takes_nothing_from_the_others() -> None:
    down = Answer("/metrics", 0.0, error=FailureKind.REFUSED, detail="connection refused")
    answers = {A.url + "/metrics": lambda: good(page()), B.url + "/m": lambda: good(page("GPU-2", host=""))}
    pages = Pages(answers)
    gpus = source(pages, A, B)
    one, two = gpus.read(10.0)
    assert (one.host, one.host_names, one.exporter) == ("node-a", ("10.0.0.1",), A.url)
    assert (two.host, two.host_names, two.exporter) == ("10.0.0.2", (), B.url)
    answers[A.url + "/metrics"] = lambda: down
    one, two = gpus.read(20.0)
    assert one.problem == "GPU exporter 10.0.0.1:9400: connection refused"
    assert [gpu.uuid for gpu in one.gpus] == ["GPU-1"]  # shown as old for a while
    assert (two.problem, len(two.gpus)) == ("", 1)
    one, _ = gpus.read(310.1)
    assert (one.host, one.gpus, one.problem) == (
        "node-a",
        (),
        "GPU exporter 10.0.0.1:9400: connection refused",
    )
    gpus.close()


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (Answer("/metrics", 0.0, status=401), "HTTP 401: it needs a key"),
        (Answer("/metrics", 0.0, status=503), "HTTP 503"),
        (Answer("/metrics", 0.0, error=FailureKind.TIMEOUT), "timeout"),
        (good(b"<html>hello</html>"), "no GPU of a known exporter"),
        (good(fixture("vllm/0.32.0/vllm-0.32.0-idle.prom")), "no GPU of a known exporter"),
        (good(b""), "no GPU of a known exporter"),
    ],
)
def test_why_there_are_none_is_one_line(answer: Answer, why: str) -> None:
    gpus = source(Pages({A.url + "/metrics": lambda: answer}), A)
    (report,) = gpus.read(10.0)
    assert report.gpus == ()
    assert report.problem.startswith(f"GPU exporter 10.0.0.1:9400: {why}")
    gpus.close()


def test_a_fault_of_ours_is_that_exporters() -> None:
    def broken() -> Answer:
        raise RuntimeError

    gpus = source(Pages({A.url + "/metrics": broken, B.url + "/m": lambda: good(page())}), A, B)
    one, two = gpus.read(10.0)
    assert one.problem == "GPU exporter 10.0.0.1:9400: a fault of enginetop (RuntimeError)"
    assert len(two.gpus) == 1
    gpus.close()


def test_a_report_survives_a_recording() -> None:
    gpus = source(Pages({A.url + "/metrics": lambda: good(page())}), A)
    (report,) = gpus.read(10.0)
    gpus.close()
    record = parse_record(gpu_line(report))
    assert isinstance(record, GpuRecord)
    told = (record.report.host, record.report.exporter, record.report.host_names, record.report.gpus)
    assert told == (report.host, report.exporter, report.host_names, report.gpus)


@contextmanager
def served(pages: Mapping[str, bytes], wants_key: str = "") -> Iterator[str]:
    """Paths and pages of a server on loopback, by its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = pages.get(self.path)
            refused = wants_key and self.headers.get("authorization") != f"Bearer {wants_key}"
            self.send_response(401 if refused else 200 if body is not None else 404)
            self.send_header("Content-Length", str(0 if refused else len(body or b"")))
            self.end_headers()
            self.wfile.write(b"" if refused else body or b"")

        def log_message(self, *_: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def snapshot(capsys: pytest.CaptureFixture[str], *flags: str) -> tuple[dict[str, Any], str]:
    assert main(["snapshot", "--interval", "0.2", "--timeout", "5", *flags]) == exit_codes.OK
    out, err = capsys.readouterr()
    document = json.loads(out)
    (replica,) = document["replicas"]
    return replica, document["gpu_problem"] + err


def test_a_snapshot_has_the_columns_power_and_energy_of_a_remote_gpu(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with (
        served({"/metrics": vllm_page(running=1, tokens=10)}) as engine,
        served({"/metrics": page()}) as exporter,
    ):
        replica, problem = snapshot(
            capsys, engine, "--gpu-exporter", exporter, "--gpu-exporter", "127.0.0.1:1"
        )
    (gpu,) = replica["gpus"]
    assert (gpu["uuid"], gpu["power_watts"], gpu["source"], gpu["joined_by"]) == (
        "GPU-1",
        300.0,
        "dcgm",
        "host",
    )
    assert replica["signals"]["power_watts"]["value"] == 300.0
    assert replica["state"] in ("ok", "idle")
    assert problem.startswith("GPU exporter 127.0.0.1:1: connection refused")
    assert "\n" not in problem


def test_the_config_file_names_exporters_and_their_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GPU_KEY", KEY)
    config = tmp_path / "c.toml"
    with (
        served({"/metrics": vllm_page(running=1, tokens=10)}) as engine,
        served({"/gpu/metrics": page()}, wants_key=KEY) as exporter,
    ):
        config.write_text(
            f'[[targets]]\nurl = "http://{engine}"\n'
            f'[[gpu_exporters]]\nurl = "http://{exporter}/gpu"\napi_key_env = "GPU_KEY"\n'
        )
        replica, problem = snapshot(capsys, "--config", str(config))
        assert len(replica["gpus"]) == 1
        monkeypatch.setenv("GPU_KEY", f"{KEY}x")
        replica, problem = snapshot(capsys, "--config", str(config))
    assert replica["gpus"] == []
    assert "HTTP 401" in problem
    assert KEY not in problem


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["h:1", "--gpu-exporter", "nonsense"], "--gpu-exporter: target 'nonsense'"),
        (["h:1", "--gpu-exporter", "http://u:sk-secret@h:1"], "no credentials in an address"),
        (["--prometheus", "http://p:1", "--gpu-exporter", "h:1"], "leave --gpu-exporter out"),
        (["--replay", "x.jsonl", "--gpu-exporter", "h:1"], "leave --gpu-exporter out"),
    ],
)
def test_what_cannot_be_is_one_line(flags: list[str], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["snapshot", *flags]) == exit_codes.USAGE
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert why in err
    assert "sk-secret" not in err
