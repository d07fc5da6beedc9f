"""What tests of several rooms stand on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.faulty_server import FaultyServer


@pytest.fixture
def server() -> Iterator[FaultyServer]:
    """A server on loopback that answers as a script says."""
    with FaultyServer() as running:
        yield running
