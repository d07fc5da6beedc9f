"""Load curves of pages from a recording through the command, and of the simulator with its known capacity."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from enginetop.cli.main import main
from enginetop.fleet.load_curve import LoadPoint, load_curve, points_of
from enginetop.fleet.snapshot import Slo
from enginetop.simulator.scenario import Arrival, Pool
from enginetop.simulator.scenario_file import find_scenario
from enginetop.simulator.stepped import SteppedWorld

SPACING = 15.0
LEVELS = ((9, 10, 10), (19, 20, 20), (38, 40, 40), (76, 50, 20))
"""Running requests, and of each page's requests those that end and those that are in time."""
PAGES_A_LEVEL = 40


def pages() -> Iterator[str]:
    ended = late = step = 0
    for running, ending, in_time in LEVELS:
        for _ in range(PAGES_A_LEVEL):
            labels = 'engine="0",model_name="m"'
            lines = [
                "# TYPE vllm:num_requests_running gauge",
                f"vllm:num_requests_running{{{labels}}} {running}",
                "# TYPE vllm:request_success counter",
                f'vllm:request_success_total{{{labels},finished_reason="stop"}} {ended}',
            ]
            for name, bound, within in (
                ("time_to_first_token_seconds", 0.5, ended - late),
                ("request_time_per_output_token_seconds", 0.05, ended),
            ):
                lines += [
                    f"# TYPE vllm:{name} histogram",
                    f'vllm:{name}_bucket{{{labels},le="{bound}"}} {within}',
                    f'vllm:{name}_bucket{{{labels},le="2.0"}} {ended}',
                    f'vllm:{name}_bucket{{{labels},le="+Inf"}} {ended}',
                    f"vllm:{name}_sum{{{labels}}} {ended}",
                    f"vllm:{name}_count{{{labels}}} {ended}",
                ]
            body = "\n".join(lines) + "\n"
            yield json.dumps(
                {"t": SPACING * step, "target": "http://r1:8000", "path": "/metrics", "body": body}
            )
            step += 1
            ended += ending
            late += ending - in_time


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    path = tmp_path / "levels.jsonl"
    path.write_text("\n".join(pages()) + "\n", encoding="utf-8")
    return path


def curves(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    assert main(["curve", "--format", "json", "--slo", "ttft=0.5,tpot=0.05,target=0.95", *arguments]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "enginetop.curve/1"
    found: list[dict[str, Any]] = document["curves"]
    return found


def test_levels_of_a_recording_by_hand(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pool, one = curves(capsys, "--replay", str(recording))
    assert (pool["scope"], pool["model"], pool["replicas"]) == ("pool", "m", 1)
    assert (one["scope"], one["target"]) == ("replica", "http://r1:8000")
    assert pool["bins"] == one["bins"]
    # 40 pages 15 s apart are ten windows of a minute; one in which the level changes may fall anywhere
    levels = {level["requests_running"]["low"]: level for level in one["bins"]}
    assert sorted(levels) == pytest.approx([8, 16, 32, 64])
    assert all(8 <= level["points"] <= 11 for level in one["bins"])
    # 10, 20 and 40 requests each 15 s, all in time; then 20 of 50
    goods = [levels[running]["good_per_second"]["median"] for running in sorted(levels)[:3]]
    assert goods == pytest.approx([10 / 15, 20 / 15, 40 / 15])
    assert one["bins"][-1]["good_per_second"]["median"] == pytest.approx(20 / 15)
    assert one["bins"][-1]["attainment"]["median"] == pytest.approx(0.4)
    # rank 0.99 of 100 with 40 below 0.5: 0.5 + 1.5 x (99 - 40) / 60
    assert one["bins"][-1]["ttft_p99_seconds"]["median"] == pytest.approx(0.5 + 1.5 * 59 / 60)
    assert one["knee"]["requests_running"] == pytest.approx(38, rel=0.05)
    assert one["quality"] == "estimated"


def test_as_a_table_with_an_overlay(
    recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    aiperf = tmp_path / "profile_export_aiperf.json"
    run = {"unit": "requests/sec", "avg": 2.5}
    aiperf.write_text(
        json.dumps({"aiperf_version": "0.13.0", "goodput": run, "effective_concurrency": {"avg": 30}})
    )
    arguments = ["curve", "--replay", str(recording), "--overlay", str(aiperf)]
    assert main([*arguments, "--slo", "ttft=0.5,tpot=0.05"]) == 0
    said = capsys.readouterr()
    assert " running: 2.67 good/s; at 7" in said.out
    assert "overlay AIPerf profile_export_aiperf.json" in said.out
    assert "no knee named: 1 of 3 loads seen" in said.out
    assert said.err == ""


def test_live_targets_are_watched_for_a_while(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound and not listening: refuses
        target = f"127.0.0.1:{closed.getsockname()[1]}"
        assert main(["curve", target, "--for", "0.3", "--interval", "0.1"]) == 0
    said = capsys.readouterr()
    assert said.out.splitlines()[1] == " no knee named: 0 of 3 loads seen"
    assert "watching 1 target for 0 s" in said.err


def test_an_overlay_that_is_none_is_one_line(
    recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    assert main(["curve", "--replay", str(recording), "--overlay", str(broken)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert "broken.json: not JSON" in said.err


def test_the_knee_of_the_simulator_is_where_a_scan_of_loads_has_it() -> None:
    """Its steady replica at eight loads. The true goodput of each is counted request by request."""
    scenario = find_scenario("steady")
    plan, slo = scenario.pools[0].members[0], Slo(0.6, 0.06)
    points: list[LoadPoint] = []
    truth: dict[float, tuple[float, float]] = {}
    for rate in (1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0):
        traffic = replace(plan.traffic, requests_per_second=rate, arrival=Arrival.POISSON, abort_ratio=0.0)
        pool = Pool("a", (replace(plan, traffic=traffic),))
        world = SteppedWorld(replace(scenario, pools=(pool,), slo=slo), 1, 5)
        begun = world.truth("a1").within_slo
        world.advance(600)
        (replica,) = world.snapshot().replicas
        own = points_of(replica)
        assert len(own) >= 9
        mean = sum(point.running for point in own) / len(own)
        truth[rate] = (world.truth("a1").within_slo - begun) / 600, mean
        points += own
    best = max(truth, key=lambda rate: truth[rate])
    assert best == 3.0
    assert truth[3.5][0] < 0.5 * truth[3.0][0]  # beyond it goodput breaks down
    knee = load_curve(points, slo.ttft_seconds).knee
    assert knee is not None
    assert knee.good_per_second == pytest.approx(truth[3.0][0], rel=0.1)
    assert truth[2.5][1] / 2**0.5 < knee.running < truth[3.0][1] * 2**0.5
