"""The wheel holds our five packages with their data files, and nothing else."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {"enginetop", "tui", "collectors", "tuners", "themes"}


@pytest.fixture(scope="module")
def wheel_names(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    out = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = out.glob("*.whl")
    return zipfile.ZipFile(wheel).namelist()


def test_top_level_names(wheel_names: list[str]) -> None:
    top = {name.partition("/")[0] for name in wheel_names}
    assert {name for name in top if not name.endswith(".dist-info")} == PACKAGES


def test_data_files_are_in(wheel_names: list[str]) -> None:
    in_tree = {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.suffix in {".tcss", ".toml", ".py", ".typed"}
    }
    assert in_tree <= set(wheel_names)
    assert any(name.endswith(".tcss") for name in in_tree)
    assert any(name.startswith("themes/") and name.endswith(".toml") for name in in_tree)


def test_no_accidental_namespace_packages() -> None:
    folders = {path.parent for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    assert [str(folder) for folder in folders if not (folder / "__init__.py").exists()] == []
