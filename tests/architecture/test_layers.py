"""Rules between rooms that the import linter cannot say."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Set
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

ONLY_IMPORTER: dict[str, set[str]] = {
    "pynvml": {"collectors/gpu/nvml.py"},
    "httpx": {
        "collectors/full_http.py",
        "collectors/control_http.py",
        "collectors/kubernetes/client.py",
        "collectors/probe/client.py",
    },
    "tomli": {"enginetop/fleet/toml_text.py"},
    "pydantic": set(),  # its models would be a tenth of a start; what checks them is enough
    "pydantic_core": {"enginetop/fleet/strict_tables.py"},
}
"""Third-party packages and the only modules that may import them."""

SIMULATOR_IMPORTERS = ("enginetop/cli/", "enginetop/simulator/")
"""Of the product; the bench and the tests import it as well."""


def _imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


@cache
def sources() -> Mapping[str, Set[str]]:
    """What each module of the product imports, by its path."""
    return {
        str(path.relative_to(ROOT)): _imports(path)
        for package in ("enginetop", "tui", "collectors", "tuners", "themes")
        for path in (ROOT / package).rglob("*.py")
    }


@pytest.mark.parametrize("package", ONLY_IMPORTER)
def test_a_third_party_package_has_one_door(package: str) -> None:
    importers = {
        name
        for name, imports in sources().items()
        if any(imported.partition(".")[0] == package for imported in imports)
    }
    assert importers <= ONLY_IMPORTER[package]


def test_who_imports_the_simulator() -> None:
    importers = [
        name
        for name, imports in sources().items()
        if any(imported.startswith("enginetop.simulator") for imported in imports)
    ]
    assert [name for name in importers if not name.startswith(SIMULATOR_IMPORTERS)] == []


SHELL = {
    "enginetop/alerts/sinks/courier.py",
    "enginetop/alerts/sinks/desk.py",
    "enginetop/alerts/sinks/file.py",
    "enginetop/alerts/sinks/outbox.py",
    "tuners/control/audit.py",
    "tuners/control/change_thread.py",
    "tuners/control/commands.py",
    "tuners/control/files.py",
    "tuners/control/launched.py",
    "tuners/control/live_world.py",
    "tuners/control/settings_file.py",
    "tuners/control/stock/llamacpp_router.py",
    "tuners/control/stock/preset_file.py",
    "tuners/control/stock/triton_model.py",
    "tuners/control/store.py",
    "tuners/control/systemd_unit.py",
}
"""The thin edges of control and of alerts: files, processes, threads. The clock is injected there too."""


def test_the_core_has_no_clock_and_no_io() -> None:
    forbidden = {"time", "asyncio", "threading", "socket", "subprocess", "os", "pathlib", "random"}
    offenders = {
        name: sorted(imports & forbidden)
        for name, imports in sources().items()
        if name.startswith(("enginetop/fleet/", "enginetop/alerts/", "tuners/"))
        and name not in SHELL
        and imports & forbidden
    }
    assert offenders == {}
