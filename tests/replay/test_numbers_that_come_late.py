"""A counter that is NaN when the window begins: what it gained is not known, and is never 0."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from enginetop.cli.main import main

PAGE = """\
vllm:num_requests_running 1
vllm:generation_tokens_total {t}
vllm:num_preemptions_total {preemptions}
vllm:time_to_first_token_seconds_bucket{{le="0.5"}} {buckets}
vllm:time_to_first_token_seconds_bucket{{le="+Inf"}} {buckets}
vllm:time_to_first_token_seconds_count {counts}
vllm:time_to_first_token_seconds_sum {sums}
"""


def signals(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], until: int, late: frozenset[str]
) -> dict[str, Any]:
    """Signals after a page every 10 s; what is `late` has no number on the first one, and 3 more on each."""
    lines = []
    for page in range(until // 10 + 1):
        numbers = {
            name: "NaN" if page == 0 and name in late else 100 + 3 * page
            for name in ("preemptions", "buckets", "counts", "sums")
        }
        body = PAGE.format(t=10 * page, **numbers)
        lines.append({"t": 10 * page, "target": "http://r1:8000", "path": "/metrics", "body": body})
    path = tmp_path / "r.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert main(["snapshot", "--replay", str(path)]) == 0
    (replica,) = json.loads(capfd.readouterr().out)["replicas"]
    found: dict[str, Any] = replica["signals"]
    assert found["generation_tokens_per_second"]["value"] == 1.0
    return found


@pytest.mark.parametrize("until", [10, 20, 60])
def test_while_the_window_begins_there(until: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    found = signals(tmp_path, capfd, until, frozenset({"preemptions", "buckets", "counts", "sums"}))
    for name in ("preemptions", "preemptions_per_second"):
        assert (found[name]["value"], found[name]["quality"]) == (None, "unknown")
        assert found[name]["note"] == "the page held no number for it when the window began"
    assert (found["ttft_seconds"]["count"], found["ttft_seconds"]["quality"]) == (None, "unknown")


def test_once_the_window_begins_later(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    # the window of 60 s begins on the page of 10 s: six pages
    found = signals(tmp_path, capfd, 70, frozenset({"preemptions", "buckets", "counts", "sums"}))
    assert (found["preemptions"]["value"], found["preemptions"]["quality"]) == (18, "ok")
    assert found["preemptions_per_second"]["value"] == 0.3
    assert (found["ttft_seconds"]["count"], found["ttft_seconds"]["sum"]) == (18, 18)


def test_of_a_histogram_only_what_is_lost_is_lost(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    found = signals(tmp_path, capfd, 20, frozenset({"sums"}))
    assert found["preemptions"]["value"] == 6
    assert (found["ttft_seconds"]["count"], found["ttft_seconds"]["mean"]["value"]) == (6, None)
    found = signals(tmp_path, capfd, 20, frozenset({"counts"}))
    assert found["ttft_seconds"]["count"] is None
