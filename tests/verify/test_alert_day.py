"""A day of two replicas, a page every 15 s, replayed: the alerts of hand-computed times, twice the same."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from enginetop.cli.main import main

pytestmark = pytest.mark.verify

STEP = 15
DAY = 24 * 3600
HOUR = 3600
R1, R2 = "http://r1:8000", "http://r2:8000"
LABELS = 'engine="0",model_name="m"'


def page(t: int, preemptions: float, spoken: float) -> str:
    finished = 4 * t
    lines = [
        f"vllm:num_requests_running{{{LABELS}}} 20",
        f"vllm:num_requests_waiting{{{LABELS}}} 0",
        f"vllm:kv_cache_usage_perc{{{LABELS}}} 0.8",
        f"vllm:num_preemptions_total{{{LABELS}}} {preemptions}",
        f"vllm:generation_tokens_total{{{LABELS}}} {spoken}",
        f'vllm:request_success_total{{{LABELS},finished_reason="stop"}} {finished if spoken else 0}',
        # a page of a real engine has hundreds of lines
        *(f'vllm:other{{{LABELS},n="{n}"}} {n}' for n in range(100)),
    ]
    return "\n".join(lines) + "\n"


def day(path: Path) -> None:
    """r1 is away from 1:00 to 1:10; preempts 0.02/s from 3:00 to 3:20 and 0.2/s from 5:00 to 5:20.

    r2 answers 401 from 2:00 to 2:05; is down for a single look at 4:00.
    """
    preempted = 0.0
    with path.open("w") as file:
        for t in range(0, DAY, STEP):
            rate = (
                0.02 if 3 * HOUR < t <= 3 * HOUR + 1200 else 0.2 if 5 * HOUR < t <= 5 * HOUR + 1200 else 0.0
            )
            preempted += rate * STEP
            one = {"t": t, "target": R1, "path": "/metrics"}
            if HOUR <= t < HOUR + 600:
                record = {**one, "error": "refused"}
            else:
                record = {**one, "body": page(t, preempted, 2000.0 * t)}
            file.write(json.dumps(record) + "\n")
            other = {"t": t, "target": R2, "path": "/metrics"}
            if 2 * HOUR <= t < 2 * HOUR + 300:
                record = {**other, "status": 401}
            elif t == 4 * HOUR:
                record = {**other, "error": "refused"}
            else:
                record = {**other, "body": page(t, 0, 2000.0 * t)}
            file.write(json.dumps(record) + "\n")


EXPECTED = [
    # refused at 1:00:00 and 1:00:15: down since the first
    (HOUR + 15, R1, "TargetDown", "critical", "pending"),
    (HOUR + 30, R1, "TargetDown", "critical", "firing"),
    (HOUR + 600, R1, "TargetDown", "critical", "resolved"),
    (2 * HOUR, R2, "Unauthorized", "warning", "pending"),
    (2 * HOUR + 60, R2, "Unauthorized", "warning", "firing"),
    (2 * HOUR + 300, R2, "Unauthorized", "warning", "resolved"),
    # the first preempted page is that of 3:00:15; 0.5 % of 4 requests/s; none in the window from 3:21:00 on
    (3 * HOUR + 15, R1, "Preempting", "warning", "pending"),
    (3 * HOUR + 75, R1, "Preempting", "warning", "firing"),
    (3 * HOUR + 1260, R1, "Preempting", "warning", "resolved"),
    # 0.2/s: 0.05/s in the window at 5:00:15 is 1.25 % of requests: grave at once, for 300 s until 5:05:15.
    # At 5:20:45 a fourth of the window is left: 1.25 %; nothing at 5:21:00
    (5 * HOUR + 15, R1, "Preempting", "warning", "pending"),
    (5 * HOUR + 15, R1, "Preempting", "critical", "pending"),
    (5 * HOUR + 75, R1, "Preempting", "warning", "firing"),
    (5 * HOUR + 315, R1, "Preempting", "critical", "firing"),
    (5 * HOUR + 1260, R1, "Preempting", "warning", "resolved"),
    (5 * HOUR + 1260, R1, "Preempting", "critical", "resolved"),
]


def test_a_day(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "day.jsonl"
    day(path)
    printed = []
    for _ in range(2):
        begun = time.process_time()
        assert main(["watch", "--replay", str(path)]) == 0
        assert time.process_time() - begun < 60
        printed.append(capfd.readouterr().out)
    assert printed[0] == printed[1]
    events = [json.loads(line) for line in printed[0].splitlines()]
    assert [(e["at"], e["target"], e["rule"], e["severity"], e["state"]) for e in events] == EXPECTED
