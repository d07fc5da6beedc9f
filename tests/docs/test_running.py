"""Every command that a document shows is run: here on a simulated engine, or by the tests that are named."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from enginetop.cli.main import main
from enginetop.simulator.builtin import scenario_named
from enginetop.simulator.simulated_fleet import SimulatedFleet
from tests.support.shown_commands import DOCUMENTS, ROOT, arguments, blocks, shown

SHOWN = {command: document for document in DOCUMENTS for command in shown(document)}
LITELLM = ROOT / "tests/fixtures/litellm/1.110.2/litellm-1.110.2-standard-logging.jsonl"

BY_OTHERS = {
    r"--kubernetes| kubernetes:": "tests/unit/cli/test_kubernetes.py",
    r"--prometheus": "tests/prometheus/test_debian_prometheus.py",
    r"ssh://": "tests/unit/ssh/test_real_sshd.py",
    r"--discover (dns|dynamo):": "tests/unit/discovery/test_names_and_folders.py",
    r"^enginetop (record|curve|check|snapshot 10)": "tests/docs/test_commands.py",
    r"^enginetop tune .*--plan": "tests/docs/test_commands.py",
    r"^enginetop apply": "tests/unit/cli/test_apply_by_restart.py",
    r"^enginetop sim": "tests/unit/cli/test_sim.py",
    r"^enginetop watch": "tests/unit/cli/test_watch.py",
    r"^enginetop probe": "tests/unit/cli/test_probe.py",
    r"^enginetop launch": "tests/unit/cli/test_launch.py",
    r"^enginetop silence expire": "tests/unit/cli/test_silence.py",
    r"^enginetop completion": "tests/unit/cli/test_completion.py",
}
"""Families of commands that need a cluster, a server or minutes, or end by a signal: who runs their like."""


@dataclass(frozen=True, slots=True)
class Ends:
    """How a command ends: its exit code, and words on stdout or stderr."""

    code: int
    says: str


RUN = {
    "enginetop": Ends(0, "1/1 up"),
    "enginetop 10.0.0.1:8000 10.0.0.2:8000": Ends(0, "2/2 up"),
    "enginetop 127.0.0.1:8000 127.0.0.1:30000": Ends(0, "2/2 up"),
    "enginetop frontend-1:8000 worker-1:9090 worker-2:9090": Ends(0, "3/3 up"),
    "enginetop doctor": Ends(0, "nothing wrong"),
    "enginetop doctor 10.0.0.1:8000": Ends(0, "nothing wrong"),
    "enginetop doctor --config fleet.toml": Ends(0, "nothing wrong"),
    "enginetop snapshot --format table ...": Ends(0, "1/1 up"),
    "enginetop replay inc.jsonl.gz": Ends(0, "1/1 up"),
    "enginetop demo": Ends(0, "SIMULATED"),
    "enginetop demo --scenario budget-too-large": Ends(0, "SIMULATED"),
    "enginetop tune 10.0.0.1:8000 --what-if max_num_seqs=64": Ends(0, "max_num_seqs"),
    "enginetop rollback ID --config fleet.toml": Ends(2, "no change 'ID' is known here"),
    "enginetop rollback ID": Ends(2, "no change 'ID' is known here"),
    "enginetop audit": Ends(0, ""),
    "enginetop runbook KvPressure": Ends(0, "Means."),
    "enginetop silence add --rule KvPressure --for 2h": Ends(0, ""),
    'enginetop silence add --for 2h --target "b*" --rule "Ttft*" --reason "load test"': Ends(0, ""),
    "enginetop silence list": Ends(0, ""),
    "enginetop --discover file_sd:/etc/prometheus/vllm.json": Ends(0, "1/1 up"),
    "enginetop --records /var/log/litellm/requests.jsonl": Ends(0, "1/1 up"),
}

HASTE = {
    "tune": ("--observe", "1", "--interval", "0.2"),
    "demo": ("--replicas", "2", "--interval", "0.2"),
    "snapshot": ("--interval", "0.2"),
    "": ("--interval", "0.2"),
}
"""What spares a test the waiting."""


def of_others(command: str) -> list[str]:
    return [path for family, path in BY_OTHERS.items() if re.search(family, command)]


def test_every_command_that_is_shown_is_run() -> None:
    assert {command for command in SHOWN if command not in RUN and not of_others(command)} == set()
    assert set(RUN) - set(SHOWN) == set(), "no document shows these any more"


def test_who_runs_the_others_is_there() -> None:
    for family, path in BY_OTHERS.items():
        assert (ROOT / path).exists(), path
        assert any(re.search(family, command) for command in SHOWN) or "ssh" in family, family


@pytest.fixture(scope="module")
def fleet() -> Iterator[list[str]]:
    with SimulatedFleet(scenario_named("steady"), 3) as fleet:
        yield [url.removeprefix("http://") for url in fleet.urls]


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fleet: list[str]) -> Path:
    """Where the commands run, with the files that the documents name."""
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("VLLM_API_KEY", "k")
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.chdir(tmp_path)
    (config,) = (block for block in blocks(ROOT / "README.md") if "[[targets]]" in block)
    usual = tmp_path / "XDG_CONFIG_HOME" / "enginetop" / "config.toml"
    usual.parent.mkdir(parents=True)
    usual.write_text(config.replace("https://10.0.0.1:8000", f"http://{fleet[0]}"))
    shutil.copy(usual, tmp_path / "fleet.toml")
    (tmp_path / "vllm.json").write_text(json.dumps([{"targets": [fleet[0]]}]))
    page = {"target": "http://r1:8000", "path": "/metrics", "body": "vllm:num_requests_running 1\n"}
    lines = "".join(json.dumps({**page, "t": t}) + "\n" for t in (100, 105))
    (tmp_path / "inc.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    return tmp_path


@pytest.mark.parametrize("command", RUN)
def test_it_runs(command: str, folder: Path, fleet: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    there = {
        **dict.fromkeys(("10.0.0.1:8000", "127.0.0.1:8000", "frontend-1:8000"), fleet[0]),
        **dict.fromkeys(("10.0.0.2:8000", "127.0.0.1:30000", "worker-1:9090"), fleet[1]),
        "worker-2:9090": fleet[2],
        "file_sd:/etc/prometheus/vllm.json": f"file_sd:{folder / 'vllm.json'}",
        "/var/log/litellm/requests.jsonl": str(LITELLM),
    }
    words = [there.get(word, word) for word in arguments(command)]
    name = words[0] if words and words[0].isalpha() else ""
    assert main([*words, *HASTE.get(name, ())]) == RUN[command].code
    printed = capsys.readouterr()
    assert RUN[command].says in printed.out + printed.err
