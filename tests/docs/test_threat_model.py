"""Every defence of the threat model names tests, and these exist."""

from __future__ import annotations

import ast
import re

import pytest

from tests.support.shown_commands import ROOT

TEXT = (ROOT / "docs" / "threat-model.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in TEXT.splitlines()
    if line.startswith("| ") and not line.startswith(("| threat", "| ---"))
]


def functions_of(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_the_threats_that_have_to_be_there() -> None:
    threats = " ".join(row[0] for row in ROWS).lower()
    for word in (
        "page",
        "injection",
        "redirect",
        "ssrf",
        "config",
        "at rest",
        "mailed plan",
        "companions",
        "telemetry",
    ):
        assert word in threats, word


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:40])
def test_a_defence_names_tests_that_exist(row: list[str]) -> None:
    threat, defence, shown = row
    assert threat
    assert defence
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", shown)
    assert named
    for path, test in named:
        assert not test or test in functions_of(path), f"{path}::{test}"
