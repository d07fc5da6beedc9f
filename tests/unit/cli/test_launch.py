"""`enginetop launch` as a process: its engine comes back, or does not, or is gone; what it tells."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import sys
from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest

from enginetop.cli import exit_codes
from enginetop.cli.main import main
from tests.support import fake_engine
from tests.support.launching import Launched, free_port, launching, until

SEATS = "max_num_seqs"


def command(port: int, *more: str) -> Sequence[str]:
    return [sys.executable, fake_engine.__file__, "--port", str(port), *more]


def ask(launched: Launched, path: str, method: str = "GET") -> str | None:
    """The engine's answer; None: it does not answer."""
    try:
        return httpx.request(method, launched.url + path, timeout=5.0, trust_env=False).text
    except httpx.HTTPError:
        return None


def test_bad_values_cut_short_trials_and_an_end_of_its_own(tmp_path: Path) -> None:
    port = free_port()
    options = ("--engine", "vllm", "--drain", "1", "--ready", "30")
    with launching(tmp_path, port, command(port, "--api-key=s3cret", "--max-num-seqs=8"), *options) as found:
        until(lambda: ask(found, "/seats"), "ready")
        assert stat.S_IMODE(found.socket.stat().st_mode) == 0o600
        record = (tmp_path / "state" / "enginetop" / "launch" / f"{port}.json").read_text()
        assert "s3cret" not in record
        assert "--api-key=***" in record
        # a value that it does not start with
        assert found.put(SEATS, fake_engine.UNLUCKY) == "ok"
        row = found.wait_for(SEATS, lambda row: not row.moves, "settled")
        assert (row.value, row.phase) == (8, "")
        assert "max_num_seqs 13 did not work: it ended with exit code 3" in row.note
        assert ask(found, "/seats") == "8"
        # requests that do not end
        ask(found, "/running/5", "POST")
        assert found.put(SEATS, 16) == "ok"
        row = found.wait_for(SEATS, lambda row: not row.moves, "given up")
        assert (row.value, row.note) == (8, "5 requests still ran after 1 s; nothing was restarted")
        ask(found, "/running/0", "POST")
        # a trial that nobody renews
        assert found.put(SEATS, 16, 1.0) == "ok"
        until(lambda: ask(found, "/seats") == "16" or None, "restarted")
        until(lambda: ask(found, "/seats") == "8" or None, "taken back")
        found.wait_for(SEATS, lambda row: not row.moves, "settled")
        # the end of the engine is ours
        ask(found, "/exit/7", "POST")
        assert found.process.wait(30) == 7
        assert not found.socket.exists()


@pytest.mark.parametrize(
    ("url", "port"), [("http://127.0.0.1", 80), ("https://[::1]", 443), ("http://127.0.0.1:8001/v1", 8001)]
)
def test_a_launcher_is_known_by_the_port_of_its_engine_also_where_none_is_written(
    url: str, port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert main(["launch", "--url", url, "--", str(tmp_path / "vllm"), "serve"]) == exit_codes.USAGE
    assert [one.name for one in (tmp_path / "enginetop" / "launch").iterdir()] == [f"{port}.lock"]


def test_what_cannot_be_launched_is_said_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for given, words in (
        (["launch"], "no command; write: enginetop launch -- vllm serve"),
        (["launch", "--", "bash", "-c", "vllm serve m"], "bash: not a command of an engine that is known"),
        *(
            (["launch", "--", "vllm", "serve", "m", "--port", port], f"the engine's --port {port} is no port")
            for port in ("abc", "0", "65536", "²")
        ),
        (["launch", "--", str(tmp_path / "vllm"), "serve"], "cannot be started"),
        (["launch", "--", str(tmp_path / "vllm"), f"--speculative-config={'{}':>256}"], "cannot be started"),
    ):
        assert main(given) == exit_codes.USAGE
        told = capsys.readouterr().err
        assert words in told
        assert told.count("\n") == 1


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="no setpriv here")
def test_a_second_launcher_is_refused_and_no_engine_outlives_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    port = free_port()
    with launching(tmp_path, port, command(port), "--engine", "vllm") as found:
        pid = int(until(lambda: ask(found, "/pid"), "ready"))
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        again = ["launch", "--engine", "vllm", "--url", found.url, "--", *command(port)]
        assert main(again) == exit_codes.USAGE
        assert f"port {port} has a launcher already" in capsys.readouterr().err
        found.process.send_signal(signal.SIGKILL)
        found.process.wait(30)
        until(lambda: None if _lives(pid) else True, "gone with its launcher")


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return not Path(f"/proc/{pid}/stat").read_text().partition(") ")[2].startswith("Z")
