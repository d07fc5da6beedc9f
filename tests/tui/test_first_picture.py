"""What it takes to look at engines does not hold up the first picture."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from textual._compositor import CompositorUpdate
from textual.screen import Screen

from tests.tui.running import running
from tests.tui.snapshots import FakeSource
from tui.app import FleetApp


def test_the_source_is_started_when_the_first_picture_is_with_the_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    order: list[str] = []
    display = FleetApp._display

    def _display(app: FleetApp, screen: Screen[object], renderable: Any) -> None:
        if isinstance(renderable, CompositorUpdate) and "enginetop" in renderable.render_segments(
            app.console
        ):
            order.append("title")
        display(app, screen, renderable)

    class Source(FakeSource):
        def start(self) -> None:
            order.append("start")
            super().start()

    monkeypatch.setattr(FleetApp, "_display", _display)

    async def run() -> None:
        async with running(FleetApp(Source()), (120, 30)):
            pass

    asyncio.run(run())
    assert order[0] == "title"
    assert order.count("start") == 1
