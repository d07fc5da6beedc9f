"""`enginetop apply` on workers of a real Dynamo: more seats where requests wait, seen and audited."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from collectors.control_http import HttpKnobTransport
from collectors.discovery.dynamo_folder import taints_of
from collectors.fetch import NO_CREDENTIALS
from enginetop import __version__
from enginetop.cli.engine_apis import board as board_of
from enginetop.fleet.knobs import KnobAnswer
from enginetop.fleet.plan import Plan, PlannedChange, Scope, plan_text
from enginetop.fleet.restart_tables import EngineApiTable
from tests.dynamo.fleet import MODEL
from tests.dynamo.installation import install
from tests.dynamo.tunable_fleet import TunableFleet, TunableWorker
from tests.vllm.load import Load
from tests.vllm.server import wait_for
from tuners.control.restartable import Load as Requests
from tuners.control.stock.exchange import StockError, ask

pytestmark = [pytest.mark.dynamo, pytest.mark.timeout(600)]

SEATS = "max_num_seqs"
FEW, MANY = 4, 32
CLIENTS = 24
Look = list[tuple[float, float]]
"""Running and waiting requests of each worker."""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TunableFleet]:
    with TunableFleet(install(), tmp_path_factory.mktemp("tunable"), seats=FEW) as running:
        yield running


def configured(fleet: TunableFleet, folder: Path) -> Path:
    targets = "".join(
        f'[[targets]]\nurl = "{one.url}"\ncontrol_url = "{one.knobs}"\n'
        f'control_token_file = "{one.token_file}"\n'
        for one in fleet.tunable
    )
    config = folder / "config.toml"
    config.write_text(f"""
interval_seconds = 1.0
timeout_seconds = 10.0
window_seconds = 10.0
{targets}
[[slo]]
model = "*"
ttft_seconds = 1.0
tpot_seconds = 0.2
[control]
warmup_seconds = 4.0
blocks = 12
block_seconds = 3.0
margin = 0.1
ttl_seconds = 30.0
accept_open_admin = true    # a worker's system port has no key in any version of Dynamo
""")
    return config


def planned(fleet: TunableFleet, folder: Path) -> Path:
    changes = tuple(
        PlannedChange(one.url, one.row()["instance"], SEATS, before=FEW, after=MANY) for one in fleet.tunable
    )
    now = time.time()
    plan = Plan(
        id="more-seats",
        created=now,
        expires=now + 600,
        tool_version=__version__,
        evidence_hash="0" * 64,
        scope=Scope(model=MODEL, role="aggregated", canary=changes[0].target),
        changes=changes,
    )
    file = folder / "plan.json"
    file.write_text(plan_text(plan))
    return file


def enginetop(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "enginetop", *words],
        env=os.environ | {"XDG_STATE_HOME": str(folder / "state"), "XDG_RUNTIME_DIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )


def first_tokens(fleet: TunableFleet, requests: int = 9) -> float:
    """The median time to the first token (seconds) of requests sent beside the load, one after the other."""
    body = {"model": MODEL, "stream": True, "max_tokens": 2, "messages": [{"role": "user", "content": "x"}]}
    times = []
    for _ in range(requests):
        began = time.monotonic()
        with httpx.stream("POST", f"{fleet.frontend}/v1/chat/completions", json=body, timeout=60) as answer:
            next(answer.iter_lines())
            times.append(time.monotonic() - began)
    return statistics.median(times)


def gauge(worker: TunableWorker, name: str) -> float:
    page = httpx.get(f"{worker.url}/metrics", timeout=10.0).text
    (line,) = (line for line in page.splitlines() if line.startswith(f"vllm:{name}{{"))
    return float(line.rpartition(" ")[2])


def busy(fleet: TunableFleet) -> Look:
    names = ("num_requests_running", "num_requests_waiting")
    return [(gauge(one, names[0]), gauge(one, names[1])) for one in fleet.tunable]


def crowded(look: Look) -> bool:
    return all(running == FEW and waiting > 0 for running, waiting in look)


def roomy(look: Look) -> bool:
    """More run than there were seats, and none waits."""
    return sum(running for running, _ in look) > 2 * FEW and not any(waiting for _, waiting in look)


def first_look(fleet: TunableFleet, wanted: Callable[[Look], bool]) -> Look:
    """The first of which that holds: clients whom the machine starves leave seats empty in many."""
    looks: list[Look] = []

    def found() -> bool:
        looks.append(busy(fleet))
        return wanted(looks[-1])

    wait_for(found)
    return looks[-1]


def test_more_seats_are_tried_seen_audited_and_shorten_the_wait(
    fleet: TunableFleet, tmp_path: Path, record: dict[str, object]
) -> None:
    config, plan = configured(fleet, tmp_path), planned(fleet, tmp_path)
    with Load(fleet.frontend, concurrency=CLIENTS, max_tokens=20) as load:
        crowd = first_look(fleet, crowded)
        before = first_tokens(fleet)
        done = enginetop(tmp_path, "apply", str(plan), "--yes", "--format", "json", "--config", str(config))
        after = first_tokens(fleet)
        space = first_look(fleet, roomy)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    outcome = json.loads(done.stdout)
    assert (outcome["state"], outcome["verdict"]) == ("DONE", "improved")
    assert load.failures == []
    for one in fleet.tunable:
        assert (one.row()["value"], one.row()["expires_in_seconds"]) == (MANY, None)
    assert after < before / 2
    rows = audited(tmp_path)
    assert rows[-1]["state"] == "DONE"
    assert {"CANARY", "OBSERVE", "PROMOTE", "VERIFY"} <= {row["state"] for row in rows}
    assert "effect seen on 2 of 2" in rows[-1]["detail"]
    record[f"two workers, {CLIENTS} clients, max_num_seqs {FEW} -> {MANY} by enginetop apply"] = (
        f"{outcome['state']}, {outcome['verdict']}; TTFT p50 {1000 * before:.0f} -> {1000 * after:.0f} ms; "
        f"running/waiting {crowd} -> {space}; {len(load.usages)} requests, none failed; {rows[-1]['detail']}"
    )


def audited(folder: Path) -> list[dict[str, Any]]:
    done = enginetop(folder, "audit", "--format", "json")
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_refusal_of_a_real_worker_is_200_and_is_not_believed(fleet: TunableFleet) -> None:
    transport = HttpKnobTransport(fleet.tunable[0].url, NO_CREDENTIALS)
    path, body = "/engine/control/set_limits", {SEATS: 900}
    answer = transport.request("POST", path, json.dumps(body).encode())
    assert isinstance(answer, KnobAnswer)
    assert (answer.status, json.loads(answer.body)["status"]) == (200, "error")
    with pytest.raises(StockError, match="answered 200, and max_num_seqs: 900 is not within 1 to 64"):
        ask(transport, "POST", path, body)
    with pytest.raises(StockError, match="answered HTTP 404"):
        ask(transport, "POST", "/engine/control/nonsense", {})


@pytest.fixture
def routed_fleet(tmp_path: Path) -> Iterator[TunableFleet]:
    """Only the KV router looks at taints."""
    with TunableFleet(install(), tmp_path / "routed", seats=FEW, router="kv") as running:
        yield running


def test_a_taint_is_read_back_from_the_card_and_honoured_by_the_router(
    routed_fleet: TunableFleet, tmp_path: Path, record: dict[str, object]
) -> None:
    fleet, (first, second) = routed_fleet, routed_fleet.tunable
    set_taints(second, ["held"])
    set_taints(first, ["theirs"])
    table = EngineApiTable(path="dynamo_taint", taint="held", cards=str(fleet.store))
    transport = HttpKnobTransport(first.url, NO_CREDENTIALS)
    board = board_of(
        table, transport, lambda: Requests(ready=True, requests=0), wanted=tmp_path / "w", address=first.url
    )
    assert board.sheet(0.0).knobs[0].value == 0
    set_taints(second, [])
    assert board.patch("tainted", 1, if_version=None, ttl_seconds=60.0, change="c", now=0.0).status == 200
    worker = board.sheet(0.0).instance
    assert taints_of(fleet.store, worker) == frozenset({"held", "theirs"})
    chosen = [routed(fleet, required_taints=["held"]) for _ in range(12)]
    assert set(chosen) == {int(worker, 16)}
    anywhere = {routed(fleet) for _ in range(12)}  # requests that name no taint: whoever has room
    assert board.sheet(61.0).knobs[0].value == 0  # the loan is over
    assert taints_of(fleet.store, worker) == frozenset({"theirs"})
    set_taints(second, ["held"])
    others = [routed(fleet, required_taints=["held"]) for _ in range(12)]
    assert len(set(others)) == 1
    assert int(worker, 16) not in others
    record["a taint on one of two workers: requests that require it, workers that others go to"] = (
        f"{len(chosen)} of 12 to that worker, then {len(others)} of 12 to the other one; {len(anywhere)}"
    )


def set_taints(worker: TunableWorker, taints: list[str]) -> None:
    answer = httpx.post(f"{worker.url}/engine/update/model_taints", json={"taints": taints}, timeout=10.0)
    assert answer.json() == {"status": "ok", "taints": taints}


def routed(fleet: TunableFleet, **constraints: object) -> int:
    """The worker that served a request; 0: none may."""
    body = {
        "model": MODEL,
        "max_tokens": 1,
        "messages": [{"role": "user", "content": "x"}],
        "nvext": {"extra_fields": ["worker_id"]}
        | ({"routing_constraints": constraints} if constraints else {}),
    }
    answer = httpx.post(f"{fleet.frontend}/v1/chat/completions", json=body, timeout=60.0)
    return int(answer.json()["nvext"]["worker_id"]["decode_worker_id"]) if answer.status_code == 200 else 0
