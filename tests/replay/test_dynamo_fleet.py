"""A disaggregated Dynamo fleet from its captured pages through `snapshot --replay`: each request counts once.

The captures are of one fleet: the frontend names the three workers in decimal, and each of them names itself
in hexadecimal. The first page of each target is its capture with every number 0, the second the capture 10 s
later, so that an increase is what the capture shows.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from enginetop.cli.main import main
from tests.support.engine_pages import fixture

FRONTEND, PREFILL, DECODE, MTP = (
    "http://f1:8000",
    "http://p1:9001",
    "http://d1:9001",
    "http://d2:9001",
)
CAPTURES = {
    FRONTEND: "frontend-decode-killed",
    PREFILL: "worker-disagg-prefill",
    DECODE: "worker-disagg-decode",
    MTP: "worker-disagg-decode-mtp",
}
_NUMBER = re.compile(r" \S+$", re.MULTILINE)


def at_zero(page: str) -> str:
    """The page with every sample 0."""
    return "\n".join(line if line.startswith("#") else _NUMBER.sub(" 0", line) for line in page.splitlines())


def snapshot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *targets: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fleet's part of the document, and the replicas by target."""
    recording = tmp_path / "fleet.jsonl"
    lines = []
    for at in (100.0, 110.0):
        for target in targets:
            page = fixture(f"dynamo/1.6.1/dynamo-1.6.1-{CAPTURES[target]}.prom").decode()
            body = at_zero(page) + "\n" if at == 100.0 else page
            lines.append(json.dumps({"t": at, "target": target, "path": "/metrics", "body": body}))
    recording.write_text("\n".join(lines) + "\n")
    assert main(["snapshot", "--replay", str(recording), "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    return document["fleet"], {replica["target"]: replica for replica in document["replicas"]}


def number(part: dict[str, Any], name: str) -> float | None:
    value: float | None = part["signals"][name]["value"]
    return value


def test_one_request_through_frontend_prefill_and_decode(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet, rows = snapshot(tmp_path, capsys, FRONTEND, PREFILL, DECODE, MTP)
    # Finished: 2 and 25 of the decode workers in 10 s; not 46 of the prefill worker, not 68 of the frontend.
    assert number(fleet, "requests_finished_per_second") == pytest.approx(2.7)
    # 16 + 1874 and 31 + 4024 tokens; not 9909 of the frontend.
    assert number(fleet, "generation_tokens_per_second") == pytest.approx(594.5)
    assert fleet["signals"]["e2e_seconds"]["count"] == 27
    assert fleet["signals"]["e2e_seconds"]["sum"] == pytest.approx(12.503588412 + 81.562794821)
    assert fleet["signals"]["ttft_seconds"]["count"] == 16 + 31
    assert fleet["signals"]["itl_seconds"]["count"] == 1874 + 4024
    # What is of a worker and not of a request is summed over both stages.
    assert number(fleet, "requests_running") == 12 + 6 + 0
    assert number(fleet, "preemptions") == 4 + 16
    assert number(fleet, "kv_usage_ratio") == 0.964
    assert fleet["signals"]["kv_usage_ratio"]["mean"] == pytest.approx((0.964 + 0.462) / 2)

    assert {target: (row["engine"], row["role"], row["stack"]) for target, row in rows.items()} == {
        FRONTEND: ("dynamo", "gateway", None),
        PREFILL: ("dynamo", "prefill", None),
        DECODE: ("vllm", "decode", "dynamo"),
        MTP: ("vllm", "decode", "dynamo"),
    }
    assert fleet["replicas"] == 4
    # Every row shows its own page.
    assert number(rows[FRONTEND], "requests_finished_per_second") == pytest.approx(6.8)
    assert number(rows[FRONTEND], "generation_tokens_per_second") == pytest.approx(990.9)
    assert rows[FRONTEND]["signals"]["ttft_seconds"]["count"] == 83
    assert rows[FRONTEND]["signals"]["itl_seconds"]["count"] == 9281
    assert number(rows[FRONTEND], "prefix_hit_ratio") == pytest.approx(16928 / 66210)
    assert number(rows[PREFILL], "requests_finished_per_second") == pytest.approx(4.6)
    assert number(rows[DECODE], "requests_finished_per_second") == pytest.approx(0.2)


def test_without_a_frontend_the_workers_still_count_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet, rows = snapshot(tmp_path, capsys, PREFILL, DECODE, MTP)
    assert number(fleet, "requests_finished_per_second") == pytest.approx(2.7)
    assert rows[DECODE]["role"] == "aggregated"  # nobody says otherwise


def test_a_worker_whose_engine_speaks_from_the_first_request_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before it the page is Dynamo's alone, then it is the engine's; nothing is lost or counted twice."""
    loaded = fixture("dynamo/1.6.1/dynamo-1.6.1-worker1-kvpressure.prom").decode()
    idle = fixture("dynamo/1.6.1/dynamo-1.6.1-worker1-idle.prom").decode()
    pages = [idle.replace("608eff91ef672614", "36ef92f532c7de0d"), loaded]
    recording = tmp_path / "first.jsonl"
    recording.write_text(
        "".join(
            json.dumps({"t": 100.0 + 10 * i, "target": DECODE, "path": "/metrics", "body": page}) + "\n"
            for i, page in enumerate(pages)
        )
    )
    assert main(["snapshot", "--replay", str(recording), "--format", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["replicas"]
    assert (row["engine"], row["stack"], row["model"]) == ("vllm", "dynamo", "tiny")
    assert number(row, "requests_finished_per_second") == pytest.approx(1.3)
    assert number(row, "generation_tokens_per_second") == pytest.approx((24 + 3410) / 10)
    assert row["signals"]["e2e_seconds"]["count"] == 13
    assert "restarted" not in {event["kind"] for event in row["events"]}


@pytest.mark.parametrize(
    ("targets", "per_second"), [((FRONTEND,), 6.8), ((PREFILL,), 4.6), ((FRONTEND, PREFILL), 4.6)]
)
def test_what_is_watched_alone_counts_in_full(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], targets: tuple[str, ...], per_second: float
) -> None:
    fleet, _ = snapshot(tmp_path, capsys, *targets)
    assert number(fleet, "requests_finished_per_second") == pytest.approx(per_second)


def test_a_rule_tells_that_the_last_worker_of_a_model_is_gone(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """`/health` goes on to say that all is well, and the gauge vanishes instead of falling."""
    page = fixture("dynamo/1.6.1/dynamo-1.6.1-frontend-kvpressure.prom").decode()
    gone = "\n".join(line for line in page.splitlines() if "frontend_model_ready" not in line) + "\n"
    recording, config = tmp_path / "gone.jsonl", tmp_path / "config.toml"
    recording.write_text(
        "".join(
            json.dumps({"t": 100.0 + 2 * i, "target": FRONTEND, "path": "/metrics", "body": body}) + "\n"
            for i, body in enumerate([page, page, gone, gone])
        )
    )
    config.write_text('[[alerts]]\nrule = "NoWorkers"\nwhen = "models_ready == 0"\nseverity = "critical"\n')
    assert main(["watch", "--replay", str(recording), "--config", str(config), "--format", "ndjson"]) == 0
    alerts = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [(a["at"], a["state"], a["target"]) for a in alerts if a["rule"] == "NoWorkers"] == [
        (104.0, "firing", FRONTEND)
    ]
