"""NVIDIA Dynamo without a GPU in a folder of its own, installed once and kept: about 0.6 GB and a minute."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

DYNAMO = "1.6.1"

# The package itself asks for a simulator that no public index holds; frontend, router and mocker need none.
_STEPS = (
    (f"ai-dynamo-runtime=={DYNAMO}",),
    ("--no-deps", f"ai-dynamo=={DYNAMO}"),
    (
        "aiohttp>=3.14,<4",
        "kubernetes>=32,<33",
        "msgspec",
        "prometheus-client<1",
        "pyzmq",
        "redis<9",
        "tqdm",
        "transformers",
        "zstandard",
        "httpx",
    ),
)


@dataclass(frozen=True, slots=True)
class Installation:
    """An environment with Dynamo."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"


def install() -> Installation:
    """The environment, made where it is not there yet. `ENGINETOP_DYNAMO_VENV` names another place for it.

    Skips the test with the reason where it cannot be made.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = Path(os.environ.get("ENGINETOP_DYNAMO_VENV") or cache / "enginetop" / f"dynamo-{DYNAMO}")
    here = Installation(folder)
    if not (folder / "ready").exists():
        _run(sys.executable, "-m", "venv", "--clear", str(folder))
        for packages in _STEPS:
            _run(
                str(here.python),
                *("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"),
                *packages,
            )
        (folder / "ready").touch()
    return here


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        why = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        pytest.skip(f"Dynamo {DYNAMO} cannot be installed ({words[-1]}): {why[:300]}")
