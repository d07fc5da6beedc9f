"""The whole loop on two real engines: a plan tried, promoted, proved; enginetop killed, the engine back."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from enginetop import __version__
from enginetop.fleet.plan import Plan, PlannedChange, Scope, plan_text
from tests.vllm.load import Load
from tests.vllm.server import Server, drafts_per_step, wait_for

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1800)]

BUDGET = "max_num_batched_tokens"
DRAFTS = "num_speculative_tokens"


@dataclass(frozen=True)
class Desk:
    """A person's config and state folder, and a fleet of two engines of which the first is the canary."""

    folder: Path
    servers: tuple[Server, Server]

    @property
    def config(self) -> Path:
        return self.folder / "config.toml"

    def command(self, *words: str) -> list[str]:
        return [str(Path(sys.executable).with_name("enginetop")), *words]

    @property
    def environment(self) -> dict[str, str]:
        # The canary's companion is found by its socket, the other one by the config file.
        return os.environ | {
            "XDG_STATE_HOME": str(self.folder / "state"),
            "XDG_RUNTIME_DIR": str(self.servers[0].runtime_folder),
            "ENGINETOP_COMPANION_TOKEN_FILE": str(self.servers[0].token_file),
        }

    def run(self, *words: str, seconds: float = 300.0) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*words),
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    def plan(self, name: str, after: int, knob: str = BUDGET, servers: int = 2) -> Path:
        """A plan for the first `servers` engines, written to a file."""
        changes = tuple(
            PlannedChange(
                target=server.url,
                instance=server.knobs("GET", "knobs").json()["instance"],
                knob=knob,
                before=server.row(knob)["value"],
                after=after,
            )
            for server in self.servers[:servers]
        )
        now = time.time()
        plan = Plan(
            id=name,
            created=now,
            expires=now + 600,
            tool_version=__version__,
            evidence_hash="0" * 64,
            scope=Scope(model="tiny", role="aggregated", canary=changes[0].target),
            changes=changes,
        )
        file = self.folder / f"{name}.json"
        file.write_text(plan_text(plan))
        return file

    def audit(self, name: str) -> list[dict[str, Any]]:
        done = self.run("audit", "--format", "json")
        assert done.returncode == 0, done.stderr
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        return [row for row in rows if row["id"] == name]


@pytest.fixture
def desk(speculating: Server, reasoning: Server, tmp_path: Path) -> Desk:
    for server in (speculating, reasoning):
        server.reset_all()
    (tmp_path / "config.toml").write_text(f"""
interval_seconds = 2.0
timeout_seconds = 20.0
window_seconds = 12.0
[[targets]]
url = "{speculating.url}"
[[targets]]
url = "{reasoning.url}"
control_url = "http://{reasoning.knob_address}"
control_token_file = "{reasoning.token_file}"
[[slo]]
model = "*"
ttft_seconds = 5.0
tpot_seconds = 0.5
[control]
warmup_seconds = 4.0
blocks = 12
block_seconds = 3.0
margin = 0.2
ttl_seconds = 30.0
""")
    return Desk(tmp_path, (speculating, reasoning))


@contextmanager
def traffic(desk: Desk) -> Iterator[list[Load]]:
    """The same pace on both, as behind a load balancer; short prompts, so that none is cut in pieces."""
    loads = [Load(server.url, per_second=3.0, max_tokens=24, prompt_bytes=10) for server in desk.servers]
    with loads[0], loads[1]:
        wait_for(lambda: all(len(load.usages) >= 20 for load in loads))
        yield loads


def test_a_plan_is_tried_promoted_and_seen(desk: Desk, record: dict[str, object]) -> None:
    plan = desk.plan("lower", 128)
    began = time.monotonic()
    with traffic(desk) as loads:
        done = desk.run("apply", str(plan), "--yes", "--format", "json", "--config", str(desk.config))
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    outcome = json.loads(done.stdout)
    assert (outcome["state"], outcome["verdict"]) == ("DONE", "not_worse")
    for server in desk.servers:
        row = server.row(BUDGET)
        assert (row["value"], row["expires_in_seconds"]) == (128, None)
        assert server.reset(BUDGET).status_code == 200
    assert [load.failures for load in loads] == [[], []]
    states = [row["state"] for row in desk.audit("lower")]
    assert states[-1] == "DONE"
    assert {"CANARY", "OBSERVE", "PROMOTE", "VERIFY"} <= set(states)
    record["enginetop apply, budget 512 -> 128 on two engines"] = (
        f"{outcome['state']}, {outcome['verdict']}, {time.monotonic() - began:.0f} s, "
        f"{sum(len(load.usages) for load in loads)} requests, none failed"
    )


def test_fewer_drafts_and_back(desk: Desk, record: dict[str, object]) -> None:
    """The engine without speculation is the baseline."""
    server = desk.servers[0]
    plan = desk.plan("drafts", 1, DRAFTS, servers=1)
    with traffic(desk) as loads:
        first = drafts_per_step(server)
        done = desk.run("apply", str(plan), "--yes", "--format", "json", "--config", str(desk.config))
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        assert (server.row(DRAFTS)["value"], server.row(DRAFTS)["expires_in_seconds"]) == (1, None)
        fewer = drafts_per_step(server)
        undone = desk.run("rollback", "drafts", "--yes", "--config", str(desk.config))
        assert undone.returncode == 0, undone.stderr
        assert server.row(DRAFTS)["value"] == 4
        again = drafts_per_step(server)
    # In a short answer often fewer than four tokens stand behind what is found again.
    assert first > 1.5
    assert fewer == 1
    assert again > 1.5
    assert [load.failures for load in loads] == [[], []]
    requests = sum(len(load.usages) for load in loads)
    record["enginetop apply, K 4 -> 1, then rollback: draft tokens a draft"] = (
        f"{first:.2f}, {fewer:.2f}, {again:.2f}; {requests} requests, none failed"
    )


def test_enginetop_is_killed_and_the_engine_goes_back(desk: Desk, record: dict[str, object]) -> None:
    plan = desk.plan("killed", 128)
    canary = desk.servers[0]
    with traffic(desk) as loads:
        controller = subprocess.Popen(
            desk.command("apply", str(plan), "--yes", "--config", str(desk.config)),
            env=desk.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            wait_for(lambda: canary.row(BUDGET)["value"] == 128)
            assert canary.row(BUDGET)["expires_in_seconds"] is not None
        finally:
            controller.send_signal(signal.SIGKILL)
            controller.wait(10)
        killed, start = time.monotonic(), canary.log_size()
        wait_for(lambda: f"{BUDGET} is back at 512" in canary.log()[start:], 32.0)
        back = time.monotonic() - killed
        assert canary.row(BUDGET)["value"] == 512
    assert [load.failures for load in loads] == [[], []]
    assert desk.servers[1].row(BUDGET)["value"] == 512
    record["enginetop killed mid-canary, ttl 30 s: engine back after, s"] = round(back, 1)
    # The next start finds it and concludes it.
    again = desk.run("apply", str(desk.plan("next", 128)), "--dry-run", "--yes", "--config", str(desk.config))
    assert again.returncode == 0, again.stderr


def test_reasoning_is_on_the_snapshot(desk: Desk) -> None:
    with traffic(desk):
        done = desk.run("snapshot", "--samples", "4", "--format", "json", "--config", str(desk.config))
    assert done.returncode == 0, done.stderr
    for replica in json.loads(done.stdout)["replicas"]:
        reasoning = replica["signals"]["reasoning_tokens"]
        assert reasoning["quality"] == "ok"
        assert reasoning["count"] > 0
        assert reasoning["p50"]["value"] > 0
