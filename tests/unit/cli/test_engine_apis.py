"""Engines' own APIs as the config file names them: over real sockets, with whose key; what doctor tells."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import get_args, get_type_hints

import pytest

from enginetop.cli import engine_apis, knob_paths
from enginetop.cli.doctor_paths import path_findings
from enginetop.cli.resolve import resolve
from enginetop.cli.settings import Settings
from enginetop.doctor.facts import EngineFacts, TargetFacts
from enginetop.doctor.finding import Level
from enginetop.fleet.admin_surface import AdminFacts
from enginetop.fleet.errors import ConfigError
from enginetop.fleet.model import EngineKind, ReplicaState
from enginetop.fleet.plan import ENGINE_APIS
from enginetop.fleet.restart_tables import EngineApiTable
from tests.support.faulty_server import FaultyServer, Reply, Request, page
from tests.support.stock_engines import LlamaRouter, Sglang, Sleeper, StockEngine, Triton
from tuners.control.knob_api import REFUSALS, KnobClient, ReplyKind

SEATS = "max_num_seqs"
NOTHING = TargetFacts("a", "http://a:1", 2.0)


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def over_http(engine: StockEngine) -> Callable[[Request], Reply]:
    """A script that has an engine answer."""

    def script(request: Request) -> Reply:
        if request.path == "/health":
            return page(b"")
        if request.path in ("/metrics", "/prometheus/metrics"):
            return page(b"sglang:num_running_reqs 0\nsglang:num_queue_reqs 0\n")
        answer = engine.request(request.method, request.path, request.body or None)
        assert answer.status is not None
        return page(answer.body, answer.status, "application/json")

    return script


def settings(tmp_path: Path, text: str) -> Settings:
    path = tmp_path / "config.toml"
    path.write_text(text)
    args = argparse.Namespace(
        config=str(path), interval=None, timeout=None, window=None, slo=None, targets=[]
    )
    return resolve(args, pytest.fail)


def configured(tmp_path: Path, url: str, table: str, more: str = "") -> Settings:
    return settings(tmp_path, f'[[targets]]\nurl = "{url}"\nengine_api = {{ {table} }}\n{more}')


def client(found: Settings) -> KnobClient:
    made = knob_paths.knob_clients(found, found.targets)(found.targets[0].url)
    assert made is not None
    return made


def test_the_config_file_knows_every_path() -> None:
    assert get_args(get_type_hints(EngineApiTable)["path"]) == ENGINE_APIS


def test_a_cap_is_read_written_and_read_back_over_the_wire(tmp_path: Path, server: FaultyServer) -> None:
    engine = Sglang()
    found = configured(tmp_path, server.replica(over_http(engine)).url, 'path = "sglang_cap"')
    asked = client(found)
    sheet = asked.read().sheet
    assert sheet is not None
    assert (sheet.writer, sheet.engine, sheet.engine_version) == ("sglang_cap", "sglang", "0.5.23")
    reply = asked.write(SEATS, 2, if_version=None, ttl_seconds=60.0, change="c", reason="r")
    assert (reply.kind, engine.value, reply.applied, reply.total) == (ReplyKind.OK, 2, 1, 1)
    again = client(found).read().sheet  # whoever asks in this process asks the same board
    assert again is not None
    assert (again.knobs[0].expires_in_seconds or 0) > 50
    assert client(found).reset(SEATS).kind is ReplyKind.OK
    assert engine.value == 8


def test_a_value_on_loan_goes_back_in_time_whatever_becomes_of_the_clock(
    tmp_path: Path, server: FaultyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, engine = SimpleNamespace(wall=1e9, passed=0.0), Sglang()
    now = SimpleNamespace(time=lambda: clock.wall, monotonic=lambda: clock.passed)
    monkeypatch.setattr(engine_apis, "time", now)
    found = configured(tmp_path, server.replica(over_http(engine)).url, 'path = "sglang_cap"')
    client(found).write(SEATS, 2, if_version=None, ttl_seconds=60.0, change="c", reason="r")
    assert engine.value == 2
    clock.wall, clock.passed = clock.wall - 3600.0, 61.0
    client(found).read()
    assert engine.value == 8


def test_true_and_nothing_changed_is_a_refusal_with_its_reason(tmp_path: Path, server: FaultyServer) -> None:
    engine = Sglang(fault="ignored")
    asked = client(configured(tmp_path, server.replica(over_http(engine)).url, 'path = "sglang_cap"'))
    reply = asked.write(SEATS, 2, if_version=None, ttl_seconds=60.0, change="c", reason="r")
    assert reply.kind in REFUSALS
    assert "not changed: the engine answered [true], and max_num_seqs is 8, not 2" in reply.detail


def test_a_switch_and_a_reload_over_the_wire(tmp_path: Path, server: FaultyServer) -> None:
    sleeper = Sleeper()
    asked = client(configured(tmp_path, server.replica(over_http(sleeper)).url, 'path = "lmdeploy_sleep"'))
    asked.write("asleep", 1, if_version=None, ttl_seconds=60.0, change="c", reason="r")
    for _ in range(4):
        asked.read()
    assert sleeper.value == 1
    preset = tmp_path / "models.ini"
    preset.write_text("[a]\nparallel = 8\n")
    router = LlamaRouter(preset=preset)
    url = server.replica(over_http(router)).url
    asked = client(configured(tmp_path, url, f'path = "llamacpp_router", model = "a", preset = "{preset}"'))
    asked.write(SEATS, 3, if_version=None, ttl_seconds=None, change="c", reason="r")
    for _ in range(6):
        asked.read()
    assert (router.value, preset.read_text()) == (3, "[a]\nparallel = 3\n")


@pytest.mark.parametrize("fault", ["deaf", "denied"])
def test_an_engine_that_cannot_be_read_says_why(fault: str, tmp_path: Path, server: FaultyServer) -> None:
    replica = server.replica(page(b'{"detail": "Unauthorized"}', 401, "application/json"))
    url = replica.url if fault == "denied" else "http://127.0.0.1:9"
    for path in ("sglang_cap", "lmdeploy_sleep"):
        found = configured(tmp_path, url, f'path = "{path}"')
        reply = client(found).read()
        assert reply.sheet is None
        assert reply.detail
        (finding,) = path_findings(found, found.targets[0], NOTHING)
        assert finding.level is Level.WARNING
        assert "restart or engine_api of its [[targets]] entry" in finding.fix


def test_a_key_goes_to_the_host_that_it_was_given_for(tmp_path: Path, server: FaultyServer) -> None:
    (tmp_path / "key").write_text("s3cret")
    replica = server.replica(over_http(Triton()))
    key = f'api_key_file = "{tmp_path / "key"}"\n'
    for host, sent in (("127.0.0.1:9", True), ("elsewhere.invalid:9", False)):
        replica.requests.clear()
        found = configured(
            tmp_path, f"http://{host}", f'path = "triton_load", model = "m", url = "{replica.url}"', key
        )
        sheet = client(found).read().sheet
        assert sheet is not None
        assert sheet.knobs[0].value == 8
        assert {"authorization" in request.headers for request in replica.requests} == {sent}


def test_doctor_tells_what_a_path_offers_and_what_an_engine_has_by_itself(
    tmp_path: Path, server: FaultyServer
) -> None:
    found = configured(tmp_path, server.replica(over_http(Sglang())).url, 'path = "sglang_cap"')
    (finding,) = path_findings(found, found.targets[0], NOTHING)
    assert finding.level is Level.OK
    assert (
        finding.what
        == "by sglang_cap: max_num_seqs 1 to 8 requests, live (touches one engine, which runs on)"
    )
    bare = settings(tmp_path, '[[targets]]\nurl = "http://h:1"\n')
    engine = EngineFacts(EngineKind.VLLM, "vLLM", ReplicaState.OK)
    for routes, named in (
        (None, []),
        ({"/pause", "/sleep"}, ["vllm_switches"]),
        ({"/v1/runtime_config"}, ["vllm_runtime"]),
    ):
        admin = AdminFacts(routes=None if routes is None else frozenset(routes))
        facts = replace(NOTHING, engine=engine, admin=admin)
        told = list(path_findings(bare, bare.targets[0], facts))
        assert [one.what.partition(" ")[0] for one in told] == named
        assert all(f'engine_api = {{ path = "{name}" }}' in told[0].fix for name in named)
    frontend = replace(NOTHING, engine=replace(engine, kind=EngineKind.DYNAMO))
    admin = AdminFacts(routes=frozenset({"/busy_threshold"}))
    (one,) = path_findings(bare, bare.targets[0], replace(frontend, admin=admin))
    assert 'engine_api = { path = "dynamo_busy", model = "..." }' in one.fix
    assert list(path_findings(bare, bare.targets[0], frontend)) == []
    simulated = replace(NOTHING, engine=replace(engine, kind=EngineKind.SGLANG, simulated=True))
    assert list(path_findings(bare, bare.targets[0], simulated)) == []


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ('path = "llama_router"', "targets.0.engine_api.path"),
        ('path = "llamacpp_router", model = "a"', "llamacpp_router needs preset"),
        ('path = "triton_load"', "triton_load needs model"),
        ('path = "sglang_cap", model = "a"', "sglang_cap takes no model"),
        ('path = "sglang_cap", url = "nonsense://x"', "targets.0.engine_api.url"),
        ('path = "dynamo_busy"', "dynamo_busy needs model"),
        ('path = "dynamo_taint", taint = "t"', "dynamo_taint needs cards"),
        ('path = "dynamo_taint", cards = "/c", taint = "a b"', "targets.0.engine_api.taint"),
        ('path = "sglang_cap", drain_seconds = 0', "drain_seconds"),
        (
            'path = "sglang_cap" }\ncontrol_url = "http://h:2"\nrestart = { unit = "a.service"',
            "are paths to the same knobs; keep one",
        ),
    ],
)
def test_a_table_that_cannot_be_used_is_refused_in_one_line(tmp_path: Path, table: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        configured(tmp_path, "http://h:1", table)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
