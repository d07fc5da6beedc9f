"""The wheels as installed by a stranger, run outside of any checkout."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from enginetop import __version__
from enginetop.simulator.builtin import scenario_named
from enginetop.simulator.simulated_fleet import SimulatedFleet
from tests.support.wheels import COMPANIONS, ROOT, Installed, build, install

_PATIENCE_SECONDS = 30.0


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("installed")
    projects = (ROOT, *(ROOT / "companions" / name for name in COMPANIONS))
    return install(folder, *(build(project, folder / "wheels") for project in projects))


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with SimulatedFleet(scenario_named("steady"), 1) as fleet:
        yield fleet.urls[0]


def test_it_is_the_wheel_that_runs(installed: Installed) -> None:
    """Our five packages and the companions' three come from the environment, not from the checkout."""
    ours = ["enginetop", "tui", "collectors", "tuners", "themes"]
    names = [*ours, "enginetop_companion", "enginetop_companion_vllm", "enginetop_companion_sglang"]
    program = f"import {', '.join(names)}; print(*({', '.join(f'{name}.__file__' for name in names)},))"
    ran = installed.run("python", "-c", program)
    assert {Path(path).parents[1] for path in ran.stdout.split()} == {installed.packages}, ran.stderr


def test_version(installed: Installed) -> None:
    ran = installed.run("enginetop", "--version")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, f"enginetop {__version__}\n", "")


def test_snapshot_of_an_engine(installed: Installed, address: str) -> None:
    ran = installed.run("enginetop", "snapshot", address, "--interval", "0.2")
    assert (ran.returncode, ran.stderr) == (0, "")
    document = json.loads(ran.stdout)
    assert [(one["engine"], one["state"]) for one in document["replicas"]] == [("vllm", "ok")]


def test_demo_without_a_terminal_is_a_table(installed: Installed) -> None:
    ran = installed.run("enginetop", "demo", "--replicas", "2", "--interval", "0.2")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "SIMULATED" in ran.stdout
    assert ran.stdout.count("Qwen3-32B") >= 1


def test_first_paint_on_a_terminal(installed: Installed) -> None:
    """The screen comes up with its styles and themes, and `q` ends it."""
    leader, follower = pty.openpty()
    fcntl.ioctl(leader, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 120, 0, 0))
    app = subprocess.Popen(
        [
            str(installed.bin / "enginetop"),
            "demo",
            "--replicas",
            "2",
            "--interval",
            "0.2",
            "--theme",
            "light",
        ],
        cwd=installed.elsewhere,
        env={**installed.environment(), "LANG": "C.UTF-8"},
        stdin=follower,
        stdout=follower,
        stderr=follower,
        start_new_session=True,
    )
    os.close(follower)
    drawn = b""
    try:
        drawn = _until(leader, b"2/2 up", drawn)
        os.write(leader, b"q")
        _until(leader, b"\x1b[?1049l", drawn)
        assert app.wait(_PATIENCE_SECONDS) == 0
    finally:
        app.kill()
        app.wait()
        os.close(leader)


def _until(terminal: int, words: bytes, drawn: bytes) -> bytes:
    """What was drawn once the words are among it."""
    until = time.monotonic() + _PATIENCE_SECONDS
    while words not in drawn:
        assert time.monotonic() < until, drawn[-2000:]
        if select.select([terminal], [], [], 0.2)[0]:
            try:
                drawn += os.read(terminal, 1 << 16)
            except OSError:  # the other end is closed
                raise AssertionError(drawn[-2000:]) from None
    return drawn
