"""Completions: written from the parser, asked of the shells themselves."""

from __future__ import annotations

import argparse
import os
import pty
import select
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from enginetop.alerts.builtin import BUILTIN_NAMES
from enginetop.cli.completion import completion
from enginetop.cli.main import main
from enginetop.cli.parser import COMMANDS, Command

SHELLS = ("bash", "zsh", "fish")
NAMES = {command.name for command in COMMANDS}


def needs(shell: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(shell) is None, reason=f"there is no {shell} here")


def options(command: Command) -> set[str]:
    """As argparse has them."""
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return {flag for action in parser._actions for flag in action.option_strings}


ASKED: dict[str, set[str]] = {
    "sna": {"snapshot"},
    "re": {"record", "replay"},
    "snapshot --format ": {"json", "table", "prometheus"},
    "snapshot 10.0.0.1:8000 --format t": {"table"},
    "watch --format ": {"ndjson", "table"},
    "silence ": {"add", "list", "expire"},
    "silence add --rule Kv": {"KvPressure"},
    "demo --scenario kv": {"kv-pressure"},
    "demo --theme de": {"deuteranopia"},
    "completion ": set(SHELLS),
    "replay inc": {"inc.jsonl.gz"},
    "apply pl": {"plan.json"},
    "tune --plan pl": {"plan.json"},
    "check --config fl": {"fleet.toml"},
    "tune --what-if max_num_s": {"max_num_seqs="},
    "snapshot --interval ": set(),
    "snapshot 10": set(),
    "record -o pl": {"plan.json"},
}
"""What follows `enginetop `, and what can stand in the place of its last word."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("inc.jsonl.gz", "plan.json", "fleet.toml"):
        (tmp_path / name).touch()
    for shell in SHELLS:
        (tmp_path / f".{shell}").write_text(completion(shell))
    return tmp_path


def of_bash(folder: Path, lines: Iterable[str]) -> list[set[str]]:
    """What bash's function answers, the words taken apart as bash does."""
    script = [f"source {folder}/.bash", "compopt() { :; }"]
    for line in lines:
        words = ["enginetop", *line.split(" ")]
        script += [
            f"COMP_WORDS=({' '.join(shlex.quote(word) for word in words)}) COMP_CWORD={len(words) - 1}",
            "_enginetop",
            'printf "%s " "${COMPREPLY[@]}"; echo',
        ]
    ran = subprocess.run(
        ["bash", "-c", "\n".join(script)], cwd=folder, capture_output=True, text=True, timeout=30
    )
    assert ran.stderr == ""
    return [set(line.split()) for line in ran.stdout.split("\n")[:-1]]


def of_fish(folder: Path, lines: Iterable[str]) -> list[set[str]]:
    script = [f"source {folder}/.fish"]
    for line in lines:
        script += [f"complete -C {shlex.quote(f'enginetop {line}')}", "echo ---"]
    environment = {
        **os.environ,
        "HOME": str(folder),
        "XDG_CONFIG_HOME": str(folder),
        "XDG_DATA_HOME": str(folder),
    }
    ran = subprocess.run(
        ["fish", "--no-config", "-c", "\n".join(script)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert ran.stderr == ""
    answers = ran.stdout.split("---\n")[:-1]
    return [{line.partition("\t")[0] for line in answer.splitlines()} for answer in answers]


@pytest.mark.parametrize(
    "ask", [pytest.param(of_bash, marks=needs("bash")), pytest.param(of_fish, marks=needs("fish"))]
)
def test_values_that_are_known_are_offered(ask: object, folder: Path) -> None:
    assert callable(ask)
    assert dict(zip(ASKED, ask(folder, ASKED), strict=True)) == ASKED


@pytest.mark.parametrize(
    "ask", [pytest.param(of_bash, marks=needs("bash")), pytest.param(of_fish, marks=needs("fish"))]
)
def test_every_option_of_every_command_is_offered(ask: object, folder: Path) -> None:
    assert callable(ask)
    found = dict(zip(NAMES, ask(folder, [f"{name} -" for name in NAMES]), strict=True))
    for command in COMMANDS:
        assert {flag for flag in found[command.name] if flag.startswith("--")} == {
            flag for flag in options(command) if flag.startswith("--")
        }


@needs("bash")
def test_words_that_bash_takes_apart(folder: Path) -> None:
    lines = ["snapshot --format = t", "snapshot --discover file_sd : fl", "launch -- echo pl", "--theme = d"]
    table, file, command, theme = of_bash(folder, lines)
    assert (table, file) == ({"table"}, {"fleet.toml"})
    assert "plan.json" in command
    assert theme == {"dark", "deuteranopia"}


@needs("bash")
def test_commands_come_first_and_rules_are_all_there(folder: Path) -> None:
    first, rules, ui = of_bash(folder, ["", "silence add --rule ", "--"])
    assert (first, rules) == (NAMES, set(BUILTIN_NAMES))
    assert {"--version", "--theme", "--kubernetes"} <= ui


@needs("zsh")
def test_zsh_reads_its_script(folder: Path) -> None:
    ran = subprocess.run(["zsh", "-n", str(folder / ".zsh")], capture_output=True, text=True, timeout=30)
    assert (ran.returncode, ran.stderr) == (0, "")


STARTS = {
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "-f", "-i"],
}


@pytest.mark.parametrize("shell", [pytest.param(name, marks=needs(name)) for name in STARTS])
def test_a_person_presses_tab(shell: str, folder: Path) -> None:
    """In a shell on a terminal: half a command, half an option, half a file, and what the line then is."""
    prepare = f"autoload -Uz compinit && compinit -u -d {folder}/dump; " if shell == "zsh" else ""
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        STARTS[shell],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "TERM": "xterm", "PS1": "ready> "},
        stdin=follower,
        stdout=follower,
        stderr=follower,
        start_new_session=True,
    )
    os.close(follower)
    try:
        os.write(leader, f"{prepare}source ./.{shell}; echo go''es\n".encode())
        _until(leader, "goes")
        os.write(leader, b"enginetop sna\t--forma\ttab\t--replay inc\t\x01echo 'said ' \n")
        said = _until(leader, "said enginetop snapshot --format table --replay inc.jsonl.gz")
        assert "command not found" not in said
    finally:
        process.kill()
        process.wait()
        os.close(leader)


def _until(terminal: int, words: str) -> str:
    until, drawn = time.monotonic() + 20, ""
    while words not in " ".join(drawn.split()):
        assert time.monotonic() < until, drawn
        if select.select([terminal], [], [], 0.2)[0]:
            drawn += os.read(terminal, 1 << 16).decode(errors="replace")
    return drawn


@pytest.mark.parametrize("shell", SHELLS)
def test_the_command_prints_it(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert capsys.readouterr().out == completion(shell)
