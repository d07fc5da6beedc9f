"""What `doctor` says of exporters of GPUs and of the Prometheus of the config file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from enginetop.cli import doctor_here
from enginetop.cli.main import main
from enginetop.doctor.machine import GpuFacts
from tests.support.engine_pages import fixture
from tests.support.fake_prometheus import FakePrometheus
from tests.support.faulty_server import FaultyServer, page
from tests.support.small_fleet import vllm_page

Said = list[tuple[str, str, str]]
Doctor = Callable[[str], tuple[int, Said]]
GPUS = fixture("dcgm/4.5/dcgm-exporter-4.5-reconstructed.prom")


@pytest.fixture
def doctor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Doctor:
    """Runs the command on a config file; the exit code, and what it says of sources."""
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setattr(doctor_here, "gpu_facts", lambda targets: GpuFacts(problem="none here"))
    config = tmp_path / "c.toml"

    def run(written: str) -> tuple[int, Said]:
        config.write_text(written)
        code = main(["doctor", "--config", str(config), "--timeout", "2", "--format", "json"])
        document = json.loads(capsys.readouterr().out)
        mine = [one for one in document["findings"] if one["area"] in ("exporters", "source", "targets")]
        return code, [(one["level"], one["what"], one["fix"]) for one in mine]

    return run


def test_each_exporter_is_looked_at(doctor: Doctor, server: FaultyServer) -> None:
    good = server.replica(page(GPUS)).url
    refusing = server.replica(page(b"", 401)).url
    other = server.replica(page(b"node_load1 1\n")).url
    urls = (good, refusing, other, "http://127.0.0.1:1")
    code, said = doctor("".join(f'[[gpu_exporters]]\nurl = "{url}"\n' for url in urls))
    exporters = [one for one in said if one[0] != "warning"]
    assert code == 2
    assert [level for level, _, _ in exporters] == ["ok", "error", "error", "error"]
    (_, well, _), (_, refused, _), (_, strange, _), (_, closed, fix) = exporters
    # GPU 0, an instance (MIG) of it, and GPU 1
    assert well == f"{good.removeprefix('http://')}: 3 x NVIDIA H200 (dcgm)"
    assert "HTTP 401: it needs a key" in refused
    assert "no GPU of a known exporter on its page" in strange
    assert "connection refused" in closed
    assert fix == "start it, or correct its url in [[gpu_exporters]]"


def test_the_prometheus_of_the_config_file_is_asked(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakePrometheus(time=1000.5)
    monkeypatch.setattr("enginetop.cli.doctor.time.time", lambda: 1030.5)
    for pod in ("a", "b"):
        fake.scraped({"job": "vllm", "instance": f"{pod}:8000"}, 990.0, vllm_page().decode())
    fake.scraped({"job": "node", "instance": "n:9100"}, 990.0, "node_load1 1\n")
    with fake.serving() as url:
        code, said = doctor(f'[prometheus]\nurl = "{url}"\n')
        well = f"Prometheus {url}: scrapes 2 targets of the jobs with engines (vllm)"
        assert said == [
            ("ok", well, ""),
            ("info", "its clock is 30.0 s behind this machine's; times are told by its own", ""),
        ]
        fake.scraped({"job": "vllm", "instance": "b:8000"}, 1000.0, None)
        fake.warnings = ["a store is away"]
        monkeypatch.setattr("enginetop.cli.doctor.time.time", lambda: 1000.5)
        code, said = doctor(f'[prometheus]\nurl = "{url}"\n')
        assert code == 1
        assert said == [
            ("warning", f"Prometheus {url} says: a store is away", ""),
            ("warning", f"{well}, 1 of them without an answer now", ""),
        ]


@pytest.mark.parametrize("value", [[], None, "1", [990.0]], ids=str)
def test_a_value_of_another_form_is_no_answer_and_breaks_nothing(doctor: Doctor, value: object) -> None:
    class Strange(FakePrometheus):
        def _query(self, query: str, at: float) -> Any:
            found = super()._query(query, at)
            if query.startswith("up{"):
                found["result"] = [{"metric": {"job": "vllm"}, "value": value}]
            return found

    fake = Strange(time=1000.5)
    fake.scraped({"job": "vllm", "instance": "a:8000"}, 990.0, vllm_page().decode())
    with fake.serving() as url:
        code, said = doctor(f'[prometheus]\nurl = "{url}"\n')
    assert (code, said[0][0]) == (1, "warning")
    assert said[0][1].endswith(
        "scrapes 1 targets of the jobs with engines (vllm), 1 of them without an answer now"
    )


def test_a_prometheus_that_is_none_of_use(doctor: Doctor) -> None:
    fake = FakePrometheus()
    fake.scraped({"job": "node", "instance": "n:9100"}, 990.0, "node_load1 1\n")
    with fake.serving() as url:
        code, said = doctor(f'[prometheus]\nurl = "{url}"\n')
    assert (code, said[0][:2]) == (2, ("error", f"Prometheus {url}: no engine's series within the last hour"))
    code, said = doctor('[prometheus]\nurl = "http://127.0.0.1:1"\n')
    assert (code, len(said)) == (2, 1)
    assert "connection refused" in said[0][1]
