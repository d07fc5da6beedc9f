"""Request records of a recording, from the line to the snapshot."""

from __future__ import annotations

import json
from pathlib import Path

from collectors.replay import run_replay
from enginetop.fleet.document import snapshot_document
from enginetop.fleet.model import Quality, ReplicaState
from enginetop.fleet.snapshot import FleetSnapshot
from tests.support.small_fleet import new_feeds, tracker_of, vllm_page

R1 = "http://r1:8000"


def replay(path: Path, *lines: dict[str, object]) -> FleetSnapshot:
    file = path / "recording.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in lines), encoding="utf-8")
    return run_replay(file, new_tracker=tracker_of, new_feed=new_feeds())


def page(at: float) -> dict[str, object]:
    return {"t": at, "target": R1, "path": "/metrics", "body": vllm_page(1, int(at)).decode()}


def request(at: float, **figures: object) -> dict[str, object]:
    return {"t": at, "target": R1, "kind": "request", **figures}


def test_records_tell_what_the_page_does_not(tmp_path: Path) -> None:
    times = {"ttft_seconds": 0.3, "tpot_seconds": 0.04, "finish": "stop"}
    snapshot = replay(
        tmp_path,
        page(0.0),
        request(1.0, output_tokens=700, reasoning_tokens=512, **times),
        request(70.0, output_tokens=700, reasoning_tokens=300, reasoning_chars=2053, **times),
        request(80.0, output_tokens=700, reasoning_tokens=0, reasoning_chars=2053, **times),
        request(90.0, output_tokens=300, reasoning_tokens=100, ttft_seconds=3, tpot_seconds=0.01),
        page(100.0),
    )
    document = snapshot_document(snapshot)
    for holder in (document["replicas"][0], document["fleet"]):
        reasoning = holder["signals"]["reasoning_tokens"]
        assert (reasoning["count"], reasoning["sum"]) == (2.0, 400.0)  # the first is older than the window
        assert reasoning["p50"] == {"value": 100.0, "low": 100.0, "high": 100.0, "censored": False}
        assert reasoning["p95"]["value"] is None
        assert holder["signals"]["reasoning_share_ratio"]["value"] == 0.4  # 400 of 1000
        assert holder["goodput"]["attainment"]["joint"]["exact"] == 2 / 3


def test_a_target_that_only_records_tell_of(tmp_path: Path) -> None:
    snapshot = replay(tmp_path, request(5.0, output_tokens=700, reasoning_tokens=350))
    (one,) = snapshot.replicas
    assert one.state is ReplicaState.UNKNOWN
    assert one.scalar("reasoning_share_ratio").value == 0.5


def test_garbage_in_a_record_is_not_known(tmp_path: Path) -> None:
    snapshot = replay(
        tmp_path,
        page(0.0),
        request(1.0, output_tokens="700", reasoning_tokens=-5, ttft_seconds=True, finish=["\x1b[2J"]),
        request(2.0, output_tokens=1e400, reasoning_tokens={"a": 1}, prompt="secret text"),
        page(3.0),
    )
    found = snapshot.replicas[0].distribution("reasoning_tokens")
    assert (found.count, found.quality) == (0.0, Quality.UNKNOWN)
    assert "secret" not in json.dumps(snapshot_document(snapshot))


def test_records_beside_an_old_page_are_marked_as_old(tmp_path: Path) -> None:
    snapshot = replay(
        tmp_path, *(page(2.0 * i) for i in range(4)), request(40.0, output_tokens=4, reasoning_tokens=3)
    )
    (one,) = snapshot.replicas
    assert one.state is ReplicaState.STALE
    share = one.scalar("reasoning_share_ratio")
    assert (share.value, share.quality) == (0.75, Quality.STALE)
