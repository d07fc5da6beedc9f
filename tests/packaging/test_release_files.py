"""What a release has beside the wheel: locks, container file, unit, the texts that strangers look for."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from enginetop import __version__
from enginetop.cli.parser import parse
from tests.support.wheels import COMPANIONS, ROOT

UNIT = ROOT / "docs" / "systemd" / "enginetop-watch.service"
CONTAINER = (ROOT / "Containerfile").read_text(encoding="utf-8")


def pins(name: str) -> dict[str, set[str]]:
    """The hashes of every pin of a lock."""
    text = (ROOT / "requirements" / name).read_text(encoding="utf-8")
    blocks = re.findall(r"^([a-z0-9-]+==[^\s;]+)[^\n]*\n((?:    --hash=.*\n)+)", text, re.M)
    assert len(blocks) == len(re.findall(r"^[a-z0-9-]+==", text, re.M)), "a pin without hashes"
    return {pin: set(re.findall(r"sha256:[0-9a-f]{64}", hashes)) for pin, hashes in blocks}


def required() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return {re.split(r"[<>=!~\[; ]", one)[0] for one in project["dependencies"]}


def test_what_runs_is_what_was_tested() -> None:
    """The lock of users: part of that of the tests, every dependency there, every pin hashed, no tool."""
    run, ci = pins("run.txt"), pins("ci.txt")
    assert {pin: ci.get(pin) for pin in run} == run
    names = {pin.partition("==")[0] for pin in run}
    assert required() <= names
    assert not names & {"pytest", "mypy", "ruff", "hypothesis", "numpy", "xllamacpp"}


def test_the_versions_agree() -> None:
    for project in (ROOT, *(ROOT / "companions" / name for name in COMPANIONS)):
        told = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        assert told["version"] == __version__, project
        assert (told["requires-python"], told["license"]) == (">=3.11", "Apache-2.0")
    newest = re.search(
        r"^## (\S+) \((unreleased|\d{4}-\d\d-\d\d)\)$", (ROOT / "CHANGELOG.md").read_text(), re.M
    )
    assert newest is not None
    assert newest[1] == __version__


def test_the_licence_is_the_one_that_is_named() -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text
    assert "Version 2.0, January 2004" in text


def steps(keyword: str) -> list[str]:
    joined = CONTAINER.replace("\\\n", " ")
    return [line.partition(" ")[2].strip() for line in joined.splitlines() if line.startswith(f"{keyword} ")]


def test_the_container_copies_only_what_there_is() -> None:
    """And what the ignore file lets in; the wheel is there after `uv build`."""
    sources = [word for step in steps("COPY") if "--from" not in step for word in step.split()[:-1]]
    assert sources == ["requirements/run.txt", "dist/enginetop-*.whl"]
    assert (ROOT / "requirements" / "run.txt").exists()
    for name in (".containerignore", ".dockerignore"):
        assert (ROOT / name).read_text().split() == ["*", *(f"!{source}" for source in sources)]


def test_the_container_is_locked_and_nobody_in_particular() -> None:
    (run,) = steps("RUN")
    installs = [step for step in run.split("&&") if " install " in step and "pip" in step]
    assert all({"--require-hashes", "--no-index"} & set(shlex.split(step)) for step in installs)
    (user,) = steps("USER")
    assert all(int(part) > 0 for part in user.split(":"))
    assert steps("ENTRYPOINT") == ['["enginetop"]']


def test_commands_of_the_container_file_are_taken() -> None:
    text = re.sub(r"\\\n#\s*", "", CONTAINER)
    commands = re.findall(r"^# +podman run .*? enginetop (.*)$", text, re.M)
    assert len(commands) == 3
    for command in commands:
        parse(shlex.split(command))


def test_the_unit_starts_what_the_parser_takes() -> None:
    (line,) = re.findall(r"^ExecStart=enginetop (.*)$", UNIT.read_text(encoding="utf-8"), re.M)
    command, args = parse(shlex.split(line))
    assert (command.name, args.listen) == ("watch", "127.0.0.1:9464")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze here")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    program = Path(sys.executable).parent / "enginetop"
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text(encoding="utf-8").replace("ExecStart=enginetop", f"ExecStart={program}"))
    ran = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, timeout=60
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
