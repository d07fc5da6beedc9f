"""Prefill and decode pools of several models through `snapshot --replay`: which requests are the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from enginetop.cli.main import main

LONE, PREFILL, DECODE = "http://p1:30000", "http://p2:30000", "http://d2:30000"


def page(role: str, model: str, ended: float) -> str:
    """What a worker of SGLang 0.5.23 says of `ended` requests, with 100 output tokens each."""
    labels = f'engine_type="{role}",model_name="{model}"'
    return "".join(
        f"# TYPE sglang:{name} {kind}\nsglang:{name}{{{labels}}} {number}\n"
        for name, kind, number in (
            ("num_running_reqs", "gauge", 1),
            ("num_requests_total", "counter", ended),
            ("generation_tokens_total", "counter", 100 * ended),
        )
    )


def fleet_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], workers: dict[str, tuple[str, str]]
) -> dict[str, Any]:
    """The fleet's part of the document: every worker ended ten requests in 10 s."""
    recording = tmp_path / "pools.jsonl"
    recording.write_text(
        "".join(
            json.dumps({"t": at, "target": url, "path": "/metrics", "body": page(role, model, ended)}) + "\n"
            for at, ended in ((100.0, 0.0), (110.0, 10.0))
            for url, (role, model) in workers.items()
        )
    )
    assert main(["snapshot", "--replay", str(recording), "--format", "json"]) == 0
    fleet: dict[str, Any] = json.loads(capsys.readouterr().out)["fleet"]
    return fleet


@pytest.mark.parametrize(
    ("lone_model", "per_second"),
    [("llama", 2.0), ("qwen", 1.0)],
    ids=[
        "another model's decode workers say nothing of it",
        "the decode workers of its model tell its requests",
    ],
)
def test_a_prefill_pool_beside_the_pools_of_a_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], lone_model: str, per_second: float
) -> None:
    workers = {LONE: ("prefill", lone_model), PREFILL: ("prefill", "qwen"), DECODE: ("decode", "qwen")}
    fleet = fleet_of(tmp_path, capsys, workers)
    assert fleet["signals"]["requests_finished_per_second"]["value"] == pytest.approx(per_second)
    assert fleet["signals"]["generation_tokens_per_second"]["value"] == pytest.approx(100 * per_second)
