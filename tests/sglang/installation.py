"""An SGLang for the CPU in a folder of its own, installed once and kept: about 3 GB and some minutes.

There is no build of SGLang's kernels for it: a package that has their names, and refuses to run any, stands
in. A small dense model with the torch backend needs none.
"""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path

from tests.support.installing import Environment, kept_folder, run

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


@cache
def install() -> Environment:
    """The environment, made where it is not there yet. `ENGINETOP_SGLANG_VENV` names another place for it."""
    here = Environment(kept_folder(f"sglang-cpu-{SGLANG}", "ENGINETOP_SGLANG_VENV"))
    if not here.ready.exists():
        here.begin()
        here.pip("install", "--no-compile", f"torch=={TORCH}", *_NEEDED)
        here.pip("install", "--no-compile", "--no-deps", f"sglang=={SGLANG}", "torchvision")
        here.refuse_cuda()
        # Its operators are not built for this torch; of the rest only the transforms are asked for.
        (here.packages / "torchvision" / "__init__.py").write_text("from torchvision import transforms\n")
        here.ready.touch()
    shutil.copytree(HERE / "kernel_names", here.packages / "sgl_kernel", dirs_exist_ok=True)
    if not here.model.exists():
        maker = HERE.parent / "vllm" / "make_model.py"
        run(str(here.python), str(maker), str(here.model))
    for source in COMPANION:
        here.pip("install", "--no-deps", "--force-reinstall", str(source))
    return here


if __name__ == "__main__":
    print(install().folder)
