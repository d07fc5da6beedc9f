"""An app that runs in a test, with its source started."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

from textual.pilot import Pilot

from tests.tui.snapshots import FakeSource
from tui.app import FleetApp

_TURNS = 1000
"""More than the busiest machine takes; one turn is often not enough, even on an idle one."""


@asynccontextmanager
async def running(app: FleetApp, size: tuple[int, int] = (80, 24)) -> AsyncIterator[Pilot[None]]:
    """Run the app on a terminal of `size`, until something is on the screen and its source was started.

    Keys that are pressed before have nothing to act on, and a picture that is published before is not heard.
    """
    source = cast(FakeSource, app._source)
    async with app.run_test(size=size) as pilot:
        for _ in range(_TURNS):
            await pilot.pause()
            if source.started or app.failures:
                break
        await pilot.pause()
        yield pilot
