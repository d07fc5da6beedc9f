"""The user's keys, the mouse, and faults that stay where they are."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from textual.events import MouseEvent, MouseScrollDown, MouseScrollUp
from textual.pilot import Pilot

from enginetop.fleet.ports import PlaybackState
from enginetop.fleet.snapshot import FleetSnapshot
from tests.tui.running import running
from tests.tui.snapshots import AT, FakeSource, down_replica, fleet, replica
from tests.tui.test_app import (
    FLEET,
    Clock,
    play,
    publish,
    row_of_cursor,
    screen_lines,
    screen_text,
)
from tests.tui.test_shell import command
from tui.actions import Action
from tui.app import FleetApp
from tui.keymap import with_keys
from tui.screens.fleet import FleetScreen


def run(app: FleetApp, source: FakeSource, keys: Sequence[str], snapshot: FleetSnapshot = FLEET) -> list[str]:
    """Publish, press, and return what is on the screen."""
    found: list[str] = []

    async def story() -> None:
        async with running(app, (200, 50)) as pilot:
            await publish(app, pilot, source, snapshot)
            for key in keys:
                await pilot.press(key)
                await pilot.pause()
            found.extend(screen_lines(app))

    asyncio.run(story())
    return found


def with_own(**keys: list[str]) -> tuple[FleetApp, FakeSource]:
    """An app with the user's keys; `_` stands for `-`."""
    source = FakeSource()
    actions: tuple[Action, ...] = with_keys({word.replace("_", "-"): own for word, own in keys.items()})
    return FleetApp(source, clock=Clock(), actions=actions), source


def test_own_keys_act_and_the_usual_ones_no_longer_do() -> None:
    own = {"pause": ["f9"], "open": ["o"], "down": ["e"], "help": ["H"]}
    lines = run(*with_own(**own), ["e", "e", "space", "j", "enter", "o"])
    assert lines[0].startswith(" a2 ")
    assert "PAUSED" not in lines[0]
    lines = run(*with_own(**own), ["f9"])
    assert "PAUSED" in lines[0]
    assert "o detail" in lines[-1]
    assert "H help" in lines[-1]
    lines = run(*with_own(**own), ["H", "e"])
    assert lines[0].startswith(" enginetop help")
    assert ["o", "all"] in [line.split()[:2] for line in lines]


def test_own_keys_can_be_swapped() -> None:
    lines = run(*with_own(sort_next=["S"], sort_turn=["s"]), ["S", "s"])
    header = next(line for line in lines if line.startswith(" replica"))
    assert header.split()[0] == "replica↓"


def test_a_click_on_a_columns_title_sorts_and_turns() -> None:
    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource) -> None:
        await publish(app, pilot, source, FLEET)
        screen = app.screen
        assert isinstance(screen, FleetScreen)
        for expected in (False, True, False):
            header = next(line for line in screen_lines(app) if line.startswith(" replica"))
            await pilot.click("#columns", offset=(header.index("run"), 0))
            await pilot.pause()
            assert (screen.sort.column, screen.sort.reverse) == ("run", expected)
        await pilot.click("#columns", offset=(0, 0))
        assert screen.sort.column == "run"

    assert play(story, size=(200, 50)).failures == []


def test_a_click_takes_along_what_the_footer_says_is_in_sight() -> None:
    """The row at the foot has its reason below it, which the click brings in sight."""

    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource) -> None:
        await publish(app, pilot, source, fleet([down_replica(f"d{number:02}") for number in range(40)]))
        assert screen_lines(app)[-1].split()[-3] == "1–20"
        await pilot.click("#grid", offset=(3, 19))
        await pilot.pause()
        assert screen_lines(app)[-1].split()[-3] == "2–21"

    assert play(story, size=(120, 25)).failures == []


def test_columns_by_command() -> None:
    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource) -> None:
        await publish(app, pilot, source, FLEET)
        await pilot.press("colon")
        await pilot.pause()
        await pilot.press(*"columns tok", "comma", "k", "v", "enter")
        await pilot.pause()
        await pilot.pause()
        header = next(line for line in screen_lines(app) if line.startswith(" replica"))
        assert header.split()[:4] == ["replica", "state", "tok/s", "KV"]
        await command(pilot, "columns all")
        assert "run" in next(line for line in screen_lines(app) if line.startswith(" replica"))

    assert play(story, size=(200, 50)).failures == []


def test_a_key_that_fails_is_told_at_the_foot_and_the_rest_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken(_screen: FleetScreen) -> None:
        raise ValueError("no order\x1b[2J")

    monkeypatch.setattr(FleetScreen, "action_sort_next", broken)
    source = FakeSource()
    log = tmp_path / "state" / "faults.log"
    app = FleetApp(source, clock=Clock(), fault_log=log)
    lines = run(app, source, ["s"])
    assert "✖ sort_next: ValueError: no order?[2J" in lines[-1]
    assert any("c0 down 72 s" in line for line in lines)
    assert app.failures == ["sort_next: ValueError: no order?[2J"]
    text = log.read_text(encoding="utf-8")
    assert "sort_next: ValueError: no order?[2J\n" in text
    assert "test_habits.py" in text
    assert log.stat().st_mode & 0o777 == 0o600


def test_a_view_that_fails_as_a_whole_is_told_at_the_foot(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tui.screens.alerts.AlertsScreen.paint", lambda _screen: [][1])
    source = FakeSource()
    app = FleetApp(source, clock=Clock(), fault_log=tmp_path / "faults.log")
    lines = run(app, source, ["7"])
    assert "✖ alerts: IndexError" in lines[-1]
    assert str(tmp_path / "faults.log") in lines[-1]
    lines = run(FleetApp(source, clock=Clock()), source, ["7", "1"])
    assert any("c0 down 72 s" in line for line in lines)
    assert app.failures[0].startswith("alerts: IndexError")


def test_a_log_that_cannot_be_written_is_no_further_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("", encoding="utf-8")
    monkeypatch.setattr("tui.screens.fleet.totals_line", lambda *_: 1 / 0)
    source = FakeSource()
    app = FleetApp(source, clock=Clock(), fault_log=blocked / "faults.log")
    assert any("totals failed: ZeroDivisionError" in line for line in run(app, source, []))
    assert len(app.failures) == 1


class FakePlayback(FakeSource):
    """A recording under the test's hands."""

    def __init__(self) -> None:
        super().__init__()
        self.state = PlaybackState(AT, AT - 60, AT + 3600, 1.0, paused=False)
        self.sought: list[float] = []

    def playback(self) -> PlaybackState:
        """How it stands."""
        return self.state

    def set_speed(self, speed: float) -> None:
        """Note it."""
        self.state = PlaybackState(AT, AT - 60, AT + 3600, speed, self.state.paused)

    def set_paused(self, paused: bool) -> None:
        """Note it."""
        self.state = PlaybackState(AT, AT - 60, AT + 3600, self.state.speed, paused)

    def seek(self, at: float) -> None:
        """Note it."""
        self.sought.append(at)


def test_a_recording_is_played_by_the_same_keys() -> None:
    source = FakePlayback()
    app = FleetApp(source, clock=Clock(), playback=source)

    async def story() -> None:
        async with running(app, (140, 30)) as pilot:
            await publish(app, pilot, source, fleet([replica("a1")], at=AT - 10))
            await publish(app, pilot, source, fleet([replica("a1")], at=AT))
            assert "60 s of 61 min" in screen_lines(app)[0]
            assert " 1× " in screen_lines(app)[0]
            assert "+ faster" in screen_text(app)
            await pilot.press("plus", "plus", "space")
            await pilot.pause()
            assert (source.state.speed, source.state.paused) == (10.0, True)
            assert " STANDS " in screen_lines(app)[0]
            assert "here " in screen_lines(app)[0]
            await pilot.press("right_square_bracket", "right_curly_bracket", "minus")
            await pilot.pause()
            assert source.refreshes == 1
            assert source.sought == [AT + 2, AT + 60]
            assert source.state.speed == 2.0
            await pilot.press("left_square_bracket")
            await pilot.pause()
            assert "10s ago" in screen_lines(app)[0]
            assert "live goes on" not in screen_lines(app)[0]
            await command(pilot, "time -5m")
            assert source.sought[-1] == AT - 10 - 300
            await command(pilot, "speed 60")
            await command(pilot, "speed play")
            assert (source.state.speed, source.state.paused) == (60.0, False)

    asyncio.run(story())
    assert app.failures == []


def test_json_of_a_past_picture_is_the_one_of_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource) -> None:
        for second, kv in ((0, 0.125), (10, 0.5)):
            snapshot = fleet([replica("a1", changes={"kv_usage_ratio": kv})], at=AT + second)
            await publish(app, pilot, source, snapshot)
        await pilot.press("left_square_bracket")
        await command(pilot, "export json past.json")
        document = json.loads((tmp_path / "past.json").read_text(encoding="utf-8"))
        assert document["at"] == AT
        assert document["replicas"][0]["signals"]["kv_usage_ratio"]["value"] == 0.125
        assert row_of_cursor(app) == "a1"

    assert play(story).failures == []


def test_a_screen_that_is_half_taken_down_paints_nothing() -> None:
    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource) -> None:
        await publish(app, pilot, source, fleet([replica("a1")], at=AT))
        await app.screen.query_one("#title").remove()
        await publish(app, pilot, source, fleet([replica("a1")], at=AT + 2))

    assert play(story).failures == []


@pytest.mark.parametrize("size", [(20, 5), (10, 2), (50, 15), (300, 100)])
def test_every_habit_on_odd_terminals(size: tuple[int, int]) -> None:
    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource) -> None:
        await publish(app, pilot, source, FLEET)
        for keys in (["colon", "x", "enter", "escape"], ["ctrl+p", "down", "escape"], ["b", "B", "escape"]):
            for key in keys:
                await pilot.press(key)
                await pilot.pause()
                assert screen_lines(app)
        await pilot.press("left_square_bracket", "left_parenthesis", "y", "space")
        await pilot.pause()

    assert play(story, size=size).failures == []


def wheel(app: FleetApp, kind: type[MouseEvent], x: int, y: int) -> None:
    """Turn the wheel by one step over a cell."""
    app.post_message(kind(None, x, y, 0, 0, 0, False, False, False, screen_x=x, screen_y=y))


def test_the_wheel_takes_along_what_the_footer_says_is_in_sight() -> None:
    """It stood as before until the next picture: with an interval of 5 s so long, on a help page for ever."""

    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource) -> None:
        await publish(app, pilot, source, fleet([replica(f"r{number:02}") for number in range(40)]))
        for place in ("fleet", "help"):
            first = screen_lines(app)[-1].split()[-3]
            assert first.startswith("1–"), place
            wheel(app, MouseScrollDown, 10, 9)
            await pilot.pause()
            await pilot.pause()
            assert not screen_lines(app)[-1].split()[-3].startswith("1–"), place
            wheel(app, MouseScrollUp, 10, 9)
            await pilot.pause()
            await pilot.pause()
            assert screen_lines(app)[-1].split()[-3] == first, place
            await pilot.press("question_mark")
            await pilot.pause()

    assert play(story, size=(120, 24)).failures == []
