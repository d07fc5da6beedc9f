"""`enginetop sim`: addresses on stdout, and on stderr the objective that its scenario is about."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.request
from dataclasses import replace

import pytest

from enginetop.cli.slo_flag import parse_slo, slo_flag
from enginetop.fleet.snapshot import Slo
from enginetop.simulator.builtin import SCENARIOS


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_flag_names_the_objective(name: str) -> None:
    slo = SCENARIOS[name].slo
    assert parse_slo(slo_flag(slo)) == (replace(slo, source="flag"), "")


def test_the_flag_as_people_write_it() -> None:
    assert slo_flag(Slo(0.6, 0.05, 0.95)) == "ttft=0.6,tpot=0.05,target=0.95"


def test_it_serves_and_says_how_to_watch_it() -> None:
    command = [sys.executable, "-m", "enginetop", "sim", "--scenario", "budget-too-large", "--replicas", "2"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ)
    ) as sim:
        assert sim.stdout is not None
        assert sim.stderr is not None
        urls = [sim.stdout.readline().strip() for _ in range(2)]
        for url in urls:
            with urllib.request.urlopen(f"{url}/metrics", timeout=10) as page:
                assert b"vllm:num_requests_running" in page.read()
        sim.send_signal(signal.SIGINT)
        assert sim.stderr.read() == (
            "enginetop: budget-too-large: watch it with --slo ttft=3,tpot=0.025,target=0.95\n"
        )
        assert sim.wait(20) == 0
