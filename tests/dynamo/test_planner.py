"""Floors of Dynamo's own planner, written and read back."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from collectors.control_http import HttpKnobTransport
from collectors.fetch import NO_CREDENTIALS
from tests.dynamo.fleet import free_port
from tests.dynamo.installation import install
from tests.vllm.server import wait_for
from tuners.control.stock.dynamo_planner import PATH, PlannerFloors
from tuners.control.stock.live_board import LiveBoard

pytestmark = [pytest.mark.dynamo, pytest.mark.timeout(300)]

BUDGET = 8
"""GPUs: Dynamo's own default."""


@contextmanager
def planner(mode: str, folder: Path) -> Iterator[str]:
    port = free_port()
    url = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        assert process.poll() is None, log.read_text()[-1500:]
        try:
            return httpx.get(url + PATH, timeout=5.0).status_code == 200
        except httpx.TransportError:
            return False

    log = folder / "planner.log"
    script = Path(__file__).with_name("planner_api.py")
    with log.open("wb") as file:
        words = (str(install().python), str(script), mode, str(port))
        process = subprocess.Popen(words, stdout=file, stderr=file)
    try:
        wait_for(answers, 60.0)
        yield url
    finally:
        process.terminate()
        process.wait(20.0)


def board(url: str) -> LiveBoard:
    floors = PlannerFloors(HttpKnobTransport(url, NO_CREDENTIALS))
    return LiveBoard(floors, writer="dynamo_planner", engine_name="dynamo")


def put(made: LiveBoard, knob: str, value: int, now: float = 0.0) -> tuple[int, str]:
    outcome = made.patch(knob, value, if_version=None, ttl_seconds=60.0, change="c", now=now)
    return outcome.status, outcome.detail


def test_floors_come_go_and_are_refused_by_name(tmp_path: Path, record: dict[str, object]) -> None:
    with planner("disagg", tmp_path) as url:
        made = board(url)
        assert {row.name: (row.value, row.max) for row in made.sheet(0.0).knobs} == {
            "prefill_min_endpoint": (1, BUDGET),
            "decode_min_endpoint": (1, BUDGET),
            "min_gpu_budget": (-1, 4096),
            "max_gpu_budget": (BUDGET, 4096),
        }
        assert put(made, "decode_min_endpoint", 3) == (200, "")
        assert httpx.get(url + PATH).json()["decode_min_endpoint"] == 3
        status, said = put(made, "decode_min_endpoint", 4)
        assert status == 422
        assert "minimum endpoint footprint requires 9 GPUs, exceeding max_gpu_budget=8" in said
        assert "still 3" in said
        assert put(made, "min_gpu_budget", 9)[0] == 422  # above the larger one
        assert made.sheet(61.0).knobs[1].value == 1  # the loan is over
        assert httpx.get(url + PATH).json()["decode_min_endpoint"] == 1
    record["the planner's own API, decode floor 1 -> 3 -> 4 -> 1"] = f"read back; 4: {said}; back"


def test_a_planner_of_whole_workers_has_one_floor(tmp_path: Path) -> None:
    with planner("agg", tmp_path) as url:
        made = board(url)
        names = [row.name for row in made.sheet(0.0).knobs]
        assert names == ["min_endpoint", "min_gpu_budget", "max_gpu_budget"]
        assert put(made, "min_endpoint", 2) == (200, "")
        assert put(made, "min_endpoint", 1, now=1.0) == (200, "")
        assert httpx.get(url + PATH).json()["min_endpoint"] == 1
