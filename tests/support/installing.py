"""Environments of real engines: each installed once into a folder of its own, and kept."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment in `folder`, and a model beside what is installed there."""

    folder: Path

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"

    @property
    def model(self) -> Path:
        """Where the model is made."""
        return self.folder / "model"

    @property
    def packages(self) -> Path:
        """Where its packages are."""
        return next(self.folder.glob("lib/python3*/site-packages"))

    @property
    def ready(self) -> Path:
        """There once all is installed."""
        return self.folder / "ready"

    def begin(self) -> None:
        """Make it anew, empty."""
        run(sys.executable, "-m", "venv", "--clear", str(self.folder))

    def pip(self, *words: str) -> None:
        """Run its pip."""
        run(str(self.python), "-m", "pip", words[0], "--quiet", "--disable-pip-version-check", *words[1:])

    def refuse_cuda(self) -> None:
        """AssertionError where the torch in it is not built for the CPU."""
        cuda = run(str(self.python), "-c", "import torch; print(torch.version.cuda)")
        assert cuda.strip() == "None", "the package index gave a CUDA build of torch; a CPU build is needed"


def kept_folder(name: str, variable: str) -> Path:
    """Where an environment is kept; the variable names another place for it."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get(variable) or cache / "enginetop" / name)


def run(*words: str) -> str:
    """Run a command; what it prints. AssertionError with the end of its errors when it fails."""
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(words[:6])}: {done.stderr[-2000:]}"
    return done.stdout
