"""The fake driver, compiled once a session."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from collectors.gpu.processes import ProcessJoin
from collectors.gpu.source import NvmlSource
from tests.support.fake_nvml.driver import STATE_VARIABLE, FakeDriver, build, compiler


@pytest.fixture(scope="session")
def fake_libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    if compiler() is None:
        pytest.skip("no C compiler (cc, gcc, clang) to build the fake NVML with")
    folder = tmp_path_factory.mktemp("nvml")
    return {"current": build(folder / "current"), "old": build(folder / "old", "OLD_DRIVER")}


@pytest.fixture
def driver(fake_libraries: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    state = tmp_path / "nvml.state"
    monkeypatch.setenv(STATE_VARIABLE, str(state))
    return FakeDriver(fake_libraries["current"], state)


@pytest.fixture
def old_driver(
    fake_libraries: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> FakeDriver:
    state = tmp_path / "nvml.state"
    monkeypatch.setenv(STATE_VARIABLE, str(state))
    return FakeDriver(fake_libraries["old"], state)


@pytest.fixture
def open_source(tmp_path: Path) -> Iterator[Callable[..., NvmlSource]]:
    """Opens sources over a fake driver with an empty `/proc`, and closes them after the test."""
    opened: list[NvmlSource] = []
    empty = tmp_path / "no-proc"

    def opener(driver: FakeDriver, proc: Path = empty) -> NvmlSource:
        source = NvmlSource(driver.load, proc, lambda targets, root: ProcessJoin(targets, root, frozenset()))
        source.open(())
        opened.append(source)
        return source

    yield opener
    for source in opened:
        source.close()
