"""Several paths of one target at one instant: a target of which one path answers is not down."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from enginetop.cli.main import main

PAGE = "vllm:num_requests_running 1\nvllm:generation_tokens_total {tokens}\n"
Answer = dict[str, Any]


def state(tmp_path: Path, capfd: pytest.CaptureFixture[str], looks: list[tuple[Answer, Answer]]) -> str:
    """The state after these looks, 2 s apart, at `/prometheus/metrics` and `/metrics`."""
    lines = [
        {"t": 10 + 2 * number, "target": "http://r1:8000", "path": path, **answer}
        for number, look in enumerate(looks)
        for path, answer in zip(("/prometheus/metrics", "/metrics"), look, strict=True)
    ]
    path = tmp_path / "r.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert main(["snapshot", "--replay", str(path)]) == 0
    (replica,) = json.loads(capfd.readouterr().out)["replicas"]
    found: str = replica["state"]
    return found


@pytest.mark.parametrize("error", ["refused", "dns", "tls"])
@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"status": 404, "body": "Not Found"}, "no_engine_metrics"),
        ({"body": "<html></html>"}, "no_engine_metrics"),
        ({"status": 401}, "unauthorized"),
        ({"status": 503, "body": "loading model"}, "loading"),
        ({"status": 500}, "stale"),
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_one_that_answers_means_that_it_answers(
    error: str, answer: Answer, expected: str, first: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    look = (answer, {"error": error}) if first else ({"error": error}, answer)
    assert state(tmp_path, capfd, [look] * 3) == expected


@pytest.mark.parametrize("other", ["refused", "dns", "tls", "timeout"])
@pytest.mark.parametrize("error", ["refused", "dns", "tls", "timeout"])
def test_none_that_answers_means_that_it_is_down(
    error: str, other: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert state(tmp_path, capfd, [({"error": error}, {"error": other})] * 2) == "down"


def test_a_replica_that_is_known_is_not_down_while_another_path_answers(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    missing: Answer = {"status": 404, "body": "Not Found"}
    good = [(missing, {"body": PAGE.format(tokens=tokens)}) for tokens in (100, 200)]
    assert state(tmp_path, capfd, [*good, *[(missing, {"error": "refused"})] * 2]) == "ok"
    # without a page for three times the spacing it is stale
    assert state(tmp_path, capfd, [*good, *[(missing, {"error": "refused"})] * 4]) == "stale"
