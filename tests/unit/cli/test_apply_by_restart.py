"""`enginetop apply` on engines that are restarted, and what goes wrong with that: undone, or a page with the
exact command for a person, which works.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
CONTROL = """
[control]
warmup_seconds = 0
restart_warmup_seconds = 5
blocks = 2
block_seconds = 60
ttl_seconds = 30
"""


def command(port: int, *more: str) -> list[str]:
    return [sys.executable, fake_engine.__file__, "--port", str(port), *more]


def seats(url: str) -> int | None:
    """By the engine's own word; None: it does not answer."""
    try:
        return int(httpx.get(f"{url}/seats", timeout=5.0, trust_env=False).text)
    except httpx.HTTPError:
        return None


@contextmanager
def running(port: int) -> Iterator[None]:
    """An engine with 8 seats that nobody restarts."""
    with subprocess.Popen(command(port, "--max-num-seqs=8")) as process:
        try:
            until(lambda: seats(f"http://127.0.0.1:{port}"), "ready")
            yield
        finally:
            process.kill()


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
        return [*argv, "--config", str(self.config), "--interval", "0.3", "--timeout", "30"]

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
    with running(port):
        yield Desk(tmp_path, f"http://127.0.0.1:{port}", capsys)


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


def begin(desk: Desk, *argv: str) -> subprocess.Popen[str]:
    """A command in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "enginetop", *desk.words(*argv)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.verify
def test_enginetop_killed_in_the_midst_of_a_restart_leaves_nothing_behind(desk: Desk) -> None:
    with launched(desk, "--slow-start=1.5") as canary:
        with begin(desk, "apply", plan_of(desk, canary, 16), canary.url, desk.baseline, "--yes") as control:
            canary.wait_for(SEATS, lambda row: row.phase == "restarting", "restarting")
            control.kill()
        assert until(lambda: seats(canary.url), "restarted") == 16
        code, out, err = desk.run("rollback", ID, canary.url, desk.baseline, "--yes")
        assert code == exit_codes.OK, err
        assert "ROLLED_BACK" in out
        assert seats(canary.url) == 8
        row = canary.row(SEATS)
        assert row is not None
        assert (row.value, row.expires_in_seconds) == (8, None)


@pytest.mark.verify
def test_a_disk_that_is_full_in_the_midst_of_a_change_undoes_it(desk: Desk) -> None:
    with launched(desk) as canary:
        plan = plan_of(desk, canary, 16)
        with begin(desk, "apply", plan, canary.url, desk.baseline, "--yes") as control:
            assert control.stderr is not None
            for line in control.stderr:
                if " WARMUP " in line:
                    break
            # no file of that process may grow from here on: neither the audit nor the stored change
            resource.prlimit(control.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
            out, err = control.communicate(timeout=60)
        assert control.returncode == exit_codes.ROLLED_BACK, err
        assert "the state folder cannot be written (File too large)" in out
        assert seats(canary.url) == 8
        # what could not be stored is known to be unfinished, and the next start has nothing left to undo
        code, out, err = desk.run("rollback", ID, canary.url, desk.baseline, "--yes")
        assert (code, seats(canary.url)) == (exit_codes.OK, 8), err


# A file and a hook

HOOK = """#!/bin/sh
[ -e {folder}/broken ] && echo "no way" && exit 1
[ -e {folder}/hangs ] && exec sleep 60
[ -e {folder}/pid ] && kill $(cat {folder}/pid)
{python} {engine} --port {port} --max-num-seqs $(sed 's/.*: //' {folder}/engine.yaml) >/dev/null 2>&1 &
echo $! > {folder}/pid
"""


@contextmanager
def hooked(desk: Desk) -> Iterator[str]:
    """The canary, with 8 seats, restarted by a hook; its address."""
    port = free_port()
    hook = desk.folder / "hook"
    hook.write_text(
        HOOK.format(folder=desk.folder, python=sys.executable, engine=fake_engine.__file__, port=port)
    )
    hook.chmod(0o755)
    (desk.folder / "engine.yaml").write_text("max-num-seqs: 8\n")
    desk.config.write_text(
        f"""{CONTROL}
        [hooks.again]
        command = ["{hook}"]
        timeout_seconds = 3
        [[targets]]
        url = "http://127.0.0.1:{port}"
        restart = {{ file = "{desk.folder}/engine.yaml", hook = "again", engine = "vllm", drain_seconds = 1 }}
        [[targets]]
        url = "{desk.baseline}"
        """
    )
    url = f"http://127.0.0.1:{port}"
    subprocess.run([str(hook)], check=True)
    try:
        until(lambda: seats(url), "ready")
        yield url
    finally:
        os.kill(int((desk.folder / "pid").read_text()), signal.SIGKILL)


@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        ("broken", "hook ended with 1: no way"),
        pytest.param("hangs", "did not end within 3 s", marks=pytest.mark.verify),
    ],
)
def test_a_hook_that_never_works_pages_a_person_with_a_command_that_works(
    desk: Desk, trouble: str, words: str
) -> None:
    with hooked(desk) as url:
        plan = desk.plan(url, f"{desk.folder}/engine.yaml", "file", 16)
        (desk.folder / trouble).touch()
        code, out, _ = desk.run("apply", plan, "--yes")
        assert code == exit_codes.ROLLBACK_FAILED, out
        assert words in out
        code, told = desk.alerts(url)
        assert code == exit_codes.CRITICAL
        assert by_hand(out) in told
        (desk.folder / trouble).unlink()
        (desk.folder / "engine.yaml").write_text("max-num-seqs: 99\n")
        subprocess.run(by_hand(out), shell=True, check=True)
        until(lambda: True if seats(url) == 8 else None, "back with 8")


@pytest.mark.verify
def test_a_file_that_a_killed_enginetop_has_left_behind_is_put_back_by_the_next(desk: Desk) -> None:
    with hooked(desk) as url:
        plan = desk.plan(url, f"{desk.folder}/engine.yaml", "file", 16)
        with begin(desk, "apply", plan, "--yes") as control:
            until(lambda: True if seats(url) == 16 else None, "restarted with 16")
            control.kill()
        code, out, err = desk.run("rollback", ID, "--yes")
        assert code == exit_codes.OK, err
        assert "ROLLED_BACK" in out
        assert (desk.folder / "engine.yaml").read_text() == "max-num-seqs: 8\n"
        assert until(lambda: seats(url), "ready") == 8


# A unit of systemd

SYSTEMCTL = """#!/bin/sh
[ "$1" = --user ] && shift
echo "$1" >> {folder}/calls
case "$1" in
  cat) echo "# {folder}/vllm.service"; echo "[Service]"
       echo "ExecStart=/usr/bin/vllm serve m --max-num-seqs 8";;
  show) echo active;;
esac
"""


def foreign(folder: Path) -> str:
    folder.mkdir(parents=True)
    (folder / "50-enginetop.conf").write_text("[Service]\nNice=5\n")
    return "exists already, and enginetop did not write it"


def no_folder(folder: Path) -> str:
    folder.parent.mkdir(parents=True)
    folder.write_text("not a folder")
    return "50-enginetop.conf: cannot be read"


@pytest.mark.parametrize("obstacle", [foreign, no_folder])
def test_a_drop_in_that_cannot_be_written_refuses_the_change_and_restarts_nothing(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, obstacle: Callable[[Path], str]
) -> None:
    tool = desk.folder / "systemctl"
    tool.write_text(SYSTEMCTL.format(folder=desk.folder))
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(desk.folder), prepend=":")
    words = obstacle(desk.folder / "config" / "systemd" / "user" / "vllm.service.d")
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    desk.config.write_text(
        f"""{CONTROL}
        [[targets]]
        url = "{url}"
        restart = {{ unit = "vllm.service", user = true, drain_seconds = 1 }}
        [[targets]]
        url = "{desk.baseline}"
        """
    )
    before = sorted(desk.folder.glob("config/**/*"))
    with running(port):
        code, out, err = desk.run("apply", desk.plan(url, "vllm.service", "systemd", 16), "--yes")
    assert code == exit_codes.ROLLED_BACK, err
    assert words in out
    assert "restart" not in (desk.folder / "calls").read_text()
    assert sorted(desk.folder.glob("config/**/*")) == before
