"""Who may change a real llama.cpp: what its harmless page tells is true of its control routes."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from collectors.fetch import Credentials
from enginetop.cli.admin_look import AdminLook
from enginetop.cli.targets import parse_target
from enginetop.fleet.admin_surface import Openness, admin_surface
from enginetop.fleet.model import EngineKind, Role
from tests.support.llama_server import llama_server
from tests.support.tiny_gguf import write_tiny_model

KEY = "a-key-of-its-own"


@pytest.mark.parametrize(
    ("keys", "openness", "status"),
    [([], Openness.OPEN, httpx.codes.OK), ([KEY], Openness.GUARDED, httpx.codes.UNAUTHORIZED)],
    ids=["open", "guarded"],
)
def test_what_its_page_tells_holds_for_its_control_routes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: list[str], openness: Openness, status: int
) -> None:
    write_tiny_model(tmp_path / "tiny.gguf")
    monkeypatch.setenv("LLAMA_KEY", KEY)
    with llama_server(tmp_path / "tiny.gguf", api_keys=keys) as url:
        facts = AdminLook(parse_target(url), Credentials(api_key_env="LLAMA_KEY"))("llamacpp")
        found = admin_surface(EngineKind.LLAMACPP, Role.AGGREGATED, None, facts)
        answer = httpx.post(f"{url}/lora-adapters", json=[], timeout=20.0, trust_env=False)
    assert (found.openness, answer.status_code) == (openness, status)
