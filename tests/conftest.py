"""What holds for every test."""

from __future__ import annotations

import gc
import os
import sys

import pytest

# A run compiles each module once, and so do the hundreds of processes that it starts, also where the
# environment says that no bytecode is kept.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end: no look for cycles need go through it again.

    It is most of the memory of a run, and tests that look themselves would pay for all of it.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture
def patient_pilot(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests of screens wait for them however slow the machine is."""
    from tests.support.screen_idle import wait_for_idle

    for module in ("textual.app", "textual.pilot"):
        monkeypatch.setattr(f"{module}.wait_for_idle", wait_for_idle)
