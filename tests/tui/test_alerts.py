"""The alerts' screen as an on-call person drives it: acknowledge, silence, take back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from textual.pilot import Pilot

from enginetop.alerts.rule import identity
from enginetop.alerts.silence import Acknowledgement, Silence
from enginetop.cli.quiet_file import QuietFile
from enginetop.fleet.snapshot import Alert, FleetSnapshot
from tests.tui.running import running
from tests.tui.snapshots import AT, FakeSource, alert, down_replica, fleet, replica
from tests.tui.test_app import SIZES, Clock, publish, screen_kind, screen_lines, screen_text
from tests.tui.test_shell import at_once
from tests.tui.test_tuners import press
from tui.alert_desk import WORDS_HELP
from tui.app import FleetApp
from tui.screens.alerts import AlertsScreen, WordsScreen
from tui.screens.detail import DetailScreen
from tui.screens.fleet import FleetScreen
from tui.view import numbers

A, B = "http://a.example:8000", "http://b.example:8000"
DOWN = alert("TargetDown", A, "critical", "connection refused for 60 s")
SLOW = replace(alert("TtftSlo", B, "warning", "TTFT p95 2.0 s"), labels={"model": "m"})
FLEET = replace(fleet([down_replica("a"), replica("b")]), alerts=(DOWN, SLOW))

Story = Callable[[FleetApp, "Pilot[None]", FakeSource, QuietFile], Awaitable[None]]


@pytest.fixture
def quiet(tmp_path: Path) -> QuietFile:
    return QuietFile(tmp_path / "quiet.json")


def play(
    story: Story,
    quiet: QuietFile,
    *,
    size: tuple[int, int] = (80, 24),
    snapshot: FleetSnapshot = FLEET,
    keeps: bool = True,
) -> FleetApp:
    """Run the app on a terminal of `size`, show the alerts, and tell the story."""
    source = FakeSource()
    app = FleetApp(source, clock=Clock(), approver="kim", quiet=quiet if keeps else None)
    if app._alert_desk is not None:
        app._alert_desk._now = lambda: AT

    async def run() -> None:
        async with running(app, size) as pilot:
            await publish(app, pilot, source, snapshot)
            await press(app, pilot, "7")
            await story(app, pilot, source, quiet)

    asyncio.run(run())
    return app


def selected(app: FleetApp) -> str:
    """The line of the alert under the cursor."""
    (line,) = [line for line in screen_lines(app) if line.startswith("▸")]
    return line


@pytest.mark.parametrize("size", SIZES)
def test_acknowledge_and_take_it_back(quiet: QuietFile, size: tuple[int, int]) -> None:
    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource, quiet: QuietFile) -> None:
        assert "2 firing, 0 pending" in screen_text(app)
        assert "TargetDown" in selected(app)
        await press(app, pilot, "a")
        assert quiet.read().acknowledgements == (Acknowledgement(identity(DOWN), AT, "kim"),)
        assert "TargetDown is acknowledged until it is over" in screen_text(app)
        await press(app, pilot, "u")
        assert quiet.read().acknowledgements == ()
        assert "TargetDown is no longer acknowledged" in screen_text(app)
        await press(app, pilot, "j", "n", *"on it", "enter")
        (one,) = quiet.read().acknowledgements
        assert (one.key, one.note) == (identity(SLOW), "on it")

    assert play(story, quiet, size=size).failures == []


def test_silence_for_a_while_and_take_it_back(quiet: QuietFile) -> None:
    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource, quiet: QuietFile) -> None:
        await press(app, pilot, "s", "S")
        made = quiet.read().silences
        assert [(one.until, one.by) for one in made] == [(AT + 1800, "kim"), (AT + 7200, "kim")]
        for one in made:
            assert one.covers(DOWN, "a", AT)
            assert not one.covers(replace(DOWN, rule="NoProgress"), "a", AT)
            assert not one.covers(replace(DOWN, target=B), "b", AT)
        await press(app, pilot, "u")
        assert quiet.read().silences == ()
        assert "taken back: 2 silences" in screen_text(app)
        await press(app, pilot, "u")
        assert "nothing to take back" in screen_text(app)

    assert play(story, quiet).failures == []


def test_a_silence_lasts_as_long_as_the_key_says(quiet: QuietFile) -> None:
    """What is left of it a moment later is less: the message told of 29 and of 119 minutes."""

    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource, quiet: QuietFile) -> None:
        assert app._alert_desk is not None
        moments = count()
        app._alert_desk._now = lambda: AT + next(moments) * 0.01
        await press(app, pilot, "s")
        assert "silenced for 30 min: rule TargetDown" in screen_text(app)
        await press(app, pilot, "S")
        assert "silenced for 2 h: rule TargetDown" in screen_text(app)

    assert play(story, quiet).failures == []


def test_a_note_that_comes_in_one_piece_silences_nothing(quiet: QuietFile) -> None:
    """Over a slow link its letters came before the entry, and `s` silenced for 30 minutes."""

    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource, quiet: QuietFile) -> None:
        await at_once(app, pilot, "nssd is dead\r")
        await press(app, pilot)
        await pilot.pause()
        assert [one.note for one in quiet.read().acknowledgements] == ["ssd is dead"]
        assert quiet.read().silences == ()

    assert play(story, quiet).failures == []


@pytest.mark.parametrize(
    ("typed", "mistake"),
    [
        ("4h rule=T* target=b*", "two durations, 4h and 4h: keep one"),
        ("rack 7 target=b*", "target=b* stands behind the reason: write it before"),
        ("rule= rack 7", "rule= names nothing"),
        ("model=llama", "'model=llama' is unknown; write rule=PATTERN or target=PATTERN"),
    ],
)
def test_what_is_no_reason_silences_nothing(quiet: QuietFile, typed: str, mistake: str) -> None:
    """The entry begins with `4h `: a whole silence typed behind it hit the selected alert, as a reason."""

    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource, quiet: QuietFile) -> None:
        await press(app, pilot, "c", *typed, "enter")
        assert screen_kind(app) is WordsScreen
        assert mistake in screen_text(app)
        assert quiet.read().silences == ()

    assert play(story, quiet).failures == []


def test_silence_as_typed(quiet: QuietFile) -> None:
    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource, quiet: QuietFile) -> None:
        await press(app, pilot, "c")
        assert screen_kind(app) is WordsScreen
        assert "silence TargetDown of a" in screen_text(app)
        await press(app, pilot, *["backspace"] * 3, *"4x", "enter")
        assert screen_kind(app) is WordsScreen
        assert "'4x' is no duration; write 45s, 30m, 2h or 3d" in screen_text(app)
        await press(app, pilot, "backspace", *"d target=* rack 7 moves", "enter")
        (one,) = quiet.read().silences
        assert one.id in screen_text(app)
        assert replace(one, id="") == Silence(AT + 4 * 86400, "TargetDown", "*", "rack 7 moves", by="kim")
        await press(app, pilot, "c", "escape")
        assert screen_kind(app) is AlertsScreen
        assert len(quiet.read().silences) == 1

    assert play(story, quiet).failures == []


def test_little_room_cuts_neither_the_age_nor_what_can_be_typed(quiet: QuietFile) -> None:
    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource, quiet: QuietFile) -> None:
        assert selected(app).endswith("firing 60 s")
        await press(app, pilot, "c")
        lines = screen_lines(app)
        assert " ".join(lines[1:3]).split() == WORDS_HELP.split()
        assert not any("…" in line for line in lines[1:])

    assert play(story, quiet, size=(50, 15)).failures == []


def test_what_is_quiet_stays_on_the_screen_and_is_marked(quiet: QuietFile) -> None:
    quieted = (
        replace(DOWN, acknowledged_by="ana: \x1b[2Jrebooting"),
        replace(SLOW, silenced_by="load test", silenced_until=SLOW.since + 1800),
        replace(alert("KvPressure", A), inhibited_by="TargetDown"),
        replace(alert("TpotSlo", B), state="pending"),
    )

    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource, quiet: QuietFile) -> None:
        text = screen_text(app)
        for expected in (
            "firing 60 s · acknowledged by ana: ?[2Jrebooting",
            f"firing 60 s · silenced until {numbers.date_and_time(SLOW.since + 1800)[11:]}: load test",
            "because of TargetDown",
            "pending 60 s",
            "3 firing, 3 of them quiet or looked after, 1 pending",
        ):
            assert expected in text
        await press(app, pilot, "j", "u")
        assert "silenced by the config file" in screen_text(app)

    assert play(story, quiet, snapshot=replace(FLEET, alerts=quieted), size=(120, 24)).failures == []


def test_the_cursor_stays_on_its_alert_and_enter_shows_the_replica(quiet: QuietFile) -> None:
    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource, quiet: QuietFile) -> None:
        await press(app, pilot, "j")
        more = (alert("NoProgress", A, "critical"), *FLEET.alerts)
        await publish(app, pilot, source, replace(FLEET, alerts=more))
        assert "TtftSlo" in selected(app)
        await press(app, pilot, "enter")
        assert screen_kind(app) is DetailScreen
        await press(app, pilot, "escape", "escape")
        assert screen_kind(app) is FleetScreen

    assert play(story, quiet).failures == []


def test_without_alerts_there_is_nothing_to_do(quiet: QuietFile) -> None:
    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource, quiet: QuietFile) -> None:
        assert "nothing fires and nothing is pending" in screen_text(app)
        assert " ack" not in screen_lines(app)[-1]
        await press(app, pilot, "a", "s", "S", "c", "n", "u", "enter")
        assert screen_kind(app) is AlertsScreen
        assert quiet.read().silences == ()

    assert play(story, quiet, snapshot=replace(FLEET, alerts=())).failures == []


def test_a_recording_cannot_be_silenced(quiet: QuietFile) -> None:
    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource, quiet: QuietFile) -> None:
        assert "silence" not in screen_lines(app)[-1]
        await press(app, pilot, "a", "s")
        assert "2 firing" in screen_text(app)
        assert quiet.read().silences == ()

    assert play(story, quiet, keeps=False).failures == []


def test_a_disk_that_does_not_take_it_is_told(quiet: QuietFile, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    broken = QuietFile(tmp_path / "file" / "quiet.json")

    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource, quiet: QuietFile) -> None:
        await press(app, pilot, "a")
        assert "nothing was changed" in screen_text(app)
        await press(app, pilot, "s")
        assert "nothing was changed" in screen_text(app)

    assert play(story, broken, size=(200, 24)).failures == []


def test_of_two_alerts_of_one_rule_only_the_chosen_one_is_acknowledged(quiet: QuietFile) -> None:
    def hot(uuid: str) -> Alert:
        return replace(alert("GpuHot", A), labels={"gpu_uuid": uuid})

    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource, quiet: QuietFile) -> None:
        await press(app, pilot, "j", "a")
        (one,) = quiet.read().acknowledgements
        assert one.key[3] == (("gpu_uuid", "G-2"),)

    assert play(story, quiet, snapshot=replace(FLEET, alerts=(hot("G-1"), hot("G-2")))).failures == []


def test_why_and_history_of_the_selected_alert(quiet: QuietFile) -> None:
    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource, quiet: QuietFile) -> None:
        await press(app, pilot, "w")
        assert "why · TargetDown · a" in screen_lines(app)[0]
        assert "fires after 30 s of it" in screen_text(app)
        await publish(app, pilot, source, replace(FLEET, alerts=(SLOW,), sequence=2, at=AT + 2))
        assert "this alert is over" in screen_text(app)
        await press(app, pilot, "escape")
        again = replace(DOWN, since=AT + 4)
        await publish(app, pilot, source, replace(FLEET, alerts=(again, SLOW), sequence=3, at=AT + 4))
        await press(app, pilot, "h")
        assert "alerts that began" in screen_lines(app)[0]
        assert "TargetDown" in screen_lines(app)[1]
        assert "still fires" in screen_lines(app)[1]
        await press(app, pilot, "enter")
        assert screen_kind(app) is DetailScreen
        await press(app, pilot, "escape", "escape")
        assert screen_kind(app) is AlertsScreen

    assert not play(story, quiet, keeps=False).failures
