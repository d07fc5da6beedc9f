"""Records that are followed while they are written tell what a replay of them tells."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from collectors.answer import Answer
from collectors.records.source import RecordLog, RecordSource
from collectors.replay import run_replay
from enginetop.fleet.document import snapshot_document
from enginetop.fleet.model import Quality
from enginetop.fleet.request_records import RequestFigures
from enginetop.fleet.snapshot import FleetSnapshot
from tests.support.small_fleet import new_feeds, target, tracker_of, vllm_page

R1, R2 = "http://r1:8000", "http://r2:8000"

FIGURES: tuple[dict[str, Any], ...] = tuple(
    {
        "t": 40.0 + n / 2,
        "output_tokens": 101 + n,
        "reasoning_tokens": 0 if n % 7 == 0 else 2 * n,
        "ttft_seconds": 0.25 + n / 32,
        "e2e_seconds": 0.25 + n / 32 + (100 + n) / 32,  # 1 / 32 s for each token after the first
        "finish": "abort" if n % 9 == 8 else "stop",
    }
    for n in range(70)
)
"""Hand-made requests that ended from t = 40 on; of the 70, the first 41 end before the last page at 60."""


def enginetop(one: dict[str, Any]) -> dict[str, Any]:
    return {**one, "kind": "request", "target": R1, "tpot_seconds": 1 / 32}


def sglang(one: dict[str, Any]) -> dict[str, Any]:
    return {
        "request_parameters": '{"text": "a secret"}',
        "finish_reason": {"type": one["finish"]},
        "completion_tokens": one["output_tokens"],
        "reasoning_tokens": one["reasoning_tokens"],
        "e2e_latency": one["e2e_seconds"],
        "first_token_latency": one["ttft_seconds"],
        "request_finished_ts": one["t"],
        "decode_throughput": 32.0,
    }


def litellm(one: dict[str, Any]) -> dict[str, Any]:
    began = one["t"] - one["e2e_seconds"]
    return {
        "startTime": began,
        "endTime": one["t"],
        "completionStartTime": began + one["ttft_seconds"],
        "status": one["finish"],
        "model": "gateway/m",
        "api_base": f"{R1}/v1",
        "completion_tokens": one["output_tokens"],
        "metadata": {
            "usage_object": {"completion_tokens_details": {"reasoning_tokens": one["reasoning_tokens"]}}
        },
    }


PAGES = [
    {"t": float(t), "target": R1, "path": "/metrics", "body": vllm_page(2, 10 * t).decode()}
    for t in (0, 30, 60)
]


def replayed(path: Path) -> FleetSnapshot:
    lines = sorted([*PAGES, *map(enginetop, FIGURES)], key=lambda line: float(str(line["t"])))
    kept = [line for line in lines if float(str(line["t"])) <= 60.0]
    path.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")
    return run_replay(path, new_tracker=tracker_of, new_feed=new_feeds())


def followed(path: Path, lines: Sequence[dict[str, Any]], log: RecordLog) -> FleetSnapshot:
    """The pages through a tracker, the lines through a file that grows between looks."""
    path.write_text("", encoding="utf-8")
    source = RecordSource(log)
    tracker = tracker_of([target(R1)])
    feed = new_feeds()(target(R1))
    source.poll(0.0)
    rest = list(lines)
    for page in PAGES:
        at = float(str(page["t"]))
        answer = Answer("/metrics", at, 0.0, 200, {"content-type": "text/plain"}, str(page["body"]).encode())
        tracker.observe(R1, feed.take([answer], at, 0.0))
        now, rest = rest[:25], rest[25:]
        with path.open("a", encoding="utf-8") as file:
            file.write("".join(json.dumps(line) + "\n" for line in now) + "{garbage\n")
        tracker.observe_claimed(source.poll(at))
        found = tracker.snapshot(at)
    source.close()
    assert source.bad_records == 3
    return found


def told(snapshot: FleetSnapshot) -> dict[str, Any]:
    """Signals and goodput of the replica and of the fleet, without the sources' names."""
    document = snapshot_document(snapshot)
    shown: dict[str, Any] = {}
    for name, holder in (("fleet", document["fleet"]), ("replica", document["replicas"][0])):
        for key, signal in holder["signals"].items():
            shown[f"{name} {key}"] = {word: value for word, value in signal.items() if word != "note"}
        shown[f"{name} goodput"] = holder["goodput"]["attainment"]
    return shown


@pytest.mark.parametrize("form", [enginetop, sglang, litellm])
def test_followed_as_they_come_or_replayed_at_once(
    tmp_path: Path, form: Callable[[dict[str, Any]], dict[str, Any]]
) -> None:
    path = tmp_path / "requests.jsonl"
    live = followed(path, [form(one) for one in FIGURES], RecordLog(str(path)))
    again = replayed(tmp_path / "recording.jsonl")
    assert told(live) == told(again)
    (replica,) = live.replicas
    thought = replica.distribution("reasoning_tokens")
    assert (thought.count, thought.quality) == (41, Quality.OK)  # n = 0 ... 40: t = 40 ... 60
    # 2 (1 + ... + 40) without the multiples of 7 (7 14 21 28 35: 105)
    assert thought.sum == 2 * (820 - 105)
    assert thought.note.startswith("request records of requests.jsonl: 41 counted")
    share = replica.scalar("reasoning_share_ratio")
    assert share.value == pytest.approx(1430 / (41 * 101 + 820))
    assert share.note == "41 request records of requests.jsonl"
    # those with n up to 24 have TTFT <= 1 s; n = 8, 17, 26, 35 were aborted: 23 of 37
    assert replica.goodput.exact == pytest.approx(23 / 37)


def test_records_of_nobody_in_particular_are_the_fleets(tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_text("".join(json.dumps(sglang(one)) + "\n" for one in FIGURES[:10]), encoding="utf-8")
    source = RecordSource(RecordLog(str(path), from_start=True))
    tracker = tracker_of([target(R1), target(R2)])
    tracker.observe_claimed(source.poll(50.0))
    assert (
        tracker.snapshot(50.0).fleet.signals["reasoning_tokens"].quality is Quality.UNKNOWN
    )  # nobody looked at yet
    feeds = new_feeds()
    for url in (R1, R2):
        answer = Answer("/metrics", 50.0, 0.0, 200, {"content-type": "text/plain"}, vllm_page())
        tracker.observe(url, feeds(target(url)).take([answer], 50.0, 0.0))
    snapshot = tracker.snapshot(50.0)
    whole = snapshot_document(snapshot)
    assert whole["fleet"]["signals"]["reasoning_tokens"]["count"] == 10
    assert all(one["signals"]["reasoning_tokens"]["count"] is None for one in whole["replicas"])
    assert snapshot.collector.foreign_records == 0
    source.close()


def test_records_of_strangers_do_not_count_and_are_told_when_there_is_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    strange = [{**litellm(one), "api_base": "http://elsewhere/v1"} for one in FIGURES[:4]]
    found = followed(path, strange, RecordLog(str(path)))
    assert found.fleet.signals["reasoning_tokens"].quality is Quality.UNSUPPORTED
    assert found.collector.foreign_records == 4
    assert "say whose they are: FILE=TARGET" in found.collector.record_problem
    named = followed(path, strange, RecordLog(str(path), target_url=R1))
    assert (named.collector.foreign_records, named.collector.record_problem) == (0, "")
    assert named.replicas[0].distribution("reasoning_tokens").count == 4
    mixed = followed(path, [*strange, *map(litellm, FIGURES[:1])], RecordLog(str(path)))
    assert (mixed.collector.foreign_records, mixed.collector.record_problem) == (4, "")


def test_a_budget_that_the_knobs_tell_and_that_is_taken_back() -> None:
    tracker = tracker_of([target(R1)])
    for one in FIGURES[:10]:
        tracker.observe_request(R1, RequestFigures(one["t"], one["output_tokens"], one["reasoning_tokens"]))
    values = []
    for budget in (None, 14, -1):
        tracker.set_thinking_budget(R1, budget)
        tracker.set_thinking_budget("http://unknown", budget)
        values.append(tracker.snapshot(50.0).replicas[0].scalar("reasoning_budget_hit_ratio").value)
    assert values == [None, 2 / 10, None]  # 0 2 4 6 8 10 12 0 16 18 against 14


def test_a_budget_of_the_log_tells_how_many_reach_it(tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    log = RecordLog(str(path), thinking_token_budget=60)
    found = followed(path, [sglang(one) for one in FIGURES], log)
    for holder in (found.replicas[0].signals, found.fleet.signals):
        hits = snapshot_document(found)["fleet"]["signals"]["reasoning_budget_hit_ratio"]
        assert hits["value"] == pytest.approx(10 / 41)  # n = 30 ... 40 without 35
        held = holder["reasoning_kv_tokens"]
        assert held.quality is Quality.ESTIMATED
        assert "half of 35 tokens in each of 2 running requests" in held.note  # 1430 / 41
