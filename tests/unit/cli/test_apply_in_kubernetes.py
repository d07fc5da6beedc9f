"""`enginetop apply` and `rollback` on a cluster over HTTP whose pods are simulated engines, much faster
than the clock: a change that is proven, and one whose controller is killed.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from enginetop import __version__
from enginetop.cli import control_settings, exit_codes
from enginetop.cli.main import main
from enginetop.fleet.plan import Plan, plan_text
from tests.support.fake_kubernetes import TOKEN, FakeKubernetes, Item, serving
from tests.support.pod_world import PodWorld
from tuners.control.settings import ControlSettings

OLD, NEW = 512, 2048
TICK_SECONDS = 0.15
LONGEST_SECONDS = 120.0
CONFIG = """
interval_seconds = 0.5
timeout_seconds = 10
window_seconds = 3

[[discovery]]
kind = "kubernetes"
knobs = "owner"

[control]
warmup_seconds = 1
restart_warmup_seconds = 3
blocks = 8
block_seconds = 1
ttl_seconds = 30
"""


class LockedFake(FakeKubernetes):
    """A fake that several threads use."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.RLock()

    def answer(
        self, method: str, path: str, query: Mapping[str, str], body: Any, content_type: str = ""
    ) -> Item | Iterator[Item]:
        with self.lock:
            return super().answer(method, path, query, body, content_type)


class Desk:
    """A cluster that lives, and what a person has: kubeconfig, config file, state folder."""

    def __init__(self, folder: Path, fake: LockedFake, server: str) -> None:
        self.world = PodWorld(folder, fake=fake, server=server)
        self.world.deploy("chat", OLD, 2)
        self.world.settle()
        self.config = folder / "config.toml"
        self.config.write_text(CONFIG)
        self._plan = folder / "plan.json"
        self._fake = fake
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._live, daemon=True)
        self._thread.start()

    def plan(self) -> Plan:
        """A plan as `tune` would have written it now, in its file."""
        with self._fake.lock:
            made = self.world.plan(NEW)
        now = time.time()
        plan = replace(made, created=now, expires=now + 600.0, tool_version=__version__)
        self._plan.write_text(plan_text(plan))
        return plan

    def words(self, *argv: str) -> list[str]:
        return [*argv, "--yes", "--config", str(self.config)]

    @property
    def apply(self) -> list[str]:
        return self.words("apply", str(self._plan))

    def values(self) -> list[int | None]:
        with self._fake.lock:
            return sorted(self.world.running().values(), key=str)

    def siblings(self) -> list[str]:
        with self._fake.lock:
            return self.world.siblings()

    def close(self) -> None:
        self._ended.set()
        self._thread.join()

    def _live(self) -> None:
        while not self._ended.wait(TICK_SECONDS):
            with self._fake.lock:
                self.world.advance()
                for _, _, namespace, name in self._fake.keys("pods"):
                    self._fake.pages[namespace, name, 8000] = self._page(name)

    def _page(self, name: str) -> Callable[[str], tuple[int, bytes]]:
        def page(path: str) -> tuple[int, bytes]:
            with self._fake.lock:
                return self.world.page(name, path)

        return page


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    fake = LockedFake()
    with serving(fake) as server:
        kubeconfig = tmp_path / "kubeconfig"
        context = {"cluster": "c", "user": "u", "namespace": "llm"}
        kubeconfig.write_text(
            yaml.safe_dump(
                {
                    "current-context": "prod",
                    "contexts": [{"name": "prod", "context": context}],
                    "clusters": [{"name": "c", "cluster": {"server": server}}],
                    "users": [{"name": "u", "user": {"token": TOKEN}}],
                }
            )
        )
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
        for variable, folder in (("STATE_HOME", "state"), ("RUNTIME_DIR", "run"), ("CONFIG_HOME", "none")):
            monkeypatch.setenv(f"XDG_{variable}", str(tmp_path / folder))
        made = Desk(tmp_path, fake, server)
        try:
            yield made
        finally:
            made.close()


def until(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + LONGEST_SECONDS
    while not condition():
        assert time.monotonic() < end, f"never {what}"
        time.sleep(0.05)


@pytest.mark.verify
def test_a_change_is_proven_by_a_sibling_and_goes_to_all_pods(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(control_settings, "ControlSettings", partial(ControlSettings, soak_seconds=1.0))
    plan = desk.plan()
    assert main(desk.apply) == exit_codes.OK, capsys.readouterr().err
    printed = capsys.readouterr()
    assert f"change {plan.id}: DONE (improved)" in printed.out
    assert "one new replica beside llm/Deployment/chat" in printed.err
    until(lambda: desk.values() == [NEW, NEW], "without the sibling")
    assert desk.siblings() == []
    assert TOKEN not in printed.out + printed.err


def test_a_controller_that_is_killed_leaves_a_sibling_that_the_next_start_takes_away(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = desk.plan()
    with subprocess.Popen(
        [sys.executable, "-m", "enginetop", *desk.apply], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        until(lambda: desk.siblings() != [] or process.poll() is not None, "a sibling")
        process.send_signal(signal.SIGKILL)
    assert desk.siblings() == [f"chat-canary-{plan.id}"]
    until(lambda: NEW in desk.values(), "the sibling's pod: the cluster goes on without us")
    assert main(desk.words("rollback", plan.id)) == exit_codes.OK
    assert f"change {plan.id}: ROLLED_BACK" in capsys.readouterr().out
    assert desk.siblings() == []
    until(lambda: desk.values() == [OLD, OLD], "without the sibling's pod")
