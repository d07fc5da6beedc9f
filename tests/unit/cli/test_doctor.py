"""`enginetop doctor` against servers that are well, ill, silent or hostile: over real sockets."""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from collections.abc import Callable
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from collectors.engines.detect import TABLES
from enginetop.cli import doctor_here
from enginetop.cli.main import main
from enginetop.doctor.machine import GpuFacts
from tests.support.engine_pages import fixture
from tests.support.faulty_server import DROP, HANG, FaultyServer, Reply, Request, page
from tests.support.watch_process import WAIT_SECONDS, free_port

TLS = Path(__file__).parents[2] / "support" / "tls"
SECRET = "sk-0123456789-very-secret"
LOADED = fixture("vllm/0.32.0/vllm-0.32.0-loaded.prom")
LISTING = json.dumps({"paths": {"/v1/models": {}, "/pause": {}, "/collective_rpc": {}}}).encode()
Doctor = Callable[..., tuple[int, str]]


@pytest.fixture
def doctor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Doctor:
    """Runs the command with folders of its own and without this machine's GPUs."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(doctor_here, "gpu_facts", lambda targets: GpuFacts(problem="none here"))
    monkeypatch.setattr("enginetop.cli.doctor._PATIENCE_SECONDS", WAIT_SECONDS)  # a busy machine is slow,
    monkeypatch.setattr("enginetop.cli.doctor_probe._ROUND_SECONDS", WAIT_SECONDS)  # not the page

    def run(*argv: str) -> tuple[int, str]:
        code = main(["doctor", *argv])
        told = capsys.readouterr()
        assert told.err == ""
        assert "Traceback" not in told.out
        return code, told.out

    return run


def asked(doctor: Doctor, *argv: str) -> tuple[int, dict[str, Any]]:
    code, out = doctor(*argv, "--format", "json")
    document = json.loads(out)
    assert document["code"] == code
    return code, document


def said(document: dict[str, Any], *areas: str) -> list[tuple[str, str, str]]:
    return [(one["level"], one["what"], one["fix"]) for one in document["findings"] if one["area"] in areas]


def engine(metrics: Reply, others: dict[str, Reply] | None = None) -> Callable[[Request], Reply]:
    """A server with a page at /metrics, others where they are named, 404 elsewhere."""

    def script(request: Request) -> Reply:
        path = request.path.partition("?")[0]
        return metrics if path == "/metrics" else (others or {}).get(path, page(b"", 404))

    return script


def test_a_healthy_engine_fits_on_a_screen(doctor: Doctor, server: FaultyServer) -> None:
    version = page(b'{"version": "0.32.0"}', content_type="application/json")
    url = server.replica(engine(page(LOADED), {"/version": version})).url
    code, out = doctor(url)
    assert code == 0
    assert out.startswith("enginetop doctor: nothing wrong; 1 target\n")
    assert "vLLM 0.32.0 · " in out
    assert len(out.splitlines()) <= 24
    assert "start it with --speculative-config" in out
    assert "the companion enginetop-companion-vllm" in out


def test_what_was_read_of_it_as_json(doctor: Doctor, server: FaultyServer) -> None:
    replica = server.replica(engine(page(LOADED), {"/openapi.json": page(LISTING)}))
    code, document = asked(doctor, replica.url)
    (target,) = document["targets"]
    told = target["engine"]
    assert (told["kind"], told["role"], told["state"]) == ("vllm", "aggregated", "ok")
    assert {"requests_running", "kv_usage_ratio", "kv_capacity_tokens"} <= set(told["read"])
    assert {one["signal"] for one in told["missing"]} >= {"spec_accepted_length", "reasoning_tokens"}
    assert target["pages"][1]["path"] == "/metrics"
    assert target["pages"][1]["size_bytes"] == len(LOADED)
    assert told["config"]["block_size"] == {"value": 32, "source": "cache_config_info"}
    # a second in which nothing moved says nothing; routes that pause the engine do
    assert code == 1
    assert [level for level, _, _ in said(document, "control")] == ["warning"]
    assert "/collective_rpc, /pause" in said(document, "control")[0][1]


def test_nothing_but_safe_pages_is_asked(doctor: Doctor, server: FaultyServer) -> None:
    replica = server.replica(engine(page(LOADED), {"/openapi.json": page(LISTING)}))
    doctor(replica.url)
    assert {request.path for request in replica.requests} == {
        "/prometheus/metrics",
        "/metrics",
        "/version",
        "/v1/models",
        "/server_info?config_format=json",
        "/openapi.json",
    }
    assert replica.count("/metrics") == 5


def test_a_slow_page_is_asked_twice_at_most(
    doctor: Doctor, server: FaultyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("enginetop.cli.doctor_probe._ROUND_SECONDS", 0.0)
    replica = server.replica(engine(page(LOADED)))
    doctor(replica.url)
    assert replica.count("/metrics") == 2


def test_a_closed_port_and_a_name_that_is_none(doctor: Doctor) -> None:
    code, document = asked(doctor, f"127.0.0.1:{free_port()}", "nothing.invalid:8000")
    assert code == 2
    refused, unknown = said(document, "reach")
    assert refused[:2] == ("error", "connection refused")
    assert unknown[:2][0] == "error"
    assert unknown[1].startswith("name lookup failed")


@pytest.mark.parametrize(
    ("reply", "what", "fix"),
    [
        (page(b"<html><title>Grafana</title>", content_type="text/html"), "a web page", "metrics page"),
        (page(b"", 401), "needs an API key", "api_key_env"),
        (page(b"", 403), "needs an API key", "api_key_env"),
        (page(b"", 404), "HTTP 404", "metrics page"),
        (page(b'{"error":{"message":"Loading model"}}', 503), "Loading model", "wait"),
        (page(b"process_cpu_seconds_total 1\n"), "only process metrics", "metrics page"),
        (page(b"[]", content_type="application/json"), "TensorRT-LLM", "metrics page"),
        (page(b"", 500), "HTTP 500", "log"),
        (DROP, "closed without an answer", "start the server"),
    ],
    ids=["html", "401", "403", "404", "loading", "process", "json", "500", "drop"],
)
def test_servers_without_a_good_page(
    doctor: Doctor, server: FaultyServer, reply: Reply, what: str, fix: str
) -> None:
    code, document = asked(doctor, server.replica(reply).url)
    ((level, words, remedy),) = said(document, "page")
    assert code == (1 if "Loading" in what else 2)
    assert level == ("warning" if "Loading" in what else "error")
    assert what in words
    assert fix in remedy
    assert document["targets"][0]["engine"] is None


def test_a_server_that_hangs_takes_bounded_time(doctor: Doctor, server: FaultyServer) -> None:
    began = time.monotonic()
    code, document = asked(doctor, *(server.replica(HANG).url for _ in range(4)), "--timeout", "0.5")
    assert time.monotonic() - began < 10  # each step at most half a second, all targets at once
    assert code == 2
    assert [level for level, _, _ in said(document, "page")] == ["error"] * 4


def test_a_name_server_that_hangs_takes_bounded_time(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args: answer.wait())
    began = time.monotonic()
    try:
        _, document = asked(doctor, "engine.example:8000", "--timeout", "0.3")
    finally:
        answer.set()
    assert time.monotonic() - began < 5
    assert said(document, "reach")[0][1] == "name: nothing within 0.3 s"


def tls() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "server.crt", TLS / "server.key")
    return context


def test_a_certificate_that_nobody_vouches_for(doctor: Doctor, server: FaultyServer, tmp_path: Path) -> None:
    url = server.replica(engine(page(LOADED)), tls=tls()).url.replace("127.0.0.1", "localhost")
    code, document = asked(doctor, url)
    ((level, words, fix),) = said(document, "reach")
    assert (code, level) == (2, "error")
    assert "certificate" in words
    assert "ca_file" in fix
    config = tmp_path / "c.toml"
    config.write_text(f'[[targets]]\nurl = "{url}"\nca_file = "{TLS / "server.crt"}"\n')
    _, document = asked(doctor, "--config", str(config))
    level, words, _ = said(document, "reach")[0]
    assert level == "ok"
    assert "TLSv1.3" in words
    config.write_text(f'[[targets]]\nurl = "{url}"\ninsecure_skip_verify = true\n')
    _, document = asked(doctor, "--config", str(config))
    assert ("warning", "the certificate is not verified", "name its CA with ca_file") in said(
        document, "reach"
    )


def test_plain_http_where_tls_is_asked(doctor: Doctor, server: FaultyServer) -> None:
    url = server.replica(engine(page(LOADED))).url
    _, document = asked(doctor, url.replace("http:", "https:"), "--timeout", "1")
    ((level, _, fix),) = said(document, "reach")
    assert level == "error"
    assert fix


def test_no_secret_is_ever_told(
    doctor: Doctor, server: FaultyServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys are named, sent, and repeated by hostile servers; none reaches the output."""
    echo = server.replica(lambda request: page(f"{request.headers}".encode(), 500)).url
    refused = server.replica(page(SECRET.encode(), 401)).url
    file = tmp_path / "key"
    file.write_text(SECRET)
    file.chmod(0o644)
    config = tmp_path / "c.toml"
    config.write_text(
        f'[[targets]]\nurl = "{echo}"\nname = "a"\napi_key_env = "MY_KEY"\n'
        f'[[targets]]\nurl = "{refused}"\nname = "b"\napi_key_file = "{file}"\n'
        '[[sinks]]\nkind = "slack"\nurl_env = "HOOK"\n'
    )
    monkeypatch.setenv("MY_KEY", SECRET)
    monkeypatch.setenv("HOOK", f"https://hooks.example/{SECRET}")
    for form in ("json", "table"):
        code, out = doctor("--config", str(config), "--format", form)
        assert code == 2
        assert SECRET not in out
        assert "MY_KEY" in out
    _, document = asked(doctor, "--config", str(config))
    levels = {what: level for level, what, _ in said(document, "credentials")}
    assert levels == {
        "a: API key in the variable MY_KEY is there": "ok",
        f"b: API key in the file {file} is open to other users (mode 0644)": "warning",
        "sink slack: address in the variable HOOK is there": "ok",
    }
    monkeypatch.delenv("HOOK")
    _, document = asked(doctor, "--config", str(config))
    assert ("error", "sink slack: address in the variable HOOK is not set", "export HOOK") in said(
        document, "credentials"
    )


def test_a_config_file_with_a_mistake_stops_no_look_at_named_targets(
    doctor: Doctor, server: FaultyServer, tmp_path: Path
) -> None:
    config = tmp_path / "c.toml"
    config.write_text("intervall_seconds = 2\n")
    code, document = asked(doctor, server.replica(engine(page(LOADED))).url, "--config", str(config))
    assert code == 2
    ((level, what, fix),) = said(document, "config")
    assert (level, fix) == ("error", "did you mean 'interval_seconds'?")
    assert "intervall_seconds is an unknown key" in what
    assert document["targets"][0]["engine"]["kind"] == "vllm"
    assert said(document, "sinks") == []  # whether it names any is not known


@pytest.mark.parametrize(
    ("table", "what"),
    [
        ('[keys]\nquitt = "q"', "keys.quitt: no such action"),
        ('[keys]\nquit = "no such key"', "keys.quit: "),
        ('[screen]\ntheme = "blu"', "theme 'blu' is not known"),
        ('[screen]\ncolumns = ["nope"]', "screen.columns: "),
        ('[screen]\ntheme = "light"\ncolumns = ["run"]\n[keys]\nquit = "Q"', ""),
    ],
)
def test_what_only_the_screen_would_refuse_is_found(
    doctor: Doctor, tmp_path: Path, table: str, what: str
) -> None:
    (tmp_path / "c.toml").write_text(f"{table}\n[[targets]]\nurl = '127.0.0.1:{free_port()}'\n")
    _, document = asked(doctor, "--config", str(tmp_path / "c.toml"), "--timeout", "0.5")
    errors = [told for level, told, fix in said(document, "config") if level == "error" and fix]
    assert len(errors) == bool(what)
    assert all(what in told for told in errors)


def test_folders_that_cannot_be_looked_into(
    doctor: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked = tmp_path / ("n" * 256)
    monkeypatch.setenv("XDG_STATE_HOME", str(locked))
    config = tmp_path / "c.toml"
    config.write_text(f'[[sinks]]\nkind = "file"\npath = "{locked / "alerts"}"\n')
    code, document = asked(doctor, f"127.0.0.1:{free_port()}", "--config", str(config))
    assert code == 2
    assert [level for level, _, _ in said(document, "state")] == ["error"]
    assert [level for level, _, _ in said(document, "sinks")] == ["error"]


def test_a_mistake_in_the_arguments_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "ftp://x:1"]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert "the scheme 'ftp' is not read" in told.err


def test_hostile_words_reach_no_terminal(doctor: Doctor, server: FaultyServer) -> None:
    hostile = LOADED.replace(b'model_name="', b'model_name="\x1b[2J\xe2\x80\xae')
    title = page("<title>\x1b]0;owned\x07\u202e</title>".encode(), content_type="text/html")
    code, out = doctor(server.replica(engine(page(hostile))).url, server.replica(title).url)
    assert code == 2
    assert all(character.isprintable() or character == "\n" for character in out)
    _, out = doctor(f"127.0.0.1:{free_port()}", "--config", "/no\x1b[2J.toml")  # nor a name of this machine's
    assert "/no" in out
    assert all(character.isprintable() or character == "\n" for character in out)


def test_a_server_whose_clock_is_off(doctor: Doctor, server: FaultyServer) -> None:
    late = f"date: {formatdate(time.time() - 3600, usegmt=True)}\r\n"
    for extra, expected in ((late, "behind"), ("date: nonsense\r\n", "")):
        _, document = asked(doctor, server.replica(engine(page(LOADED, extra=extra))).url)
        clock = said(document, "clock")
        assert [expected in what for _, what, _ in clock] == ([True] if expected else [])


def test_processes_that_take_turns_behind_one_address(doctor: Doctor, server: FaultyServer) -> None:
    """Two API servers without a shared registry: a counter that falls and comes back, twice."""

    def script(request: Request) -> Reply:
        if request.path != "/metrics":
            return page(b"", 404)
        tokens = (100, 5000)[request.connection % 2]
        head = "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running 1\n"
        return page(f"{head}vllm:generation_tokens_total {tokens}\n".encode())

    code, document = asked(doctor, server.replica(script).url)
    assert code == 1
    flips = [what for level, what, _ in said(document, "engine") if level == "warning"]
    assert flips
    assert "jumps back and forth" in flips[0]


def test_without_a_target_this_side_is_still_looked_at(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("enginetop.cli.doctor.local_targets", lambda: ())
    code, document = asked(doctor)
    assert code == 1
    assert [level for level, _, _ in said(document, "targets")] == ["warning"]
    assert document["targets"] == []


def test_nothing_is_written(doctor: Doctor, tmp_path: Path) -> None:
    doctor(f"127.0.0.1:{free_port()}")
    assert list(tmp_path.iterdir()) == []


CAPTURES = {
    "vllm": "vllm/0.33.0/vllm-0.33.0-rustfrontend-idle.prom",
    "sglang": "sglang/0.5.23/sglang-0.5.23-load-queued.prom",
    "llamacpp": "llamacpp/b11549/llama_cpp-b11549-busy.prom",
    "trtllm": "trtllm/1.3/trtllm-1.3-reconstructed-kvpressure.prom",
    "triton": "triton/reconstructed/triton-trtllm-reconstructed-pause.prom",
    "tgi": "tgi/3.3/tgi-3.3-reconstructed-busy.prom",
    "lmdeploy": "lmdeploy/0.18.0/lmdeploy-0.18.0-collector-generated-idle.prom",
    "dynamo": "dynamo/1.6.1/dynamo-1.6.1-frontend-kvpressure.prom",
    "router": "router/smg-1.13.0/smg-1.13.0-load.prom",
}


def serving(body: bytes, path: str) -> Callable[[Request], Reply]:
    """A server with nothing but its metrics page."""
    return lambda request: page(body) if request.path == path else page(b"", 404)


def test_every_engine_and_gateway_is_told(doctor: Doctor, server: FaultyServer) -> None:
    """What is read and what is not, with a reason for each; no page that the engine's table bars."""
    never = {table.kind.value: {path for path, _ in table.never} for table in TABLES}
    replicas = {
        kind: server.replica(
            serving(fixture(path), "/prometheus/metrics" if kind == "trtllm" else "/metrics")
        )
        for kind, path in CAPTURES.items()
    }
    _, document = asked(doctor, *(replica.url for replica in replicas.values()))
    told = {target["target"]: target["engine"] for target in document["targets"]}
    for kind, replica in replicas.items():
        engine = told[replica.url]
        assert engine["kind"] == kind
        assert "requests_running" in engine["read"], kind
        assert all(one["reason"] for one in engine["missing"]), kind
        assert not {request.path.partition("?")[0] for request in replica.requests} & never[kind]
