"""What wheels and the sdist hold: our five packages with their data files, the companions, nothing else."""

from __future__ import annotations

import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.support.wheels import COMPANIONS, ROOT, build

PACKAGES = {"enginetop", "tui", "collectors", "tuners", "themes"}
DATA = {".tcss", ".toml", ".py", ".typed", ".md"}


def names(wheel: Path) -> set[str]:
    return set(zipfile.ZipFile(wheel).namelist())


def top(members: set[str]) -> set[str]:
    return {name.partition("/")[0] for name in code(members)}


def code(members: set[str]) -> set[str]:
    """Without what goes elsewhere than among the packages."""
    return {name for name in members if ".dist-info/" not in name and ".data/" not in name}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    return names(build(ROOT, tmp_path_factory.mktemp("wheel")))


def test_top_level_names(wheel: set[str]) -> None:
    assert top(wheel) == PACKAGES


def test_data_files_are_in(wheel: set[str]) -> None:
    in_tree = {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.suffix in DATA
    }
    assert in_tree <= wheel
    assert any(name.endswith(".tcss") for name in in_tree)
    assert any(name.startswith("themes/") and name.endswith(".toml") for name in in_tree)


def test_nothing_else_is_in(wheel: set[str]) -> None:
    assert {Path(name).suffix for name in code(wheel)} <= DATA
    assert not {name for name in code(wheel) if {"tests", "bench", "__pycache__"} & set(Path(name).parts)}
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in wheel)
    assert [name.partition(".data/")[2] for name in wheel if ".data/" in name] == [
        "data/share/man/man1/enginetop.1"
    ]


def test_no_accidental_namespace_packages() -> None:
    folders = {path.parent for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    assert [str(folder) for folder in folders if not (folder / "__init__.py").exists()] == []


@pytest.mark.parametrize("name", COMPANIONS)
def test_a_companion_is_one_package(name: str, tmp_path: Path) -> None:
    made = names(build(ROOT / "companions" / name, tmp_path))
    package = "enginetop_companion" if name == "common" else f"enginetop_companion_{name}"
    in_tree = {
        str(path.relative_to(ROOT / "companions" / name))
        for path in (ROOT / "companions" / name / package).rglob("*.py")
    }
    assert (top(made), in_tree <= made) == ({package}, True)
    assert any(name.endswith(".dist-info/entry_points.txt") for name in made) is (name != "common")
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in made)


def test_a_checkout_can_be_made_again_from_the_sdist(tmp_path: Path) -> None:
    """Whoever has only the sdist builds the wheel, runs the tests and finds the documents."""
    with tarfile.open(build(ROOT, tmp_path, "sdist")) as packed:
        held = {name.partition("/")[2] for name in packed.getnames()}
    in_git = {"pyproject.toml", "LICENSE", "README.md", "Makefile", "requirements/ci.txt", "docs/alerts.md"}
    wanted = {
        str(path.relative_to(ROOT))
        for package in (*PACKAGES, "tests", "bench", "companions")
        for path in (ROOT / package).rglob("*.py")
    }
    assert in_git | wanted <= held
