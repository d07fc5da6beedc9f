"""Every command that the documents show is one that the program has, and the cheap ones of README.md run."""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from enginetop.cli.main import main
from enginetop.cli.parser import COMMANDS, UI, Command, parse
from enginetop.fleet.config import parse_config
from enginetop.simulator.builtin import scenario_named
from enginetop.simulator.scenario_file import parse_scenario
from enginetop.simulator.simulated_fleet import SimulatedFleet
from tests.support.shown_commands import DOCUMENTS, ROOT, arguments, blocks, named, shown

OF_OTHERS = {
    "--metrics",  # llama.cpp
    "--export-metrics-to-file",  # SGLang
    "--enable-metrics",
    "--reasoning-parser",
    "--held-back",  # bench.tuning
}
"""Options that README.md and the pages on the command line name of other programs."""


def options(command: Command) -> set[str]:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return {option for action in parser._actions for option in action.option_strings}


OPTIONS = {command.name: options(command) for command in (UI, *COMMANDS)}
SHOWN = [
    pytest.param(command, id=f"{document.name}: {command}")
    for document in DOCUMENTS
    for command in dict.fromkeys(shown(document))
]
NAMED = [
    pytest.param(command, id=f"{document.name}: {command}")
    for document in DOCUMENTS
    for command in dict.fromkeys(named(document))
]


def test_every_command_is_shown_or_named() -> None:
    text = "\n".join(command for document in DOCUMENTS for command in (*shown(document), *named(document)))
    assert {name for name in OPTIONS if name and f"enginetop {name}" not in text} == set()


@pytest.mark.parametrize("command", SHOWN)
def test_the_command_line_takes_what_is_shown(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        parse(arguments(command))
    except SystemExit:
        pytest.fail(capsys.readouterr().err)


@pytest.mark.parametrize("command", NAMED)
def test_what_is_named_is_a_command_with_these_options(command: str) -> None:
    first = command.split()[1]
    name = "" if first.startswith("-") or first.isupper() else first  # `enginetop TARGET`
    assert name in OPTIONS
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", command)) <= OPTIONS[name]


@pytest.mark.parametrize("name", ["README.md", "docs/alerts.md", "docs/records.md", "docs/simulator.md"])
def test_options_named_in_the_text_are_options(name: str) -> None:
    codes = " ".join(re.findall(r"`([^`]+)`", (ROOT / name).read_text()))
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", codes)) <= set().union(*OPTIONS.values()) | OF_OTHERS


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_tasks_and_modules_that_are_named_exist(document: Path) -> None:
    text = document.read_text()
    tasks = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.M))
    assert set(re.findall(r"(?:`|^ {4})make ([a-z0-9-]+)", text, re.M)) <= tasks
    for module in {*re.findall(r"python -m ([\w.]+)", text), *re.findall(r"`(bench\.\w+)`", text)}:
        assert importlib.util.find_spec(module) is not None, module
    for path in re.findall(r"`((?:docs|tests|companions|bench)/[\w./-]+)`", text):
        assert (ROOT / path).exists(), path


def test_files_of_a_checkout_in_the_blocks_are_there() -> None:
    """What is copied, installed and read by commands of others: `cp docs/...`, `pip install -r ...`."""
    text = "\n".join(block for document in DOCUMENTS for block in blocks(document))
    found = set(re.findall(r"(?<![\w/.-])(?:docs|requirements|companions|bench|tests)/[\w./-]+", text))
    assert "requirements/run.txt" in found
    assert {path for path in found if not (ROOT / path).exists()} == set()


SCENARIO = re.compile(r"^\[traffic\]$", re.M)
"""What makes a table one of the simulator."""
CONFIGS = {
    document: tables
    for document in DOCUMENTS
    if (
        tables := [
            block
            for block in blocks(document)
            if re.search(r"^\[+[\w.-]+\]+$", block, re.M) and not SCENARIO.search(block)
        ]
    )
}
"""Documents that show tables of the config file."""


@pytest.mark.parametrize("document", CONFIGS, ids=lambda document: document.name)
def test_tables_of_the_config_file_are_taken(document: Path) -> None:
    for block in CONFIGS[document]:
        parse_config(tomllib.loads(block), document.name)


def test_scenarios_that_are_shown_are_taken() -> None:
    shown = [block for document in DOCUMENTS for block in blocks(document) if SCENARIO.search(block)]
    assert [parse_scenario(block, "shown").name for block in shown] == ["incident"]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_links_between_documents_lead_somewhere(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        assert "://" in link or (document.parent / link).exists(), link
    for name in re.findall(r"`(docs/[\w./-]+\.md|[A-Z]+\.md|\w+\.md)`", text):
        assert any((base / name).exists() for base in (ROOT, ROOT / "docs", document.parent)), name


# README's own commands, those that end by themselves, against a simulated engine

README = tuple(shown(ROOT / "README.md"))
SHORTER = {"600": "1", "90": "1"}
"""Seconds that a test does not wait."""
PATIENT = ("--interval", "0.2", "--timeout", "60")
"""Soon again, and with patience: a busy machine answers itself late."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with SimulatedFleet(scenario_named("steady"), 1) as fleet:
        yield fleet.urls[0].removeprefix("http://")


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, address: str) -> Path:
    """Where the commands run: `fleet.toml` is README's config file with the engine's address in it."""
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("VLLM_API_KEY", "k")
    monkeypatch.chdir(tmp_path)
    (config,) = (block for block in blocks(ROOT / "README.md") if "[[targets]]" in block)
    (tmp_path / "fleet.toml").write_text(config.replace("https://10.0.0.1:8000", f"http://{address}"))
    return tmp_path


def run(start: str, address: str, *more: str) -> int:
    """The exit code of the first command of README.md that starts so."""
    command = next(command for command in README if command.startswith(start))
    words = [SHORTER.get(word, word).replace("10.0.0.1:8000", address) for word in arguments(command)]
    return main([*words, *more])


def test_readme_looks(
    folder: Path, address: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(
        "COLUMNS", raising=False
    )  # workers of a parallel run have one: here the output is a pipe
    assert run("enginetop snapshot 10", address, *PATIENT) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["schema"], [one["engine"] for one in document["replicas"]]) == (
        "enginetop.snapshot/1",
        ["vllm"],
    )
    assert run("enginetop snapshot --format table", address, address, *PATIENT) == 0
    assert address in capsys.readouterr().out
    assert run("enginetop doctor", address) == 0
    assert address in capsys.readouterr().out
    assert run("enginetop curve", address, *PATIENT) == 0
    assert capsys.readouterr().out.startswith("pool Qwen3-32B")


def test_readme_records_and_tunes(folder: Path, address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("enginetop record", address, "--for", "1", *PATIENT) == 0
    assert main(["snapshot", "--replay", "inc.jsonl.gz"]) == 0
    capsys.readouterr()
    code = run("enginetop tune", address, "--observe", "3", *PATIENT)
    assert "max_num_batched_tokens" in capsys.readouterr().out
    assert (code, (folder / "plan.json").exists()) in {(0, True), (3, False)}
    assert run("enginetop audit", address) == 0


def test_readme_is_told(folder: Path, address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("enginetop check", address, *PATIENT) == 0
    assert capsys.readouterr().out.startswith("OK")
    assert run("enginetop silence add", address) == 0
    capsys.readouterr()
    assert main(["silence", "list"]) == 0
    assert "KvPressure" in capsys.readouterr().out
    assert main(["rules"]) == 0
    assert "record:" in capsys.readouterr().out
