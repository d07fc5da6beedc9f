"""The companion stands alone: at import only the standard library, and never anything of enginetop."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

import enginetop_companion_vllm

OWN = "enginetop_companion_vllm"
BESIDE_THE_ENGINE = {"vllm", "prometheus_client"}
"""What vLLM's own environment always has; imported only where it is used."""
FILES = sorted(Path(enginetop_companion_vllm.__file__).parent.glob("*.py"))


def names(node: ast.AST) -> set[str]:
    if isinstance(node, ast.Import):
        return {alias.name.partition(".")[0] for alias in node.names}
    if isinstance(node, ast.ImportFrom):
        return {(node.module or "").partition(".")[0]}
    return set()


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_imports(file: Path) -> None:
    tree = ast.parse(file.read_text())
    at_import = set().union(*(names(node) for node in tree.body))
    anywhere = set().union(*(names(node) for node in ast.walk(tree)))
    standard = sys.stdlib_module_names | {OWN}
    assert at_import <= standard
    assert anywhere <= standard | BESIDE_THE_ENGINE
