"""The companion's table of private parts against the wheel's source: set and read where the table says."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from enginetop_companion_vllm.knobs import QUEUE_LIMITS
from enginetop_companion_vllm.private_parts import (
    ADMISSION,
    KV_PARTS,
    METHODS,
    SCHEDULER_CONFIG_FIELDS,
    SCHEDULER_PARTS,
    Part,
)

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1800)]


def class_of(package: Path, part: Part) -> ast.ClassDef:
    tree = ast.parse((package / part.file).read_text())
    return next(one for one in tree.body if isinstance(one, ast.ClassDef) and one.name == part.owner)


def methods(owner: ast.ClassDef) -> dict[str, ast.AST]:
    return {one.name: one for one in owner.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}


def through_self(tree: ast.AST, name: str, kind: type[ast.expr_context]) -> bool:
    return any(
        isinstance(node, ast.Attribute)
        and node.attr == name
        and isinstance(node.ctx, kind)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
        for node in ast.walk(tree)
    )


@pytest.mark.parametrize("part", SCHEDULER_PARTS, ids=lambda part: part.name)
def test_scheduler_attribute(package: Path, part: Part) -> None:
    found = methods(class_of(package, part))
    assert through_self(found["__init__"], part.name, ast.Store)
    if part.read_in:
        assert through_self(found[part.read_in], part.name, ast.Load)


@pytest.mark.parametrize("part", KV_PARTS, ids=lambda part: part.name)
def test_part_of_the_kv_cache(package: Path, part: Part) -> None:
    found = methods(class_of(package, part))
    setters = [name for name, one in found.items() if through_self(one, part.name, ast.Store)]
    assert setters == ["__init__"]
    if part.read_in:
        assert through_self(found[part.read_in], part.name, ast.Load)


@pytest.mark.parametrize("name", QUEUE_LIMITS)
def test_queue_limits_are_read_for_every_request(package: Path, name: str) -> None:
    source = ast.unparse(methods(class_of(package, ADMISSION))[ADMISSION.name])
    assert f"self.scheduler_config.{name}" in source
    client = ast.unparse(class_of(package, ADMISSION))
    assert client.count("self.check_admission(") >= 2  # of `add_request`: a plain one, and one with parts


def test_only_the_constructor_sets_what_is_written_live(package: Path) -> None:
    """What is written live is assigned in the constructor only: nothing else sets it."""
    for part in SCHEDULER_PARTS[:3]:
        found = methods(class_of(package, part))
        setters = [name for name, one in found.items() if through_self(one, part.name, ast.Store)]
        assert setters == ["__init__"]


@pytest.mark.parametrize("name", SCHEDULER_CONFIG_FIELDS)
def test_scheduler_config_field(package: Path, name: str) -> None:
    config = ast.parse((package / "config" / "scheduler.py").read_text())
    owner = next(
        one for one in config.body if isinstance(one, ast.ClassDef) and one.name == "SchedulerConfig"
    )
    fields = {
        one.target.id
        for one in owner.body
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
    }
    assert name in fields
    scheduler = (package / SCHEDULER_PARTS[0].file).read_text()
    assert f"self.scheduler_config.{name}" in scheduler


@pytest.mark.parametrize("part", METHODS, ids=lambda part: part.name)
def test_method(package: Path, part: Part) -> None:
    found = methods(class_of(package, part))
    assert part.name in found
    if part.read_in:
        assert through_self(found[part.read_in], part.name, ast.Load)


def test_wake_ups_go_through_the_input_queue(package: Path) -> None:
    core = (package / METHODS[0].file).read_text()
    assert "self.input_queue.get(block=block)" in core
    assert "EngineCoreRequestType.WAKEUP" in core
    assert "getattr(self, method_name)" in core  # how a utility call finds its method
