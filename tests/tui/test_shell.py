"""Command line, command list, clipboard and export as a user drives them."""

from __future__ import annotations

import asyncio
import csv
import json
from pathlib import Path

import pytest
from textual.events import AppBlur, AppFocus
from textual.message import Message
from textual.pilot import Pilot
from textual.widgets import Input

from tests.tui.running import running
from tests.tui.snapshots import AT, FakeSource, alert, down_replica, fleet, replica
from tests.tui.test_app import FLEET, play, publish, row_of_cursor, screen_kind, screen_lines, screen_text
from tui import early_keys
from tui.app import FleetApp
from tui.key_input import KeyParser
from tui.screens.alerts import AlertsScreen
from tui.screens.confirm import ConfirmScreen
from tui.screens.detail import DetailScreen
from tui.screens.fleet import FleetScreen
from tui.screens.palette import PaletteScreen


async def command(pilot: Pilot[None], line: str) -> None:
    """Type a command and enter it."""
    keys = {
        " ": "space",
        ">": "greater_than_sign",
        "-": "minus",
        ".": "full_stop",
        "/": "slash",
        "_": "underscore",
    }
    await pilot.press("colon")
    await pilot.pause()
    await pilot.press(*(keys.get(sign, sign) for sign in line), "enter")
    await pilot.pause()
    await pilot.pause()


def types(app: FleetApp) -> bool:
    """Whether the command line is open."""
    return app.top.types


def table(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file."""
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


async def at_once(app: FleetApp, pilot: Pilot[None], typed: str) -> None:
    """Bytes of a terminal that come in one piece, as over a slow link."""

    def tell(message: Message) -> None:
        app.post_message(message)

    KeyParser(tell).take(typed.encode())
    for _ in range(4):
        await pilot.pause()


def test_a_line_that_comes_in_one_piece_is_typed_where_it_is_wanted() -> None:
    """Its first key opens an entry; the others were lost, or did what they mean in the list behind it."""

    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource) -> None:
        await publish(app, pilot, source, FLEET)
        await at_once(app, pilot, ":filter kv>0.3\r")
        assert "2 of 4" in screen_text(app)
        await at_once(app, pilot, "\x10alerts")
        assert screen_kind(app) is PaletteScreen
        assert app.screen.query_one(Input).value == "alerts"
        await at_once(app, pilot, "\r")
        assert screen_kind(app) is AlertsScreen
        await at_once(app, pilot, "x json")
        assert screen_lines(app)[-1].strip() == "export svg json"
        await at_once(app, pilot, "\x03")
        assert app._exit

    app = play(story)
    assert app.failures == []


def test_lines_that_come_in_one_piece_are_carried_out_one_after_the_other() -> None:
    """What came after the first enter was typed into the same entry, or was a key of the screen left."""

    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource) -> None:
        await publish(app, pilot, source, FLEET)
        await at_once(app, pilot, ":alerts\r:sort kv down\r")
        await pilot.pause()
        screen = app.screen
        assert isinstance(screen, FleetScreen)
        assert (screen.sort.column, screen.sort.reverse, screen.types) == ("kv", False, False)
        await at_once(app, pilot, "/kv>0.3\r7:filter a1\r")
        await pilot.pause()
        assert screen_kind(app) is FleetScreen
        assert "1 of 4" in screen_text(app)
        await at_once(app, pilot, "\x10alerts\r:filter kv>0.3\r")
        await pilot.pause()
        assert screen_kind(app) is FleetScreen
        assert "2 of 4" in screen_text(app)
        await at_once(app, pilot, ":filtre\rx\r")  # a mistake stays, as when it is typed in pieces
        assert app.top.types
        await pilot.press("escape")
        await at_once(app, pilot, "7")
        assert screen_kind(app) is AlertsScreen

    assert play(story).failures == []


def test_an_escape_that_comes_together_with_what_follows_it_leaves_the_entry() -> None:
    """It was lost, and what followed was typed into the entry that was to be left, or sent it."""

    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource) -> None:
        await publish(app, pilot, source, FLEET)
        for typed in (":filter a1", "/kv>0.9", "\x10alerts"):
            await at_once(app, pilot, f"{typed}\x1b7")
            await pilot.pause()
            assert screen_kind(app) is AlertsScreen, typed
            await at_once(app, pilot, "1")
            assert screen_kind(app) is FleetScreen
        await at_once(app, pilot, ":filter a1\x1b\r")
        await pilot.pause()
        assert not app.top.types
        assert "1 of 4" not in screen_text(app)

    assert play(story).failures == []


def test_an_entry_that_goes_with_its_enter_leaves_no_key_waiting() -> None:
    """A word that is taken as it is typed closes its screen before the enter behind it is read."""

    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource) -> None:
        await publish(app, pilot, source, FLEET)
        done: list[str] = []
        screen = ConfirmScreen(
            app.inks,
            app.note_failure,
            title="roll back",
            question=lambda _picture, _width: [],
            word="y",
            done=lambda: done.append("y"),
            at_once=True,
        )
        app.open_screen(screen)
        await at_once(app, pilot, "y\r")
        assert done == ["y"]
        await at_once(app, pilot, "7")
        assert screen_kind(app) is AlertsScreen

    assert play(story).failures == []


def test_what_never_answers_does_not_keep_the_keyboard(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that hangs, say: the keys that wait are for what is on top then."""
    monkeypatch.setattr(early_keys, "_PATIENCE_SECONDS", 0.01)

    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource) -> None:
        await publish(app, pilot, source, FLEET)
        app.begin_work()
        await at_once(app, pilot, "7")
        while screen_kind(app) is not AlertsScreen:
            await pilot.pause()
        app.post_message(app.Done())
        await at_once(app, pilot, "1")
        assert screen_kind(app) is FleetScreen
        # an answer that comes too late is none to what is begun next
        monkeypatch.setattr(early_keys, "_PATIENCE_SECONDS", 60.0)
        app.begin_work()
        await at_once(app, pilot, "7")
        assert screen_kind(app) is FleetScreen
        app.post_message(app.Done())
        await pilot.pause()
        assert screen_kind(app) is AlertsScreen

    assert play(story).failures == []


def test_an_entry_that_opens_while_the_terminal_is_left_gets_the_keys() -> None:
    """It had no focus, so that all keys waited for it, escape too."""

    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource) -> None:
        await publish(app, pilot, source, FLEET)
        app.post_message(AppBlur())
        await pilot.pause()
        app.action_palette()
        await pilot.pause()
        app.post_message(AppFocus())
        await at_once(app, pilot, "al")
        assert app.screen.query_one(Input).value == "al"
        await pilot.press("escape")
        await pilot.pause()
        assert screen_kind(app) is FleetScreen

    assert play(story).failures == []


def test_filter_sort_and_open_by_command() -> None:
    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource) -> None:
        await publish(app, pilot, source, FLEET)
        await command(pilot, "filter kv>0.3")
        assert "2 of 4" in screen_text(app)
        await command(pilot, "sort kv down")
        screen = app.screen
        assert isinstance(screen, FleetScreen)
        assert (screen.sort.column, screen.sort.reverse) == ("kv", False)
        await command(pilot, "open a1")
        assert isinstance(app.screen, DetailScreen)
        assert screen_lines(app)[0].startswith(" a1 ")
        await command(pilot, "alerts")
        assert isinstance(app.screen, AlertsScreen)

    assert play(story).failures == []


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("filtre kv", "no command 'filtre'; did you mean 'filter'?"),
        ("filter kx>1", "no number called kx"),
        ("sort kw", "no column 'kw'; did you mean 'kv'?"),
        ("open zz9", "no replica 'zz9'"),
        ("theme mauve", "no theme 'mauve'"),
        ("time yesterday", "'yesterday' is no time; write -5m"),
        ("speed 2", "only a recording has a pace"),
        ("quit now", "quit takes nothing behind it"),
        ("export pdf", "no form 'pdf'"),
        ("export svg ~nobody-here/x.svg", "nobody knows the home in ~nobody-here/x.svg"),
    ],
)
def test_a_mistake_is_told_in_one_line_and_the_line_stays(line: str, said: str) -> None:
    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource) -> None:
        await publish(app, pilot, source, FLEET)
        await command(pilot, line)
        assert said in screen_text(app)
        assert types(app)
        await pilot.press("escape")
        await pilot.pause()
        assert not types(app)
        await pilot.press("j")
        assert row_of_cursor(app) == "a1"

    assert play(story).failures == []


def test_tab_completes_and_keys_belong_to_the_line() -> None:
    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource) -> None:
        await publish(app, pilot, source, FLEET)
        await pilot.press("colon")
        await pilot.pause()
        await pilot.press("o", "tab", "c", "tab")
        await pilot.pause()
        bar = app.top._bar
        assert bar is not None
        assert bar.entry.value == "open c0"
        await pilot.press("q", "7", "space", "colon", "slash", "y")
        await pilot.pause()
        assert bar.entry.value == "open c0q7 :/y"
        assert app.is_running
        await pilot.press("escape")
        await command(pilot, "pause")
        assert "PAUSED" in screen_text(app)
        await pilot.press("colon")
        await pilot.pause()
        await pilot.press("up")
        await pilot.pause()
        assert app.top._bar is not None
        assert app.top._bar.entry.value == "pause"

    assert play(story).failures == []


def test_the_command_list_finds_and_does() -> None:
    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource) -> None:
        await publish(app, pilot, source, FLEET)
        await pilot.press("ctrl+p")
        await pilot.pause()
        assert screen_kind(app) is PaletteScreen
        assert "/            QUERY: show only what matches" in screen_text(app)
        await pilot.press(*"refresh")
        await pilot.pause()
        assert "1 of " in screen_lines(app)[0]
        await pilot.press("enter")
        await pilot.pause()
        await pilot.pause()
        assert source.refreshes == 1
        assert screen_kind(app) is FleetScreen
        await pilot.press("ctrl+p")
        await pilot.pause()
        await pilot.press(*"theme", "enter")
        await pilot.pause()
        await pilot.pause()
        assert app.top._bar is not None
        assert app.top._bar.entry.value == "theme "

    assert play(story).failures == []


def test_another_theme_by_command() -> None:
    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource) -> None:
        await publish(app, pilot, source, FLEET)
        await command(pilot, "theme light")
        assert app.current_theme.name == "enginetop-light"
        assert "theme light" in screen_text(app)

    assert play(story).failures == []


def test_a_theme_of_the_users_by_command(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('base = "dark"\n[surfaces]\nbackground = "ansi_black"\n')

    async def run() -> FleetApp:
        app = FleetApp(FakeSource(), theme_folder=tmp_path)
        async with running(app) as pilot:
            await command(pilot, "theme mine")
            assert app.current_theme.name == "enginetop-mine"
            assert "theme mine" in screen_text(app)
        return app

    assert asyncio.run(run()).failures == []


def test_what_is_copied_is_plain_text() -> None:
    hostile = down_replica("a\x1b]52;c;ZXZpbA==\x07b", reasons=("refused \x1b[31mred\u202e",))

    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource) -> None:
        await publish(app, pilot, source, fleet([hostile, replica("a2")]))
        await pilot.press("y")
        await pilot.pause()
        assert "sent to the clipboard: 2 lines" in screen_text(app)
        row, reason = app.clipboard.split("\n")
        assert row.lstrip("▸").startswith("a?]")
        assert "refused ?[31mred?" in reason
        assert (row + reason).isprintable()
        await pilot.press("j", "enter", "y")
        await pilot.pause()
        assert app.clipboard.startswith(" a2 ·")
        assert all(line.isprintable() for line in app.clipboard.split("\n"))

    assert play(story, size=(200, 50)).failures == []


def test_exports_say_where_and_never_overwrite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource) -> None:
        await publish(app, pilot, source, FLEET)
        await command(pilot, "filter state:down")
        await command(pilot, "export csv down.csv")
        assert str(tmp_path / "down.csv") in screen_text(app)
        rows = table(tmp_path / "down.csv")
        assert [(row["name"], row["state"], row["kv_usage_ratio"]) for row in rows] == [("c0", "down", "")]
        await command(pilot, "filter")
        await pilot.press("escape")
        await command(pilot, "export json down.csv")
        assert "is there already; name another file" in screen_text(app)
        await pilot.press("x")
        await pilot.pause()
        await pilot.press("enter")
        await pilot.pause()
        await pilot.pause()
        (svg,) = tmp_path.glob("enginetop-fleet-*.svg")
        assert "<svg" in svg.read_text(encoding="utf-8")
        assert "needs" in svg.read_text(encoding="utf-8")
        assert '<svg xml:space="preserve"' in svg.read_text(encoding="utf-8")
        assert "@font-face" not in svg.read_text(encoding="utf-8")  # it fetches nothing from the web
        await command(pilot, "open a1")
        await command(pilot, "export json one.json")
        document = json.loads((tmp_path / "one.json").read_text(encoding="utf-8"))
        assert [one["name"] for one in document["replicas"]] == ["a1"]

    assert play(story, size=(200, 50)).failures == []


def test_alerts_are_exported_as_alerts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    fires = [alert("KvPressure", "http://a1.example:8000", summary="=1+1", since=AT - 9)]

    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource) -> None:
        await publish(app, pilot, source, fleet([replica("a1")], alerts=fires))
        await pilot.press("7")
        await command(pilot, "export csv a.csv")
        (row,) = table(tmp_path / "a.csv")
        assert (row["rule"], row["name"], row["summary"]) == ("KvPressure", "a1", "'=1+1")

    assert play(story, size=(160, 40)).failures == []
