"""No telemetry, no update check, nothing looked up that nobody asked for: where each command connects to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from enginetop.simulator.builtin import scenario_named
from enginetop.simulator.simulated_fleet import SimulatedFleet

_LISTENER = """
import json, sys
reached = []
def listen(event, args):
    if event == "socket.connect" and isinstance(args[1], tuple):
        reached.append(["connect", str(args[1][0]), args[1][1]])
    elif event in ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"):
        reached.append(["lookup", str(args[0])])
    elif event in ("socket.sendto", "socket.sendmsg") and isinstance(args[1], tuple):
        reached.append(["send", str(args[1][0]), args[1][1]])
    elif event == "subprocess.Popen":
        reached.append(["program", str(args[0])])
sys.addaudithook(listen)
from enginetop.cli.main import main
codes = []
for words in json.loads(sys.argv[1]):
    try:
        codes.append(main(words))
    except SystemExit as exit:
        codes.append(exit.code)
print("REACHED", json.dumps([codes, reached]), file=sys.stderr)
"""
"""The interpreter's audit events tell every connection, lookup and program, whatever library makes them."""


@pytest.fixture(scope="module")
def fleet() -> Iterator[list[str]]:
    with SimulatedFleet(scenario_named("steady"), 2) as fleet:
        yield [url.removeprefix("http://") for url in fleet.urls]


def reached(tmp_path: Path, *commands: list[str]) -> set[tuple[str, ...]]:
    """What commands connected to, looked up, sent to and started."""
    homes = ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "XDG_CACHE_HOME")
    environment = {name: str(tmp_path) for name in homes}
    ran = subprocess.run(
        [sys.executable, "-c", _LISTENER, json.dumps(commands)],
        cwd=tmp_path,
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            **environment,
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    told = ran.stderr.rpartition("REACHED ")[2]
    codes, found = json.loads(told)
    assert set(codes) <= {0, None}, ran.stderr
    return {tuple(map(str, one)) for one in found}


def at(address: str) -> tuple[str, str, str]:
    host, _, port = address.rpartition(":")
    return ("connect", host, port)


OFFLINE = [
    ["--help"],
    ["--version"],
    ["completion", "bash"],
    ["runbook", "KvPressure"],
    ["rules"],
    ["audit"],
    ["silence", "list"],
    ["demo", "--list"],
    ["snapshot", "--replay", "two.jsonl"],
    ["check", "--replay", "two.jsonl"],
    ["watch", "--replay", "two.jsonl"],
    ["replay", "two.jsonl"],
]


def test_what_needs_nobody_asks_nobody(tmp_path: Path) -> None:
    page = {
        "target": "http://engine.invalid:8000",
        "path": "/metrics",
        "body": "vllm:num_requests_running 1\n",
    }
    lines = "".join(json.dumps({**page, "t": t}) + "\n" for t in (100, 105))
    (tmp_path / "two.jsonl").write_text(lines)
    assert reached(tmp_path, *OFFLINE) == set()


def test_only_the_targets_are_reached(fleet: list[str], tmp_path: Path) -> None:
    quick = [*fleet, "--interval", "0.2"]
    commands = [
        ["snapshot", *quick],
        ["check", *quick],
        ["curve", "--for", "0.5", *quick],
        ["doctor", *fleet],
    ]
    found = reached(tmp_path, *commands)
    assert {one for one in found if one[0] != "lookup"} == {at(address) for address in fleet}
    assert {one[1] for one in found if one[0] == "lookup"} <= {"127.0.0.1"}


def test_the_demo_reaches_its_own_fleet_alone(tmp_path: Path) -> None:
    found = reached(tmp_path, ["demo", "--replicas", "2", "--interval", "0.2"])
    assert {one[1] for one in found} == {"127.0.0.1"}
    assert len({one for one in found if one[0] == "connect"}) == 2


def test_the_listener_hears(tmp_path: Path) -> None:
    """A target that is a name is looked up, and that is heard: the tests above could fail."""
    found = reached(tmp_path, ["snapshot", "localhost:1", "--samples", "1", "--interval", "0.2"])
    assert ("lookup", "localhost") in found
    assert {one[0] for one in found} == {"lookup", "connect"}


@pytest.mark.skipif(os.geteuid() != 0, reason="a network namespace needs root")
def test_it_works_where_there_is_no_network_at_all(tmp_path: Path) -> None:
    """In a namespace whose only interface is its loopback: nothing waits for an answer from elsewhere."""
    home = dict.fromkeys(("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"), str(tmp_path))
    command = f"ip link set lo up && exec {sys.executable} -m enginetop demo --replicas 2 --interval 0.2"
    ran = subprocess.run(
        ["unshare", "--net", "sh", "-c", command],
        env={"PATH": os.environ["PATH"] + ":/usr/sbin:/sbin", **home},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    if "unshare" in ran.stderr or "ip: not found" in ran.stderr:
        pytest.skip(f"no namespace here: {ran.stderr.strip()}")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "2/2 up" in ran.stdout
