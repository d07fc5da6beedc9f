"""The source over a Python stand-in of the library: hangs, faults and what a compiled fake cannot do."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from collectors.gpu.library import Code, LibraryError
from collectors.gpu.processes import ProcessJoin
from collectors.gpu.source import NvmlSource
from enginetop.fleet.model import Target
from tests.support.fake_nvml.driver import STATE_VARIABLE, only
from tests.support.fake_nvml.plain import PlainLibrary


def open_source(library: PlainLibrary, tmp_path: Path, close_seconds: float = 5.0) -> NvmlSource:
    source = NvmlSource(lambda: library, tmp_path, close_seconds=close_seconds)
    source.open([Target("http://localhost:8000", "a")])
    return source


def test_a_measured_zero_stays_zero(tmp_path: Path) -> None:
    gpu = only(open_source(PlainLibrary(), tmp_path).read(1.0)).gpus[0]
    assert (gpu.temperature_celsius, gpu.sm_clock_mhz, gpu.throttle_reasons) == (0.0, 0.0, ())
    assert (gpu.utilization_ratio, gpu.power_watts, gpu.replicas) == (0.25, 71.5, None)


def test_without_the_python_package_there_is_a_line_instead_of_gpus(tmp_path: Path) -> None:
    def load() -> PlainLibrary:
        raise ImportError("no module named pynvml")

    source = NvmlSource(load, tmp_path)
    source.open(())
    report = only(source.read(1.0))
    assert (report.gpus, "nvidia-ml-py is missing" in report.problem) == ((), True)
    source.close()


def test_a_python_package_that_cannot_be_imported_is_a_missing_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is there, but not whole: this is seen at the import, when a driver was found."""
    library = PlainLibrary()

    def start() -> None:
        raise ImportError("no module named pynvml_parts")

    with monkeypatch.context() as patch:
        patch.setattr(library, "start", start)
        source = open_source(library, tmp_path)
        report = only(source.read(1.0))
        assert (report.gpus, "nvidia-ml-py is missing" in report.problem) == ((), True)
    assert only(source.read(31.0)).problem == ""  # it was installed meanwhile


def test_an_unopened_source_has_a_report_too(tmp_path: Path) -> None:
    assert only(NvmlSource(PlainLibrary, tmp_path).read(1.0)).problem == "the GPU source is not open"


@pytest.mark.parametrize("call", ["device_count", "device", "name", "memory_bytes", "mig_enabled", "address"])
def test_a_fault_of_ours_is_shown_and_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    library = PlainLibrary()
    source = open_source(library, tmp_path)

    def broken(*arguments: object) -> int:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(library, call, broken)
        report = only(source.read(1.0))
        assert report.gpus == ()
        assert report.problem == "GPU figures fail by a fault of enginetop (ZeroDivisionError)"
    assert only(source.read(100.0)).problem == ""


@pytest.mark.parametrize("call", ["start", "power_milliwatts", "process_ids"])
def test_close_returns_while_a_call_hangs_and_shuts_down_when_it_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    library = PlainLibrary()
    hanging, go_on, stopped = threading.Event(), threading.Event(), threading.Event()

    def hang(*arguments: object) -> Any:
        hanging.set()
        assert go_on.wait(30.0)
        raise LibraryError(Code.UNKNOWN)

    monkeypatch.setattr(library, call, hang)
    monkeypatch.setattr(library, "stop", stopped.set)
    monkeypatch.setattr("collectors.gpu.processes.own_addresses", lambda proc: frozenset())
    source = open_source(library, tmp_path, close_seconds=0.05)
    reader = threading.Thread(target=source.read, args=(1.0,))
    reader.start()
    assert hanging.wait(30.0)
    began = time.monotonic()
    source.close()
    assert time.monotonic() - began < 5.0
    assert not stopped.is_set()
    go_on.set()
    reader.join(30.0)
    assert not reader.is_alive()
    if call != "start":  # a library that never started has nothing to shut down
        assert stopped.wait(30.0)


def test_close_returns_while_the_event_thread_hangs_and_leaves_the_library_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = PlainLibrary()
    hanging, go_on = threading.Event(), threading.Event()

    def hang(events: object, timeout_ms: int) -> None:
        hanging.set()
        assert go_on.wait(30.0)

    monkeypatch.setattr(library, "new_event_set", lambda: "set")
    monkeypatch.setattr(library, "watch_xid", lambda device, events: None)
    monkeypatch.setattr(library, "next_xid", hang)
    source = open_source(library, tmp_path, close_seconds=0.05)
    source.read(1.0)
    assert hanging.wait(30.0)
    source.close()
    assert library.calls == ["start"]
    go_on.set()


def test_what_ran_on_a_gpu_when_it_failed_stays_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = "http://localhost:8000"

    class Join(ProcessJoin):
        def replicas(self, pids_of: Any) -> dict[str, tuple[str, ...]]:
            return {key: (url,) for key, pids in pids_of.items() if pids}

    library = PlainLibrary()
    monkeypatch.setattr(library, "process_ids", lambda device: [7])
    source = NvmlSource(lambda: library, tmp_path, Join)
    source.open([Target(url, "a")])
    assert only(source.read(1.0)).gpus[0].replicas == (url,)

    def lost(device: object) -> int:
        raise LibraryError(Code.GPU_IS_LOST)

    monkeypatch.setattr(library, "utilization_percent", lost)
    monkeypatch.setattr(library, "process_ids", lost)
    gpu = only(source.read(20.0)).gpus[0]
    assert (gpu.state, gpu.replicas) == ("lost", (url,))


def test_nothing_imports_pynvml_before_it_is_used() -> None:
    code = "import sys, collectors.gpu.source, collectors.gpu.items; print('pynvml' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "False\n"


def test_the_systems_loader_finds_the_library(fake_libraries: dict[str, Path], tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.write_text("count 1\ngpu 0 power 1500\n")
    code = (
        "from collectors.gpu.source import NvmlSource\n"
        "source = NvmlSource()\n"
        "source.open(())\n"
        "[report] = source.read(1.0)\n"
        "print(report.problem, [gpu.power_watts for gpu in report.gpus])\n"
        "source.close()\n"
    )
    environment = {"LD_LIBRARY_PATH": str(fake_libraries["current"].parent), STATE_VARIABLE: str(state)}
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert result.stdout == " [1.5]\n"
    assert result.stderr == ""


def test_where_there_is_no_driver_its_thousands_of_names_are_not_imported(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from collectors.gpu.source import NvmlSource\n"
        "source = NvmlSource()\n"
        "source.open(())\n"
        "(report,) = source.read(1.0)\n"
        "print(report.problem, 'pynvml' in sys.modules)\n"
    )
    (tmp_path / "libnvidia-ml.so.1").write_bytes(b"no library")  # before any that this machine has
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"LD_LIBRARY_PATH": str(tmp_path)},
    )
    assert result.stdout.startswith("no NVIDIA driver library (libnvidia-ml.so.1); ")
    assert result.stdout.endswith(" False\n")


def test_a_driver_that_comes_later_is_found(fake_libraries: dict[str, Path], tmp_path: Path) -> None:
    """What stood in its place before was not whole, as in the midst of an installation."""
    state, place = tmp_path / "state", tmp_path / "libnvidia-ml.so.1"
    state.write_text("count 1\ngpu 0 power 1500\n")
    place.write_bytes(b"no library")
    code = (
        "import os, sys\n"
        "from collectors.gpu.source import NvmlSource\n"
        "source = NvmlSource()\n"
        "source.open(())\n"
        "found = [source.read(1.0)[0]]\n"
        "os.replace(sys.argv[1] + '.whole', sys.argv[1])\n"
        "found += [source.read(at)[0] for at in (30.9, 31.0)]\n"
        "print([(bool(one.problem), [gpu.power_watts for gpu in one.gpus]) for one in found])\n"
        "source.close()\n"
    )
    shutil.copy(fake_libraries["current"], f"{place}.whole")
    result = subprocess.run(
        [sys.executable, "-c", code, str(place)],
        capture_output=True,
        text=True,
        check=True,
        env={"LD_LIBRARY_PATH": str(tmp_path), STATE_VARIABLE: str(state)},
    )
    assert result.stdout == "[(True, []), (True, []), (False, [1.5])]\n"
