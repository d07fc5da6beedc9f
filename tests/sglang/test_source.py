"""The companion's table of parts against SGLang's own source: there, and read where the table says."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from enginetop_companion_sglang.checked_parts import ATTRIBUTES, CALLED, HOOKED, SUPPORTED, Part
from tests.sglang.installation import SGLANG, install

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def source() -> Path:
    return install().packages / "sglang" / "srt"


def body_of(source: Path, part: Part) -> ast.ClassDef | ast.Module:
    tree = ast.parse((source / part.file).read_text())
    if not part.owner:
        return tree
    return next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == part.owner)


def functions(body: ast.ClassDef | ast.Module) -> dict[str, ast.AST]:
    return {one.name: one for one in body.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}


def attributes(node: ast.AST) -> set[str]:
    """Names that are read or written as `something.name`, or declared in a class."""
    found = {one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute)}
    return found | {
        one.target.id
        for one in ast.walk(node)
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
    }


def test_the_version_that_is_run_is_one_that_was_read() -> None:
    assert SGLANG in SUPPORTED


@pytest.mark.parametrize("part", [*HOOKED, *CALLED], ids=lambda part: part.name)
def test_methods_are_there(source: Path, part: Part) -> None:
    assert part.name in functions(body_of(source, part))


@pytest.mark.parametrize("part", ATTRIBUTES, ids=lambda part: f"{part.owner}.{part.name}")
def test_attributes_are_there_and_read_again(source: Path, part: Part) -> None:
    body = body_of(source, part)
    assert part.name in attributes(body)
    if part.read_in:
        assert part.name in attributes(functions(body)[part.read_in])
