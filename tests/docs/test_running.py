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
CARD = ROOT / "tests/fixtures/dynamo/1.6.1/dynamo-1.6.1-discovery-mdc-card.json"
LITELLM = ROOT / "tests/fixtures/litellm/1.110.2/litellm-1.110.2-standard-logging.jsonl"

BY_OTHERS = {
    r"--kubernetes| kubernetes:": ("tests/unit/cli/test_kubernetes.py", 'main(["snapshot", "--kubernetes"'),
    r"--prometheus": ("tests/prometheus/test_debian_prometheus.py", 'main(["snapshot", "--prometheus"'),
    r"ssh://": ("tests/unit/ssh/test_real_sshd.py", 'main(["snapshot", sshd.url('),
    r"--discover dns:_": ("tests/unit/discovery/test_names_and_folders.py", "_http._tcp."),
    r"^enginetop record": ("tests/docs/test_commands.py", 'run("enginetop record"'),
    r"^enginetop curve": ("tests/docs/test_commands.py", 'run("enginetop curve"'),
    r"^enginetop check": ("tests/docs/test_commands.py", 'run("enginetop check"'),
    r"^enginetop snapshot 10": ("tests/docs/test_commands.py", 'run("enginetop snapshot 10"'),
    r"^enginetop tune .*--plan": ("tests/docs/test_commands.py", 'run("enginetop tune"'),
    r"^enginetop apply": ("tests/unit/cli/test_apply_by_restart.py", 'run("apply"'),
    r"^enginetop sim": ("tests/unit/cli/test_sim.py", '"sim", "--scenario"'),
    r"^enginetop watch": ("tests/unit/cli/test_watch.py", 'main(["watch"'),
    r"^enginetop probe": ("tests/unit/cli/test_probe.py", 'main(["probe"'),
    r"^enginetop launch": ("tests/unit/cli/test_launch.py", '"launch"'),
    r"^enginetop silence expire": ("tests/unit/cli/test_silence.py", 'main(["silence", "expire"'),
    r"^enginetop completion": ("tests/unit/cli/test_completion.py", 'main(["completion"'),
}
"""Families of commands that need a cluster, a server or minutes, or end by a signal: the test that runs their
like, and how it does."""


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
    "enginetop config init": Ends(2, "it is there already; --force overwrites it"),
    "enginetop config validate": Ends(0, "config.toml: ok, 1 target, changes allowed"),
    "enginetop config print": Ends(0, 'api_key_env = "VLLM_API_KEY"'),
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
    "enginetop --discover dns:vllm.service.consul:8000": Ends(0, "1/1 up"),
    "enginetop --discover dynamo:/tmp/dynamo_store_kv": Ends(0, "1/1 up"),
    "enginetop --records /var/log/litellm/requests.jsonl": Ends(0, "1/1 up"),
}

HASTE = {
    "tune": ("--observe", "1", "--interval", "0.2"),
    "demo": ("--replicas", "2", "--interval", "0.2"),
    "snapshot": ("--interval", "0.2", "--timeout", "60"),
    "": ("--interval", "0.2", "--timeout", "60"),
}
"""What spares a test the waiting."""


def of_others(command: str) -> list[str]:
    return [path for family, (path, _) in BY_OTHERS.items() if re.search(family, command)]


def test_every_command_that_is_shown_is_run() -> None:
    assert {command for command in SHOWN if command not in RUN and not of_others(command)} == set()
    assert set(RUN) - set(SHOWN) == set(), "no document shows these any more"


@pytest.mark.parametrize("family", BY_OTHERS)
def test_who_runs_the_others_does(family: str) -> None:
    path, how = BY_OTHERS[family]
    assert any(re.search(family, command) for command in SHOWN), "no document shows these any more"
    assert how in (ROOT / path).read_text(encoding="utf-8")


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
    worker = CARD.read_text(encoding="utf-8").replace("192.0.2.2:40863", fleet[0])
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "card").write_text(worker, encoding="utf-8")
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
        "dns:vllm.service.consul:8000": f"dns:{fleet[0]}",
        "dynamo:/tmp/dynamo_store_kv": f"dynamo:{folder / 'store'}",
        "/var/log/litellm/requests.jsonl": str(LITELLM),
    }
    words = [there.get(word, word) for word in arguments(command)]
    name = words[0] if words and words[0].isalpha() else ""
    assert main([*words, *HASTE.get(name, ())]) == RUN[command].code
    printed = capsys.readouterr()
    assert RUN[command].says in printed.out + printed.err
