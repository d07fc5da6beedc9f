"""Looking back: the picture of the past, the age in the heading, alerts' begins, bookmarks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from textual.pilot import Pilot

from enginetop.fleet.snapshot import FleetSnapshot
from tests.tui.changes import FakeControl
from tests.tui.snapshots import AT, FakeSource, alert, fleet, replica
from tests.tui.test_app import Clock, play, publish, row_of_cursor, screen_lines, screen_text
from tests.tui.test_tuners import FLEET, press
from tests.tui.test_tuners import play as play_controlled
from tui.app import FleetApp
from tui.screens.compare import CompareScreen
from tui.screens.fleet import FleetScreen


def at(seconds: float, kv: float, **fields: object) -> FleetSnapshot:
    """The fleet `seconds` after `AT`, its KV cache as full as told."""
    return fleet([replica("a1", changes={"kv_usage_ratio": kv})], at=AT + seconds, **fields)  # type: ignore[arg-type]


async def tell(app: FleetApp, pilot: Pilot[None], source: FakeSource, *snapshots: FleetSnapshot) -> None:
    for snapshot in snapshots:
        await publish(app, pilot, source, snapshot)


def row(app: FleetApp) -> str:
    return next(line for line in screen_lines(app) if line[1:3] == "a1")


def test_back_and_on_again_while_live_goes_on() -> None:
    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource) -> None:
        await tell(app, pilot, source, at(0, 0.11), at(100, 0.22), at(200, 0.33))
        await pilot.press("left_square_bracket")
        await pilot.pause()
        assert " 22 " in row(app)
        assert "1m40s ago, live goes on" in screen_lines(app)[0]
        assert screen_lines(app)[-1].startswith(" space live  enter detail")
        await tell(app, pilot, source, at(300, 0.44))
        app._tick()
        await pilot.pause()
        assert " 22 " in row(app)
        assert "3m20s ago, live goes on" in screen_lines(app)[0]
        await pilot.press("left_square_bracket", "left_square_bracket")
        await pilot.pause()
        assert " 11 " in row(app)
        await pilot.press("right_square_bracket", "right_square_bracket")
        await pilot.pause()
        assert " 33 " in row(app)
        await pilot.press("space")
        await pilot.pause()
        assert " 44 " in row(app)
        assert "ago" not in screen_lines(app)[0]

    assert play(story).failures == []


def test_stepping_past_the_newest_is_live() -> None:
    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource) -> None:
        await tell(app, pilot, source, at(0, 0.11), at(100, 0.22))
        await pilot.press("left_curly_bracket", "right_square_bracket")
        await tell(app, pilot, source, at(200, 0.33))
        assert " 33 " in row(app)
        assert "ago" not in screen_text(app)
        assert "PAUSED" not in screen_text(app)

    play(story)


def test_to_the_begin_of_an_alert_and_from_the_alerts_screen() -> None:
    fires = [alert("KvPressure", "http://a1.example:8000", since=AT + 90)]

    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource) -> None:
        await tell(app, pilot, source, at(0, 0.11), at(100, 0.97, alerts=fires), at(200, 0.98, alerts=fires))
        await pilot.press("left_parenthesis")
        await pilot.pause()
        assert " 97 " in row(app)
        assert "KvPressure of a1 begins" in screen_text(app)
        await pilot.press("left_parenthesis")
        await pilot.pause()
        assert "no alert began before this" in screen_text(app)
        await pilot.press("space", "7", "J")
        await pilot.pause()
        assert isinstance(app.screen, FleetScreen)
        assert " 97 " in row(app)
        assert "1m40s ago" in screen_text(app)

    play(story)


@pytest.mark.parametrize("keys", [("left_parenthesis",), ("7", "J")])
def test_the_cursor_goes_with_an_alert_to_what_it_is_about(keys: tuple[str, ...]) -> None:
    fires = [alert("KvPressure", "http://a2.example:8000", since=AT + 90)]
    two = [replica("a1"), replica("a2")]

    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource) -> None:
        await tell(app, pilot, source, fleet(two, at=AT), fleet(two, at=AT + 100, alerts=fires))
        await tell(app, pilot, source, fleet(two, at=AT + 200, alerts=fires))
        await pilot.press("G", "k", *keys)
        await pilot.pause()
        assert "1m40s ago" in screen_text(app)
        assert row_of_cursor(app) == "a2"
        assert "KvPressure of a2 begins" in screen_lines(app)[-1]

    play(story)


def test_two_bookmarks_are_compared() -> None:
    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource) -> None:
        await tell(app, pilot, source, at(0, 0.25))
        await pilot.press("b")
        await tell(app, pilot, source, at(60, 0.5))
        await pilot.press("b", "enter", "B")
        await pilot.pause()
        assert isinstance(app.screen, CompareScreen)
        assert "compare a1" in screen_lines(app)[0]
        assert "60 s apart" in screen_lines(app)[0]
        line = next(line for line in screen_lines(app) if line.startswith(" kv usage ratio"))
        assert line.split()[3:] == ["25.0", "%", "50.0", "%", "+25.0", "points", "(+100%)"]
        await pilot.press("escape", "escape", "B")
        await pilot.pause()
        assert "compare fleet" in screen_lines(app)[0]

    play(story, size=(120, 40))


def test_without_a_bookmark_the_comparison_says_how() -> None:
    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource) -> None:
        await tell(app, pilot, source, at(0, 0.25))
        await pilot.press("B")
        await pilot.pause()
        assert "no bookmark: b marks" in screen_text(app)

    play(story)


def test_a_fault_of_the_past_is_told_and_the_present_goes_on(tmp_path: Path) -> None:
    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource) -> None:
        def broken(_snapshot: FleetSnapshot) -> None:
            raise MemoryError("no room")

        app.moment.travel.timeline.add = broken  # type: ignore[method-assign, assignment]
        await tell(app, pilot, source, at(0, 0.25), at(2, 0.26))
        assert " 26 " in row(app)

    assert play(story, clock=Clock()).failures == ["timeline: MemoryError: no room"]


def test_nothing_is_applied_from_the_past() -> None:
    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource, control: FakeControl) -> None:
        await publish(app, pilot, source, replace(FLEET, at=FLEET.at + 100))
        await press(app, pilot, "8", "enter")
        assert "A apply" in screen_text(app)
        await press(app, pilot, "left_square_bracket")
        assert "A apply" not in screen_text(app)
        asked = len(control.calls)
        await press(app, pilot, "A")
        assert len(control.calls) == asked
        await press(app, pilot, "space")
        assert "A apply" in screen_text(app)

    assert play_controlled(story).failures == []
