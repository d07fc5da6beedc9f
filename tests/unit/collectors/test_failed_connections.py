"""What is left of a connection that could not be had: nothing that waits for a search for cycles."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path

import pytest

from collectors.connection import Arrivals
from collectors.fast_http import LeanHttp
from collectors.fetch import FetchError


@pytest.mark.parametrize("where", ["127.0.0.1", "localhost", "a socket"])
def test_a_failure_ends_with_its_last_reference(where: str, tmp_path: Path) -> None:
    """The error, the frames that it passed, and whatever those hold: a fleet that is down has many."""
    socket = str(tmp_path / "none.sock") if where == "a socket" else None

    async def run() -> int:
        client = LeanHttp("127.0.0.1" if socket else where, 1, 1000, Arrivals(), socket)
        for tries in range(6):
            if tries == 2:  # what is made once is there by now
                gc.collect()
                gc.disable()
            with pytest.raises(FetchError):
                await client.get(b"GET / HTTP/1.1\r\n\r\n")
        await asyncio.sleep(0)
        return gc.collect()

    try:
        assert asyncio.run(run()) == 0
    finally:
        gc.enable()
