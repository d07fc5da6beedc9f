"""An SGLang for the CPU in a folder of its own, installed once and kept: about 3 GB and some minutes.

There is no build of SGLang's kernels for it: a package that has their names, and refuses to run any, stands
in. A small dense model with the torch backend needs none.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

SGLANG = "0.5.23"
TORCH = "2.13.0"
HERE = Path(__file__).parent
COMPANION = tuple(HERE.parents[1] / "companions" / part for part in ("common", "sglang"))

_NEEDED = (
    *("aiohttp", "anthropic", "apache-tvm-ffi==0.1.11", "blobfile==3.0.0", "build"),
    *("compressed-tensors==0.18.0", "datasets", "deepseek-recipe==0.2.0", "distro", "einops", "fastapi"),
    *("gguf", "interegular", "IPython", "llguidance", "mistral_common", "msgspec", "numpy", "nvidia-ml-py"),
    *("openai==2.8.0", "openai-harmony==0.0.4", "orjson", "outlines==0.1.11", "partial_json_parser"),
    *("pillow", "prometheus-client", "psutil", "py-spy", "pybase64", "pydantic", "python-multipart"),
    *("pyzmq", "regex", "requests", "scipy", "sentencepiece==0.2.1", "setproctitle"),
    *("smg-grpc-servicer", "soundfile==0.13.1", "tiktoken", "tml-renderers==0.1.0", "tokenizers==0.23.2"),
    *("tqdm", "transformers==5.19.0", "triton", "uvicorn", "uvloop", "watchfiles", "xgrammar==0.2.7"),
    *("xxhash", "zstandard"),
)
"""What SGLang imports on the CPU; its own list asks for kernels of other devices too."""


@dataclass(frozen=True, slots=True)
class Installation:
    """An environment with SGLang, the companion of this checkout, and a model."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def model(self) -> Path:
        return self.folder / "model"

    @property
    def packages(self) -> Path:
        return next(self.folder.glob("lib/python3*/site-packages"))


def install() -> Installation:
    """The environment, made where it is not there yet. `ENGINETOP_SGLANG_VENV` names another place for it."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = Path(os.environ.get("ENGINETOP_SGLANG_VENV") or cache / "enginetop" / f"sglang-cpu-{SGLANG}")
    here = Installation(folder)
    if not (folder / "ready").exists():
        _run(sys.executable, "-m", "venv", "--clear", str(folder))
        _pip(here, "install", "--no-compile", f"torch=={TORCH}", *_NEEDED)
        _pip(here, "install", "--no-compile", "--no-deps", f"sglang=={SGLANG}", "torchvision")
        cuda = _run(str(here.python), "-c", "import torch; print(torch.version.cuda)")
        assert cuda.strip() == "None", "the package index gave a CUDA build of torch; a CPU build is needed"
        # Its operators are not built for this torch; of the rest only the transforms are asked for.
        (here.packages / "torchvision" / "__init__.py").write_text("from torchvision import transforms\n")
        (folder / "ready").touch()
    shutil.copytree(HERE / "kernel_names", here.packages / "sgl_kernel", dirs_exist_ok=True)
    if not here.model.exists():
        maker = HERE.parent / "vllm" / "make_model.py"
        _run(str(here.python), str(maker), str(here.model))
    for source in COMPANION:
        _pip(here, "install", "--no-deps", "--force-reinstall", str(source))
    return here


def _pip(here: Installation, *words: str) -> None:
    _run(str(here.python), "-m", "pip", words[0], "--quiet", "--disable-pip-version-check", *words[1:])


def _run(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(words[:6])}: {done.stderr[-2000:]}"
    return done.stdout


if __name__ == "__main__":
    print(install().folder)
