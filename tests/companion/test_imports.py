"""Companions stand alone: at import only the standard library and the part that they share."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

import enginetop_companion
import enginetop_companion_sglang
import enginetop_companion_vllm

BESIDE_THE_ENGINE = {
    "enginetop_companion": {"prometheus_client"},
    "enginetop_companion_sglang": {"enginetop_companion", "sglang"},
    "enginetop_companion_vllm": {"enginetop_companion", "vllm"},
}
"""What is in the engine's environment; parts of an engine are imported only where they are used."""
FILES = sorted(
    file
    for package in (enginetop_companion, enginetop_companion_sglang, enginetop_companion_vllm)
    for file in Path(package.__path__[0]).glob("*.py")
)


def names(node: ast.AST) -> set[str]:
    if isinstance(node, ast.Import):
        return {alias.name.partition(".")[0] for alias in node.names}
    if isinstance(node, ast.ImportFrom):
        return {(node.module or "").partition(".")[0]}
    return set()


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}.{file.stem}")
def test_imports(file: Path) -> None:
    tree = ast.parse(file.read_text())
    at_import = set().union(*(names(node) for node in tree.body))
    anywhere = set().union(*(names(node) for node in ast.walk(tree)))
    standard = sys.stdlib_module_names | {file.parent.name}
    assert at_import <= standard | {"enginetop_companion"}
    assert anywhere <= standard | BESIDE_THE_ENGINE[file.parent.name]
