"""A place for sockets that has to be empty in the end."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.launching import until


@pytest.fixture
def sockets(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where private folders go, and nothing else; empty in the end."""
    folder = Path(tempfile.mkdtemp(prefix="e", dir="/tmp"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    yield folder
    until(lambda: not any(folder.iterdir()) or None, f"emptied {folder}")
    folder.rmdir()
