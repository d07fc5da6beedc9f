"""Goodput of each model against its own objective, from pages through `snapshot --replay`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from enginetop.cli.main import main

CONFIG = """
[[slo]]
model = "m"
ttft_seconds = 0.5
tpot_seconds = 0.05
target = 0.95
[[slo]]
model = "n"
ttft_seconds = 2.0
tpot_seconds = 0.05
target = 0.9
"""


def body(model: str, stopped: int, aborted: int, early: int) -> str:
    """Of the stopped requests `early` have their first token within half a second, all within two."""
    labels = f'engine="0",model_name="{model}"'
    lines = [
        "# TYPE vllm:num_requests_running gauge",
        f"vllm:num_requests_running{{{labels}}} 1",
        "# TYPE vllm:request_success counter",
        f'vllm:request_success_total{{{labels},finished_reason="stop"}} {stopped}',
        f'vllm:request_success_total{{{labels},finished_reason="abort"}} {aborted}',
    ]
    for name, bounds in (
        ("time_to_first_token_seconds", ((0.5, early), (2.0, stopped))),
        ("request_time_per_output_token_seconds", ((0.05, stopped),)),
    ):
        lines.append(f"# TYPE vllm:{name} histogram")
        lines += [f'vllm:{name}_bucket{{{labels},le="{bound}"}} {count}' for bound, count in bounds]
        lines += [
            f'vllm:{name}_bucket{{{labels},le="+Inf"}} {stopped}',
            f"vllm:{name}_sum{{{labels}}} {stopped}",
            f"vllm:{name}_count{{{labels}}} {stopped}",
        ]
    return "\n".join(lines) + "\n"


REPLICAS = (
    ("http://r1:8000", "m", 60, 0, 54),
    ("http://r2:8000", "m", 30, 30, 30),
    ("http://r3:8000", "n", 120, 0, 60),
)
"""URL, model, and what happens within a minute: requests answered, aborted, and answered early."""


@pytest.fixture
def snapshot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    recording, config = tmp_path / "minute.jsonl", tmp_path / "config.toml"
    config.write_text(CONFIG)
    with recording.open("w", encoding="utf-8") as file:
        for at in (0.0, 60.0):
            for url, model, *counts in REPLICAS:
                stopped, aborted, early = [100 + count if at else 100 for count in counts]
                page = body(model, stopped, aborted, early)
                file.write(json.dumps({"t": at, "target": url, "path": "/metrics", "body": page}) + "\n")
    assert main(["snapshot", "--replay", str(recording), "--config", str(config)]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_each_model_by_hand(snapshot: dict[str, Any]) -> None:
    m, n = snapshot["fleet"]["models"]
    assert (m["model"], m["replicas"], n["model"], n["replicas"]) == ("m", 2, "n", 1)
    # m: 120 ended in 60 s, 30 of them aborted; 84 of 90 answered ones in time
    assert m["goodput"]["offered_per_second"] == 2.0
    assert m["goodput"]["attainment"]["joint"]["low"] == pytest.approx(84 / 90)
    assert m["goodput"]["requests_per_second"]["low"] == pytest.approx(1.5 * 84 / 90)
    assert m["goodput"]["requests_per_second"]["high"] == pytest.approx(1.4)
    assert m["goodput"]["slo"]["ttft_seconds"] == 0.5
    # n has two seconds for the first token: nobody is late
    assert n["goodput"]["requests_per_second"] == {"low": 2.0, "high": 2.0, "independent": 2.0}
    assert n["goodput"]["slo"] == {
        "ttft_seconds": 2.0,
        "tpot_seconds": 0.05,
        "target": 0.9,
        "source": "config",
    }
    assert m["signals"]["requests_aborted_per_second"]["value"] == 0.5
    assert m["signals"]["ttft_seconds"]["count"] == 90


def test_models_add_up_to_the_fleet(snapshot: dict[str, Any]) -> None:
    whole = snapshot["fleet"]["goodput"]
    assert whole["offered_per_second"] == 4.0
    assert whole["requests_per_second"]["low"] == pytest.approx(1.4 + 2.0)
    assert whole["requests_per_second"]["high"] == pytest.approx(3.4)
