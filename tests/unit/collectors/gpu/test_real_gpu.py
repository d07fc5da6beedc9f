"""The read-only part on a real NVIDIA GPU, held against nvidia-smi. `make test-gpu`."""

from __future__ import annotations

import shutil
import subprocess
import time

import pytest

from collectors.gpu.source import NvmlSource
from tests.support.fake_nvml.driver import only

pytestmark = pytest.mark.gpu

MIB = 1024**2


@pytest.fixture
def smi() -> list[list[str]]:
    """Rows of nvidia-smi: index, uuid, name, memory total MiB, power limit W."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        pytest.skip("no NVIDIA GPU here: nvidia-smi is not installed")
    query = "--query-gpu=index,uuid,name,memory.total,enforced.power.limit"
    command = [tool, query, "--format=csv,noheader,nounits"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        pytest.skip(f"no NVIDIA GPU here: {result.stdout.strip() or result.stderr.strip()}")
    return [[field.strip() for field in line.split(",")] for line in result.stdout.splitlines()]


def test_the_gpus_are_those_of_nvidia_smi(smi: list[list[str]]) -> None:
    source = NvmlSource()
    source.open(())
    try:
        began = time.perf_counter()
        report = only(source.read(time.time()))
        first = time.perf_counter() - began
        began = time.perf_counter()
        again = only(source.read(time.time()))
        second = time.perf_counter() - began
    finally:
        source.close()
    print(f"first read {first * 1e3:.1f} ms, next {second * 1e3:.2f} ms, {len(report.gpus)} rows")
    assert report.problem == ""
    whole = [gpu for gpu in report.gpus if gpu.mig is None]
    assert [[str(gpu.index), gpu.uuid, gpu.name] for gpu in whole] == [row[:3] for row in smi]
    assert [gpu.uuid for gpu in again.gpus] == [gpu.uuid for gpu in report.gpus]
    for gpu, row in zip(whole, smi, strict=True):
        assert gpu.state == "ok"
        if gpu.memory_total_bytes is not None and not gpu.unified_memory:
            assert gpu.memory_total_bytes / MIB == pytest.approx(float(row[3]), abs=1.0)
        if gpu.power_limit_watts is not None:
            assert gpu.power_limit_watts == pytest.approx(float(row[4]), abs=0.01)
        assert gpu.temperature_celsius is None or -20.0 < gpu.temperature_celsius < 130.0
