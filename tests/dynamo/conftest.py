"""Two runs for the whole suite: workers that do both, and prefill and decode on separate workers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.dynamo.installation import install
from tests.dynamo.run import Run, recorded_run


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """16 workers, each with room for about three of the four requests that it gets at a time."""
    folder = tmp_path_factory.mktemp("whole")
    with recorded_run(install(), folder, decode=16, prefill=0, blocks=420, requests=128) as run:
        yield run


@pytest.fixture(scope="session")
def split(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Four prefill and twelve decode workers, with room for all."""
    folder = tmp_path_factory.mktemp("split")
    with recorded_run(install(), folder, decode=12, prefill=4, blocks=1000, requests=64) as run:
        yield run


@pytest.fixture(scope="session")
def record() -> Iterator[dict[str, object]]:
    """Figures of this run, printed at its end: what docs/verified.md is written from."""
    figures: dict[str, object] = {}
    yield figures
    for name, value in figures.items():
        print(f"\nFIGURE {name}: {value}", end="")
