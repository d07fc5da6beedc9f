"""doctor on a real llama.cpp: with its metrics, without them, and behind a key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from enginetop.cli import doctor_here
from enginetop.cli.main import main
from enginetop.doctor.machine import GpuFacts
from tests.support.llama_server import llama_server
from tests.support.tiny_gguf import write_tiny_model

KEY = "sk-live-0123456789"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    write_tiny_model(path)
    return path


@pytest.fixture(autouse=True)
def _own_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(doctor_here, "gpu_facts", lambda targets: GpuFacts(problem="none here"))


def doctor(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, dict[str, Any]]:
    code = main(["doctor", *argv, "--format", "json"])
    out = capsys.readouterr().out
    assert KEY not in out
    return code, json.loads(out)


def findings(document: dict[str, Any], area: str) -> list[dict[str, str]]:
    return [one for one in document["findings"] if one["area"] == area]


def test_a_server_with_its_metrics(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with llama_server(model, endpoint_metrics=True, endpoint_slots=True, n_parallel=2, n_ctx=512) as url:
        code, document = doctor(capsys, url)
    assert code == 0
    engine = document["targets"][0]["engine"]
    assert (engine["kind"], engine["state"], engine["role"]) == ("llamacpp", "idle", "aggregated")
    assert engine["config"]["max_num_seqs"] == {"value": 2, "source": "/props total_slots"}
    assert {"requests_running", "kv_usage_ratio"} <= set(engine["read"])
    missing = {one["signal"]: one for one in engine["missing"]}
    assert "each response only" in missing["ttft_seconds"]["reason"]
    assert "no --api-key" in findings(document, "control")[0]["what"]


def test_a_server_whose_metrics_are_off(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with llama_server(model, endpoint_metrics=False) as url:
        code, document = doctor(capsys, url)
    (page,) = findings(document, "page")
    assert (code, page["level"]) == (2, "error")
    assert "501" in page["what"]
    assert page["fix"] == "start llama-server with --metrics"


def test_a_server_with_a_key(
    model: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "c.toml"
    with llama_server(model, endpoint_metrics=True, api_keys=[KEY]) as url:
        code, document = doctor(capsys, url)
        (page,) = findings(document, "page")
        assert (code, page["level"]) == (2, "error")
        assert "api_key_env" in page["fix"]
        config.write_text(f'[[targets]]\nurl = "{url}"\napi_key_env = "LLAMA_KEY"\n')
        monkeypatch.setenv("LLAMA_KEY", KEY)
        code, document = doctor(capsys, "--config", str(config))
        assert code == 0
        assert findings(document, "control")[0]["what"] == "its controls need a key"
        monkeypatch.setenv("LLAMA_KEY", "sk-another-9876543210")
        code, document = doctor(capsys, "--config", str(config))
    assert code == 2
    assert findings(document, "page")[0]["fix"].startswith(
        "the key of the variable LLAMA_KEY is not accepted"
    )
