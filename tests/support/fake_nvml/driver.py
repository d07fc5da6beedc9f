"""Build the fake library, describe its GPUs, and drive the real pynvml with it."""

from __future__ import annotations

import ctypes
import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from collectors.gpu.nvml import PynvmlLibrary
from enginetop.fleet.snapshot import GpuReport

SOURCE = Path(__file__).with_name("fake_nvml.c")
SONAME = "libnvidia-ml.so.1"
STATE_VARIABLE = "FAKE_NVML_STATE"
SENTINEL = 0xFFFF_FFFF_FFFF_FFFF
WHOLE_GPU = 0xFFFF_FFFF


def compiler() -> str | None:
    """A C compiler of this machine, if there is one."""
    return next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)


def build(folder: Path, *defines: str) -> Path:
    """Compile the fake into `folder`; its file name is the one that pynvml asks the loader for."""
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / SONAME
    tool = compiler()
    assert tool is not None
    flags = ["-shared", "-fPIC", "-O1", f"-Wl,-soname,{SONAME}", *(f"-D{name}" for name in defines)]
    subprocess.run([tool, *flags, "-o", str(library), str(SOURCE)], check=True, capture_output=True)
    return library


class FakeDriver:
    """One compiled fake with its state file, and a pynvml of its own that talks to it."""

    def __init__(self, library: Path, state: Path) -> None:
        self._state = state
        self._lines: list[str] = []
        self._c = ctypes.CDLL(str(library))
        self._module = _private_pynvml()
        self._module.nvmlLib = self._c
        self._write()

    def _write(self) -> None:
        fresh = self._state.with_suffix(".new")
        fresh.write_text("".join(f"{line}\n" for line in self._lines), "ascii")
        fresh.replace(self._state)

    def say(self, *lines: str) -> None:
        """Add lines to the state; a later line overrides an earlier one."""
        self._lines += lines
        self._write()

    def say_instead(self, *lines: str) -> None:
        """Begin a new state."""
        self._lines = []
        self.say(*lines)

    @property
    def open_sessions(self) -> int:
        """Initialisations without their shutdown."""
        return ctypes.c_int.in_dll(self._c, "fake_nvml_sessions").value

    @property
    def open_event_sets(self) -> int:
        """Event sets not yet freed."""
        return ctypes.c_int.in_dll(self._c, "fake_nvml_event_sets").value

    def load(self) -> PynvmlLibrary:
        """What `NvmlSource` calls to get its library."""
        return PynvmlLibrary(self._module)


def _private_pynvml() -> Any:
    """A copy of the real module with state of its own: pynvml caches the library's functions for good."""
    spec = importlib.util.find_spec("pynvml")
    assert spec is not None
    assert spec.origin is not None
    name = "pynvml_of_a_test"
    private = importlib.util.spec_from_file_location(name, spec.origin)
    assert private is not None
    assert private.loader is not None
    module: ModuleType = importlib.util.module_from_spec(private)
    sys.modules[name] = module  # it looks itself up while it is executed
    try:
        private.loader.exec_module(module)
    finally:
        del sys.modules[name]
    return module


def only(reports: Sequence[GpuReport]) -> GpuReport:
    """The one report, of this machine."""
    assert [report.host for report in reports] == ["localhost"]
    return reports[0]
