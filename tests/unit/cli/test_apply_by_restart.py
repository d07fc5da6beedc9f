"""`enginetop apply` on engines that are restarted, and what goes wrong with that: undone, or a page with the
exact command for a person, which works.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from enginetop import __version__
from enginetop.cli import exit_codes
from enginetop.cli.main import main
from enginetop.fleet.plan import Plan, PlannedChange, Scope, plan_text
from tests.support import fake_engine
from tests.support.launching import Launched, free_port, launching, until

SEATS = "max_num_seqs"
ID = "c0ffee"
CONTROL = "[control]\nwarmup_seconds = 0\nrestart_warmup_seconds = 1\nblocks = 2\nblock_seconds = 1\nttl_seconds = 30\n"


def command(port: int, *more: str) -> list[str]:
    return [sys.executable, fake_engine.__file__, "--port", str(port), *more]


def seats(url: str) -> int | None:
    """By the engine's own word; None: it does not answer."""
    try:
        return int(httpx.get(f"{url}/seats", timeout=5.0, trust_env=False).text)
    except httpx.HTTPError:
        return None


class Desk:
    """A person's folders, a baseline that nobody touches, and the config file."""

    def __init__(self, folder: Path, baseline: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.baseline = baseline
        self._capsys = capsys
        self.config = folder / "config.toml"
        self.config.write_text(CONTROL)

    def plan(self, target: str, instance: str, via: str, after: int, before: int = 8) -> str:
        path = self.folder / "plan.json"
        change = PlannedChange(target, instance, SEATS, before, after, via=via)
        now = time.time()
        scope = Scope("m", "aggregated", target)
        path.write_text(plan_text(Plan(ID, now, now + 600, __version__, "e" * 64, scope, (change,))))
        return str(path)

    def words(self, *argv: str) -> list[str]:
        return [*argv, "--config", str(self.config), "--interval", "0.3"]

    def run(self, *argv: str) -> tuple[int, str, str]:
        """Exit code, stdout, stderr of one command."""
        self._capsys.readouterr()
        code = main(self.words(*argv))
        printed = self._capsys.readouterr()
        return code, printed.out, printed.err

    def alerts(self, target: str) -> tuple[int, str]:
        """What a check of the fleet says, and its exit code."""
        code, out, _ = self.run("check", target, self.baseline)
        return code, out


@pytest.fixture
def desk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Desk]:
    for variable, folder in (("STATE_HOME", "state"), ("RUNTIME_DIR", "run"), ("CONFIG_HOME", "config")):
        monkeypatch.setenv(f"XDG_{variable}", str(tmp_path / folder))
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
    port = free_port()
    with subprocess.Popen(command(port)) as process:
        url = f"http://127.0.0.1:{port}"
        until(lambda: seats(url), "ready")
        yield Desk(tmp_path, url, capsys)
        process.kill()


@contextmanager
def launched(desk: Desk, *more: str) -> Iterator[Launched]:
    """The canary, with 8 seats, behind a launcher."""
    port = free_port()
    options = ("--engine", "vllm", "--drain", "1", "--ready", "20")
    with launching(desk.folder, port, command(port, "--max-num-seqs=8", *more), *options) as found:
        until(lambda: seats(found.url), "ready")
        yield found


def plan_of(desk: Desk, found: Launched, after: int) -> str:
    sheet = found.client.read().sheet
    assert sheet is not None
    return desk.plan(found.url, sheet.instance, "process", after)


def by_hand(text: str) -> str:
    """The command that a person is told to run."""
    return text.partition("; by hand: ")[2].splitlines()[0]


def test_an_engine_that_does_not_start_with_the_new_value_is_back_with_the_former(desk: Desk) -> None:
    with launched(desk) as canary:
        plan = plan_of(desk, canary, fake_engine.UNLUCKY)
        code, out, _ = desk.run("apply", plan, canary.url, desk.baseline, "--yes")
        assert code == exit_codes.ROLLED_BACK, out
        assert "max_num_seqs 13 did not work: it ended with exit code 3" in out
        assert seats(canary.url) == 8
        code, out = desk.alerts(canary.url)
        assert "CanaryFailed" in out


def test_an_engine_that_does_not_come_back_pages_a_person_with_a_command_that_works(desk: Desk) -> None:
    doomed = desk.folder / "doomed"
    with launched(desk, "--doomed", str(doomed)) as canary:
        doomed.touch()
        plan = plan_of(desk, canary, 16)
        code, out, _ = desk.run("apply", plan, canary.url, desk.baseline, "--yes")
        assert code == exit_codes.ROLLBACK_FAILED, out
        code, told = desk.alerts(canary.url)
        assert code == exit_codes.CRITICAL
        assert "RollbackFailed" in told
        assert by_hand(out) in told
        doomed.unlink()
        # the launcher that failed is still there to tell why; the new one takes its place
        with subprocess.Popen(by_hand(out), shell=True, start_new_session=True) as again:
            try:
                assert until(lambda: seats(canary.url), "back") == 8
                assert canary.process.wait(30) == 0
            finally:
                os.killpg(again.pid, signal.SIGTERM)
