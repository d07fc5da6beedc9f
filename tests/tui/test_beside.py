"""The screen with two replicas side by side."""

from __future__ import annotations

from textual.pilot import Pilot

from tests.tui.snapshots import FakeSource, fleet, replica
from tests.tui.test_app import play, publish, screen_lines
from tui.app import FleetApp
from tui.screens.detail import DetailScreen

A1, A2, B1 = replica("a1"), replica("a2"), replica("b1", model="Qwen3-32B")


def test_another_replica_is_picked_with_a_key_and_stays_while_it_is_there() -> None:
    source = FakeSource(fleet([A1, B1, A2]))

    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource) -> None:
        await pilot.press("enter", "v")
        await pilot.pause()

        def shown() -> str:
            return screen_lines(app)[0].split("READ")[0].strip()

        assert shown() == "a1 beside a2"
        await pilot.press("n")
        assert shown() == "a1 beside b1"
        await publish(app, pilot, source, fleet([A1, B1, A2], sequence=2))
        assert shown() == "a1 beside b1"
        await pilot.press("p")
        assert shown() == "a1 beside a2"
        await publish(app, pilot, source, fleet([A1, B1], sequence=3))
        assert shown() == "a1 beside b1"
        await publish(app, pilot, source, fleet([A1], sequence=4))
        assert "there is no other replica" in screen_lines(app)[1]
        await pilot.press("n", "p", "escape")
        assert isinstance(app.screen, DetailScreen)

    assert not play(story, source=source).failures
