"""Restart paths as the config file names them: to the knobs of a target, and what is wrong with the file."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from enginetop.cli import knob_paths
from enginetop.cli.doctor_paths import path_findings
from enginetop.cli.resolve import resolve
from enginetop.cli.settings import Settings
from enginetop.doctor.facts import TargetFacts
from enginetop.doctor.finding import Level
from enginetop.fleet.errors import ConfigError
from enginetop.fleet.knobs import KnobRow
from tests.support import fake_engine
from tests.support.launching import free_port, until
from tuners.control.knob_api import KnobClient

SEATS = "max_num_seqs"
NOTHING = TargetFacts("a", "http://a:1", 2.0)


def settings(tmp_path: Path, text: str) -> Settings:
    path = tmp_path / "config.toml"
    path.write_text(text)
    args = argparse.Namespace(
        config=str(path), interval=None, timeout=None, window=None, slo=None, targets=[]
    )
    return resolve(args, pytest.fail)


def client(found: Settings) -> KnobClient:
    (target,) = found.targets
    made = knob_paths.knob_clients(found, [target])(target.url)
    assert made is not None
    return made


@pytest.fixture
def engine() -> Iterator[int]:
    port = free_port()
    with subprocess.Popen([sys.executable, fake_engine.__file__, "--port", str(port)]) as process:
        yield port
        process.kill()


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


def test_a_file_and_a_named_hook(tmp_path: Path, engine: int) -> None:
    numbers = tmp_path / "engine.yaml"
    numbers.write_text("max-num-seqs: 64\n")
    found = settings(
        tmp_path,
        f"""
        [hooks.again]
        command = ["sh", "-c", "echo $ENGINETOP_TARGET > {tmp_path}/told"]
        [[targets]]
        url = "http://127.0.0.1:{engine}"
        restart = {{ file = "{numbers}", hook = "again", engine = "vllm" }}
        """,
    )
    knobs = client(found)
    sheet = knobs.read().sheet
    assert sheet is not None
    assert (sheet.writer, [(row.name, row.value, row.apply) for row in sheet.knobs]) == (
        "file",
        [(SEATS, 64, "restart")],
    )

    def settled() -> KnobRow | None:
        sheet = client(found).read().sheet  # another client of the same process sees the same engine
        row = sheet.knob(SEATS) if sheet is not None else None
        return row if row is not None and not row.moves else None

    until(lambda: settled() if control_sees(engine) else None, "ready")
    knobs.write(SEATS, 32, if_version=None, ttl_seconds=600.0, change="c", reason="")
    row = until(settled, "restarted")
    assert (row.value, row.note) == (32, "")
    assert numbers.read_text() == "max-num-seqs: 32\n"
    assert (tmp_path / "told").read_text() == f"http://127.0.0.1:{engine}\n"


def control_sees(port: int) -> bool:
    """Whether the engine answers."""
    import httpx

    try:
        return httpx.get(f"http://127.0.0.1:{port}/health", trust_env=False).is_success
    except httpx.HTTPError:
        time.sleep(0.05)
        return False


def test_a_unit_of_the_user_s_own_manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "systemctl"
    tool.write_text(
        "#!/bin/sh\n[ \"$1 $2\" = '--user cat' ] || exit 9\n"
        "echo '# /x/vllm.service'; echo '[Service]'\n"
        "echo 'ExecStart=-/usr/bin/vllm serve m --max-num-seqs 8'\n"
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    found = settings(
        tmp_path,
        '[[targets]]\nurl = "http://127.0.0.1:9"\nrestart = { unit = "vllm.service", user = true }\n',
    )
    sheet = client(found).read().sheet
    assert sheet is not None
    row = sheet.knob(SEATS)
    assert row is not None
    assert (sheet.writer, sheet.instance, row.value) == ("systemd", "vllm.service", 8)


def test_a_path_that_cannot_be_read_says_why_at_every_request(tmp_path: Path) -> None:
    found = settings(
        tmp_path,
        f"""
        [hooks.again]
        command = ["true"]
        [[targets]]
        url = "http://127.0.0.1:9"
        restart = {{ file = "{tmp_path}/none", hook = "again", engine = "vllm" }}
        """,
    )
    for _ in range(2):
        reply = client(found).read()
        assert reply.sheet is None
        assert "none: No such file" in reply.detail


@pytest.mark.parametrize(
    ("restart", "words"),
    [
        ("{ }", "write either unit"),
        ('{ unit = "a.service", file = "x" }', "write either unit"),
        ('{ file = "x", engine = "vllm" }', "a file needs hook"),
        ('{ file = "x", hook = "gone", engine = "vllm" }', "the hook 'gone' is not there"),
        ('{ file = "x", hook = "again" }', "a file needs hook"),
        ('{ unit = "a.service", hook = "again" }', "leave hook out"),
        ('{ unit = "a.service", ready_seconds = 0 }', "ready_seconds"),
        ('{ unit = "a.service", comand = "x" }', "comand"),
    ],
)
def test_a_table_that_cannot_be_used_is_refused_in_one_line(tmp_path: Path, restart: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        settings(
            tmp_path,
            f'[hooks.again]\ncommand = ["true"]\n[[targets]]\nurl = "http://h:1"\nrestart = {restart}\n',
        )
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_doctor_tells_what_a_path_offers_or_why_it_does_not_answer(tmp_path: Path) -> None:
    numbers = tmp_path / "engine.yaml"
    numbers.write_text("max-num-seqs: 64\n")
    text = f"""
        [hooks.again]
        command = ["true"]
        [[targets]]
        url = "http://127.0.0.1:9"
        restart = {{ file = "{numbers}", hook = "again", engine = "vllm" }}
        """
    found = settings(tmp_path, text)
    (finding,) = path_findings(found, found.targets[0], NOTHING)
    assert finding.level is Level.OK
    assert "by file: max_num_seqs 1 to 1048576 requests, restart" in finding.what
    assert "whatever the named hook restarts" in finding.what
    gone = settings(tmp_path, text.replace("engine.yaml", "gone"))
    (finding,) = path_findings(gone, gone.targets[0], NOTHING)
    assert finding.level is Level.WARNING
    assert "gone: No such file" in finding.what
    bare = settings(tmp_path, '[[targets]]\nurl = "http://127.0.0.1:9"\n')
    assert list(path_findings(bare, bare.targets[0], NOTHING)) == []
