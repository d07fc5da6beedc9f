"""Wheels as a release has them, built offline and installed as a stranger would."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COMPANIONS = ("common", "vllm", "sglang")


def build(project: Path, out: Path, kind: str = "wheel") -> Path:
    """The wheel or sdist of a project of this checkout, built by the backend itself: no index is asked."""
    out.mkdir(parents=True, exist_ok=True)
    before = set(out.iterdir())
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(out)],
        cwd=project,
        check=True,
        capture_output=True,
    )
    (made,) = set(out.iterdir()) - before
    return made


@dataclass(frozen=True, slots=True)
class Installed:
    """A fresh environment that holds wheels, and a folder to run in that is no checkout."""

    bin: Path
    packages: Path
    elsewhere: Path

    def environment(self) -> Mapping[str, str]:
        """What a program sees: homes of its own, no way back into the checkout."""
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        homes = ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR")
        return {**kept, "TERM": "xterm-256color", **{name: str(self.elsewhere / name) for name in homes}}

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """One run of a program of the environment to its end."""
        return subprocess.run(
            [str(self.bin / words[0]), *words[1:]],
            cwd=self.elsewhere,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )


def install(folder: Path, *wheels: Path) -> Installed:
    """The wheels in a new environment. Their dependencies are those of ours, of which no `.pth` is read: our
    own checkout, which is installed there as editable, is out of reach.
    """
    home = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "--python",
        str(home / "bin" / "python"),
    ]
    options = ["--quiet", "--no-index", "--no-deps", "--no-compile"]
    subprocess.run([*pip, "install", *options, *map(str, wheels)], check=True, capture_output=True)
    (packages,) = home.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    elsewhere = folder / "elsewhere"
    for name in ("HOME", "XDG_RUNTIME_DIR"):
        (elsewhere / name).mkdir(parents=True, mode=0o700)
    return Installed(home / "bin", packages, elsewhere)
