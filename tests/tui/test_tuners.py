"""The tuners as a user drives them: suggestion, typed confirmation, canary, rollback, past."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import pytest
from textual.pilot import Pilot

from enginetop.fleet.change import AuditRow, ChangeState, Proposal, Verdict
from enginetop.fleet.snapshot import FleetSnapshot, Outlook
from tests.tui.changes import (
    HISTORY,
    KNOB,
    OBSERVED,
    PAST,
    FakeControl,
    changed,
    hold,
    pool,
    refusal,
    row,
    url,
)
from tests.tui.running import running
from tests.tui.snapshots import FakeSource, down_replica, fleet
from tests.tui.test_app import SIZES, Clock, publish, screen_kind, screen_lines, screen_text
from tui.app import FleetApp
from tui.run import run_app
from tui.screens.change import ChangeScreen, PastScreen
from tui.screens.confirm import ConfirmScreen
from tui.screens.detail import DetailScreen
from tui.screens.fleet import FleetScreen
from tui.screens.left_alone import LeftAloneScreen
from tui.screens.suggestion import SuggestionScreen
from tui.screens.tuners import TunersScreen
from tui.screens.what_if import WhatIfScreen
from tui.view.past import PastChange, past_changes

FLEET = fleet([*pool(), down_replica("c0")])

Story = Callable[[FleetApp, "Pilot[None]", FakeSource, FakeControl], Awaitable[None]]


def play(
    story: Story,
    *,
    size: tuple[int, int] = (80, 24),
    control: FakeControl | None = None,
    read_only: bool = False,
    snapshot: FleetSnapshot = FLEET,
    approver: str = "ana",
) -> FleetApp:
    """Run the app with a controller on a terminal of `size`, show the fleet, and tell the story."""
    source, control = FakeSource(), control or FakeControl()
    app = FleetApp(
        source, title="prod-eu", clock=Clock(), control=control, read_only=read_only, approver=approver
    )

    async def run() -> None:
        async with running(app, size) as pilot:
            await publish(app, pilot, source, snapshot)
            await story(app, pilot, source, control)

    asyncio.run(run())
    return app


async def press(app: FleetApp, pilot: Pilot[None], *keys: str) -> None:
    """Press keys one by one; wait after each for what it asked of the controller."""
    for key in keys:
        await pilot.press(key)
        if app.workers:
            await app.workers.wait_for_complete()
            await pilot.pause()


def footer(app: FleetApp) -> str:
    return screen_lines(app)[-1]


@pytest.mark.parametrize("size", SIZES)
def test_from_the_suggestion_to_the_canary(size: tuple[int, int]) -> None:
    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource, control: FakeControl) -> None:
        assert "8 tune·1" in footer(app)
        await press(app, pilot, "8")
        assert "1 suggestion for 1 replica" in screen_text(app)
        await press(app, pilot, "enter")
        assert screen_kind(app) is SuggestionScreen
        assert control.acts == [("propose", url("b1"), KNOB)]
        for expected in ("8192 → 6144", "58 %", "46–50 ms", "prompts pass 3k", "32 min to a verdict"):
            assert expected in screen_text(app)
        assert "A apply" in footer(app)
        await press(app, pilot, "A")
        assert screen_kind(app) is ConfirmScreen
        assert "type b1 and press enter to do it" in screen_text(app)
        app.clock.now += 1.0  # type: ignore[attr-defined]
        await press(app, pilot, "b", "1", "enter")
        assert control.acts[1:] == [
            ("propose", url("b1"), KNOB),  # the change is worked out anew before it is confirmed
            ("start", "7f3a", 'ana (typed "b1")'),
        ]
        assert screen_kind(app) is ChangeScreen
        assert "change 7f3a · b1 · CANARY" in screen_text(app)
        app.clock.now += 1.0  # type: ignore[attr-defined]
        control.tell(OBSERVED)
        await pilot.pause()
        text = screen_text(app)
        for expected in ("block 11 of 30", "94.1 % of 2642", "88.0 % of 5455", "judged at the end"):
            assert expected in text
        await press(app, pilot, "1")
        assert screen_kind(app) is FleetScreen
        assert "OBSERVE b1" in screen_lines(app)[0]

    assert play(story, size=size).failures == []


def test_a_suggestion_that_has_come_to_hold_offers_no_start() -> None:
    calm = replace(pool()[0], advice=(hold("TPOT p95 24 ms is within the 25 ms SLO"),))

    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource, control: FakeControl) -> None:
        await press(app, pilot, "8", "enter")
        assert "A apply" in footer(app)
        await publish(app, pilot, source, fleet([calm, *pool()[1:]]))
        assert "hold: stays at 8192" in screen_text(app)
        assert "apply" not in footer(app)
        await press(app, pilot, "A")
        assert screen_kind(app) is SuggestionScreen
        assert control.acts == [("propose", url("b1"), KNOB)]

    assert play(story).failures == []


def test_the_wrong_word_starts_nothing() -> None:
    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource, control: FakeControl) -> None:
        await press(app, pilot, "8", "enter", "A", "b", "enter")
        assert screen_kind(app) is ConfirmScreen
        assert "'b' is not 'b1'" in screen_text(app)
        await press(app, pilot, "2")
        assert "type b1" in screen_text(app)
        await press(app, pilot, "enter", "escape")
        assert screen_kind(app) is SuggestionScreen
        assert not any(call[0] == "start" for call in control.calls)

    assert play(story).failures == []


@pytest.mark.parametrize("size", [(80, 8), (30, 12), (60, 5)])
def test_prompt_and_entry_stay_in_sight_of_a_long_question(size: tuple[int, int]) -> None:
    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource, control: FakeControl) -> None:
        await press(app, pilot, "8", "enter", "A", "b")
        lines = screen_lines(app)
        assert [line[:9].rstrip() for line in lines[-3:-1]] == [" type b1", " b"]
        await press(app, pilot, "1", "enter")
        assert ("start", "7f3a", 'ana (typed "b1")') in control.calls

    assert play(story, size=size).failures == []


def test_keys_of_other_screens_are_letters_of_the_word() -> None:
    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource, control: FakeControl) -> None:
        await press(app, pilot, "8", "enter", "A", "q", "1", "8", "K", "question_mark", "r", "space")
        assert screen_kind(app) is ConfirmScreen
        assert source.refreshes == 0
        assert "q18K?r" in screen_text(app)

    assert play(story).failures == []


def outlook(knob: str, value: int) -> Outlook:
    expected = {"tpot_p95_seconds_from": 0.061, "tpot_p95_seconds_low": 0.02, "tpot_p95_seconds_high": 0.03}
    if value > 8192:
        return Outlook(knob, value, "withheld", ("the fit does not reach so far",), 8192)
    return Outlook(knob, value, "predicted", ("a full step takes 25 ms",), 8192, expected, ("by the fit",))


@pytest.mark.parametrize("size", [(80, 24), (200, 50)])
def test_a_typed_value_is_told_and_not_set(size: tuple[int, int]) -> None:
    members = [replace(one, what_if=outlook) for one in FLEET.replicas]

    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource, control: FakeControl) -> None:
        await press(app, pilot, "8")
        assert "w what if" in footer(app)
        await press(app, pilot, "enter", "w")
        asked = len(control.calls)
        assert screen_kind(app) is WhatIfScreen
        assert f"what if · b1 · {KNOB}" in screen_lines(app)[0]
        await press(app, pilot, "2", "0", "4", "8")
        assert "2048  TPOT p95 61 → 20–30 ms" in screen_text(app)
        assert "a full step takes 25 ms" in screen_text(app)
        await press(app, pilot, "space", "q")
        assert "q is no value: whole numbers, such as 64" in screen_text(app)
        await press(app, pilot, "backspace", "9", "9", "9", "9")
        assert "9999  withheld: the fit does not reach so far" in screen_text(app)
        await publish(app, pilot, source, replace(FLEET, replicas=()))
        assert "nobody can tell" in screen_text(app)
        await press(app, pilot, "escape")
        assert screen_kind(app) is SuggestionScreen
        assert len(control.calls) == asked

    assert play(story, size=size, snapshot=replace(FLEET, replicas=tuple(members))).failures == []


def test_a_value_is_asked_of_all_replicas_of_a_quiet_row() -> None:
    members = [replace(one, what_if=outlook) for one in FLEET.replicas]

    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource, control: FakeControl) -> None:
        await press(app, pilot, "8", "G", "w")
        assert screen_kind(app) is WhatIfScreen
        title = screen_lines(app)[0]
        await press(app, pilot, "7", "escape", "enter")
        assert screen_kind(app) is LeftAloneScreen
        await press(app, pilot, "w")
        assert (screen_kind(app), screen_lines(app)[0]) == (WhatIfScreen, title)

    assert play(story, snapshot=replace(FLEET, replicas=tuple(members)), read_only=True).failures == []


def test_what_the_controller_refuses_is_told_and_not_confirmed() -> None:
    proposal = Proposal("", KNOB, None, None, url("b1"), refusals=("b1: the engine was restarted",))

    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource, control: FakeControl) -> None:
        await press(app, pilot, "8", "enter", "A")
        assert screen_kind(app) is SuggestionScreen
        assert "refused     b1: the engine was restarted" in screen_text(app)

    assert play(story, control=FakeControl(proposal)).failures == []


@pytest.mark.parametrize("keys", [("A",), ("A", "b", "1", "enter")])
def test_a_call_that_fails_is_told_in_its_place(keys: Sequence[str]) -> None:
    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource, control: FakeControl) -> None:
        await press(app, pilot, "8", "enter", *keys[:-1])
        control.trouble = refusal("another controller is at work: pid 4711")
        await press(app, pilot, keys[-1])
        assert screen_kind(app) is SuggestionScreen
        assert "trouble     another controller is at work: pid 4711" in screen_text(app)

    assert play(story).failures == []


def test_a_fault_of_the_controller_is_told_and_ends_nothing() -> None:
    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource, control: FakeControl) -> None:
        await press(app, pilot, "8")
        control.trouble = KeyError("no such thing")
        await press(app, pilot, "enter")
        assert "trouble     KeyError: 'no such thing'" in screen_text(app)

    assert play(story).failures == ["control: KeyError: 'no such thing'"]


@pytest.mark.parametrize("size", SIZES)
def test_read_only_has_no_dangerous_key(size: tuple[int, int]) -> None:
    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource, control: FakeControl) -> None:
        assert "READ-ONLY" in screen_lines(app)[0]
        await press(app, pilot, "8", "K")
        assert screen_kind(app) is TunersScreen
        await press(app, pilot, "j", "enter", "A")
        assert screen_kind(app) is SuggestionScreen
        assert "read-only: the config has no [control]" in screen_text(app)
        assert "apply" not in footer(app)
        await press(app, pilot, "question_mark")
        help_text = "\n".join(screen_lines(app))
        await press(app, pilot, "escape", "escape", "g", "enter", "K")
        assert screen_kind(app) is ChangeScreen
        assert "roll back" not in footer(app) + help_text
        assert control.acts == []

    assert play(story, size=size, control=FakeControl(changes=(OBSERVED,)), read_only=True).failures == []


def test_without_a_controller_all_is_read_only() -> None:
    source = FakeSource(FLEET)
    app = FleetApp(source, clock=Clock(), read_only=False)

    async def run() -> None:
        async with running(app) as pilot:
            assert "READ-ONLY" in screen_lines(app)[0]
            await pilot.press("8", "enter", "A")
            await pilot.pause()
            assert screen_kind(app) is SuggestionScreen
            await pilot.press("escape", "h")
            await pilot.pause()
            assert "no controller: the config has no [control]" in screen_text(app)

    asyncio.run(run())
    assert app.failures == []


@pytest.mark.parametrize("where", [("8",), ("8", "enter")])
def test_rolling_back_takes_one_answer(where: Sequence[str]) -> None:
    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource, control: FakeControl) -> None:
        await press(app, pilot, *where)
        assert "K roll back" in footer(app)
        await press(app, pilot, "K")
        assert screen_kind(app) is ConfirmScreen
        assert "6144 → 8192" in screen_text(app)
        await press(app, pilot, "escape")
        assert control.acts == []
        await press(app, pilot, "K", "y")
        assert control.acts == [("roll_back", "7f3a")]
        assert screen_kind(app) is not ConfirmScreen

    assert play(story, control=FakeControl(changes=(OBSERVED,))).failures == []


def test_what_is_undone_or_was_never_done_is_not_rolled_back() -> None:
    held = changed(state=ChangeState.HELD, verdict=Verdict.INCONCLUSIVE, eta_seconds=None)

    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource, control: FakeControl) -> None:
        await press(app, pilot, "8", "K", "enter", "K")
        assert screen_kind(app) is ChangeScreen
        assert "roll back" not in footer(app)

    assert play(story, control=FakeControl(changes=(held,))).failures == []


def test_a_rollback_that_cannot_be_asked_for_is_told() -> None:
    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource, control: FakeControl) -> None:
        await press(app, pilot, "8", "enter", "K")
        control.trouble = refusal("the change 7f3a is REFUSED: nothing of it is in force")
        await press(app, pilot, "y")
        assert "✖ the change 7f3a is REFUSED" in screen_text(app)

    assert play(story, control=FakeControl(changes=(OBSERVED,))).failures == []


def test_past_changes_and_one_of_them() -> None:
    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource, control: FakeControl) -> None:
        await press(app, pilot, "8", "h")
        assert screen_kind(app) is PastScreen
        lines = screen_lines(app)
        assert "2 changes, newest first" in lines[0]
        assert lines[1].startswith("▸")
        assert lines[2].endswith("ROLLED BACK worse")
        await press(app, pilot, "j", "enter")
        assert screen_kind(app) is ChangeScreen
        assert "change 11aa" in screen_text(app)
        assert "worse: -5.1 points" in screen_text(app)
        assert "roll back" not in footer(app)
        control.rows = (*PAST, row(1, ChangeState.PLANNED, "plan 22bb", change="22bb"))
        await press(app, pilot, "escape")
        assert "3 changes, newest first" in screen_lines(app)[0]  # the audit is read again
        assert screen_lines(app)[3].startswith("▸")  # the cursor stays on its change

    assert play(story).failures == []


async def until(told: Callable[[], bool], pilot: Pilot[None]) -> None:
    """Wait for what comes by itself."""
    async with asyncio.timeout(20):
        while not told():
            await pilot.pause(0.01)


def test_past_changes_follow_what_another_process_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tui.screens.audit_reader.AGAIN_SECONDS", 0.02)
    begun = (*PAST, row(90, ChangeState.PLANNED, "plan 22bb", change="22bb"))
    ended = (*begun, row(30, ChangeState.DONE, "kept", change="22bb", verdict=Verdict.IMPROVED))

    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource, control: FakeControl) -> None:
        await press(app, pilot, "8", "h")
        control.rows = begun
        await until(lambda: "3 changes, newest first" in screen_lines(app)[0], pilot)
        await press(app, pilot, "k", "enter")
        assert "change 22bb" in screen_text(app)
        assert "DONE" not in screen_text(app)
        control.rows = ended
        await until(lambda: "DONE" in screen_text(app), pilot)
        await press(app, pilot, "escape")
        await until(lambda: screen_lines(app)[1].endswith("DONE improved"), pilot)

    assert play(story).failures == []


def test_the_list_tells_of_a_change_of_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tui.screens.audit_reader.AGAIN_SECONDS", 0.02)
    begun = (*PAST[:2], row(30, ChangeState.PLANNED, "plan 22bb", change="22bb"))
    ended = (*begun, row(10, ChangeState.DONE, "kept", change="22bb", verdict=Verdict.IMPROVED))

    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource, control: FakeControl) -> None:
        control.rows = PAST[:2]
        await press(app, pilot, "8")
        assert "elsewhere" not in screen_lines(app)[1]
        control.rows = begun
        await until(lambda: "1 change elsewhere not over (h)" in screen_lines(app)[1], pilot)
        control.rows = ended
        await until(lambda: "elsewhere" not in screen_lines(app)[1], pilot)

    assert play(story).failures == []


@pytest.mark.parametrize("keys", [["8", "enter"], ["8", "h", "enter"]], ids=["list", "past"])
def test_a_change_that_another_process_undid_is_not_told_as_in_force(
    monkeypatch: pytest.MonkeyPatch, keys: Sequence[str]
) -> None:
    """`enginetop rollback` beside the screen: it went on with `in force on 4`, and offered the rollback."""
    monkeypatch.setattr("tui.screens.audit_reader.AGAIN_SECONDS", 0.02)
    done = (*HISTORY, row(20, ChangeState.DONE, "in force on 4", verdict=Verdict.IMPROVED))
    undone = (*done, row(5, ChangeState.ROLLED_BACK, "asked for by ann", verdict=Verdict.IMPROVED))
    kept = changed(state=ChangeState.DONE, detail="in force on 4", history=done, verdict=Verdict.IMPROVED)

    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource, control: FakeControl) -> None:
        control.rows = done
        await press(app, pilot, *keys)
        assert screen_kind(app) is ChangeScreen
        assert "DONE" in screen_lines(app)[0]
        assert "roll back" in footer(app)
        control.rows = undone
        await until(lambda: "asked for by ann" in screen_text(app), pilot)
        assert "DONE" not in screen_lines(app)[0]
        assert "ROLLED BACK" in screen_lines(app)[1]
        assert "roll back" not in footer(app)
        while screen_kind(app) is not TunersScreen:
            await press(app, pilot, "escape")
        await until(lambda: "in force on 4" not in screen_text(app), pilot)
        assert "roll back" not in footer(app)

    assert play(story, control=FakeControl(changes=(kept,))).failures == []


def test_a_change_whose_process_is_gone_is_told_as_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """It went on as OBSERVE for ever, as one that somebody carries out does."""
    monkeypatch.setattr("tui.screens.audit_reader.AGAIN_SECONDS", 0.02)

    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource, control: FakeControl) -> None:
        await press(app, pilot, "8")
        assert "1 change elsewhere not over (h)" in screen_text(app)
        control.busy = ""
        await until(lambda: "1 change left unfinished (h)" in screen_text(app), pilot)
        assert "elsewhere" not in screen_text(app)  # it is counted once
        await press(app, pilot, "h")
        assert "left in OBSERVE" in screen_lines(app)[1]
        assert "left" not in screen_lines(app)[2]  # that one is over
        await press(app, pilot, "enter")
        assert "nobody carries it out any more" in screen_text(app)
        assert "roll back" in footer(app)
        control.busy = "rollback of 7f3a (process 7)"
        await until(lambda: "nobody carries it out" not in screen_text(app), pilot)

    assert play(story, control=FakeControl(changes=())).failures == []


def test_a_change_that_ends_while_the_audit_is_read_is_not_told_as_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its last row came after the reading, and the lock was free a moment later."""
    monkeypatch.setattr("tui.screens.audit_reader.AGAIN_SECONDS", 0.02)

    class Ending(FakeControl):
        def audit(self) -> Sequence[AuditRow]:
            rows = super().audit()
            self.busy = ""
            return rows

    told = list[bool]()

    def noted(rows: Sequence[AuditRow], *, nobody_at_work: bool) -> tuple[PastChange, ...]:
        told.append(nobody_at_work)
        return past_changes(rows, nobody_at_work=nobody_at_work)

    monkeypatch.setattr("tui.screens.audit_reader.past_changes", noted)

    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource, control: FakeControl) -> None:
        await press(app, pilot, "8")
        await until(lambda: True in told, pilot)
        assert told == [False, True]  # the next reading finds nobody from its start

    assert play(story, control=Ending(changes=())).failures == []


def test_the_audit_is_left_alone_while_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource, control: FakeControl) -> None:
        await press(app, pilot, "8", "h")
        screen = app.screen
        assert isinstance(screen, PastScreen)
        assert screen._audit is not None
        await press(app, pilot, "question_mark")
        asked = len(control.calls)
        screen._audit.read()
        await pilot.pause()
        assert len(control.calls) == asked

    assert play(story).failures == []


def test_what_the_controller_tells_of_is_not_looked_up_in_the_audit() -> None:
    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource, control: FakeControl) -> None:
        await press(app, pilot, "8", "h", "enter")
        screen = app.screen
        assert isinstance(screen, ChangeScreen)
        assert screen.change_id == OBSERVED.id
        asked = len(control.calls)
        assert screen._audit is not None
        screen._audit.read()
        await pilot.pause()
        assert len(control.calls) == asked

    assert play(story, control=FakeControl(changes=(OBSERVED,))).failures == []


def test_an_audit_that_is_not_intact_is_told() -> None:
    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource, control: FakeControl) -> None:
        control.trouble = refusal("the audit is not intact: line 3 does not follow from the one before")
        await press(app, pilot, "8")
        assert "✖ the audit is not intact: line 3" in screen_lines(app)[1]
        control.trouble = refusal("the audit is not intact: line 3 does not follow from the one before")
        await press(app, pilot, "h")
        assert "the audit is not intact: line 3" in screen_text(app)

    assert play(story).failures == []


def test_the_advice_of_one_replica_from_its_detail() -> None:
    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource, control: FakeControl) -> None:
        await press(app, pilot, "g", "j", "enter")
        assert screen_kind(app) is DetailScreen
        name = screen_lines(app)[0].split()[0]
        await press(app, pilot, "t")
        screen = app.screen
        assert isinstance(screen, TunersScreen)
        assert screen.only == url(name)
        assert f"tuners · {name}" in screen_lines(app)[0]
        await press(app, pilot, "8")
        assert isinstance(app.screen, TunersScreen)
        assert app.screen.only is None
        await press(app, pilot, "escape")
        assert screen_kind(app) is FleetScreen

    assert play(story).failures == []


def test_the_cursor_stays_on_its_suggestion_and_quiet_rows_open() -> None:
    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource, control: FakeControl) -> None:
        await press(app, pilot, "8", "j")
        marked = next(line for line in screen_lines(app) if line.startswith("▸"))
        assert "hold" in marked
        control.tell(OBSERVED)
        app.clock.now += 1.0  # type: ignore[attr-defined]
        await publish(app, pilot, source, replace(FLEET, sequence=2))
        assert next(line for line in screen_lines(app) if line.startswith("▸")) == marked
        await press(app, pilot, "enter")
        assert screen_kind(app) is LeftAloneScreen
        assert "b3           TPOT p95 41 ms is within the 50 ms SLO" in screen_text(app)
        await press(app, pilot, "escape")
        assert screen_kind(app) is TunersScreen

    assert play(story).failures == []


def test_leaving_during_a_change_asks_first() -> None:
    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource, control: FakeControl) -> None:
        await press(app, pilot, "q")
        assert screen_kind(app) is ConfirmScreen
        assert "leaving undoes it first" in screen_text(app)
        await press(app, pilot, "escape")
        assert app._exit is False
        await press(app, pilot, "q")
        await pilot.press("y")
        await pilot.pause()
        assert app._exit is True

    assert play(story, control=FakeControl(changes=(OBSERVED,))).failures == []


def test_the_countdown_goes_on_between_news() -> None:
    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource, control: FakeControl) -> None:
        await press(app, pilot, "8", "enter")
        assert "goes back by itself in 2m39s" in screen_text(app)  # a second after the news
        app.clock.now += 30.0  # type: ignore[attr-defined]
        app._tick()
        await pilot.pause()
        assert "goes back by itself in 2m09s" in screen_text(app)
        control.tell(OBSERVED)
        await pilot.pause()
        assert "goes back by itself in 2m40s" in screen_text(app)

    assert play(story, control=FakeControl(changes=(OBSERVED,))).failures == []


def test_pause_freezes_changes_too() -> None:
    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource, control: FakeControl) -> None:
        await press(app, pilot, "8", "enter", "space")
        control.tell(changed(state=ChangeState.DONE))
        app.clock.now += 1.0  # type: ignore[attr-defined]
        await pilot.pause()
        assert "OBSERVE 11 of 30" in screen_lines(app)[0]
        await press(app, pilot, "space")
        assert "DONE" in screen_lines(app)[0]

    assert play(story, control=FakeControl(changes=(OBSERVED,))).failures == []


def test_a_slow_controller_does_not_hold_up_the_screen() -> None:
    answered = threading.Event()

    class Slow(FakeControl):
        def propose(self, target_url: str, knob: str) -> Proposal:
            assert answered.wait(10)
            return super().propose(target_url, knob)

    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource, control: FakeControl) -> None:
        await pilot.press("8", "enter")
        await pilot.pause()
        assert "asking the engines" in screen_text(app)
        await pilot.press("A")  # remembered until the answer is there
        await publish(app, pilot, source, replace(FLEET, sequence=2, at=FLEET.at + 60))
        await pilot.press("escape")
        await pilot.pause()
        assert "20:01:00" in screen_lines(app)[0] or "tuners" in screen_lines(app)[0]
        answered.set()
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert screen_kind(app) is TunersScreen  # nobody wants the confirmation any more

    assert play(story, control=Slow()).failures == []


def test_apply_pressed_before_the_answer_is_remembered() -> None:
    answered = threading.Event()

    class Slow(FakeControl):
        def propose(self, target_url: str, knob: str) -> Proposal:
            assert answered.wait(10)
            return super().propose(target_url, knob)

    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource, control: FakeControl) -> None:
        await pilot.press("8", "enter", "A")
        await pilot.pause()
        answered.set()
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert screen_kind(app) is ConfirmScreen
        assert len(control.acts) == 1

    assert play(story, control=Slow()).failures == []


def test_nothing_from_a_file_reaches_the_terminal_as_a_command() -> None:
    evil = "\x1b[31mred\x07\u202e"
    rows = (row(10, ChangeState.HELD, evil, change=evil, knob=evil, target=f"http://{evil}"),)
    hostile = changed(id=evil, detail=evil, history=rows, canary_target=evil, knob=evil)

    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource, control: FakeControl) -> None:
        control.rows = rows
        shown = screen_text(app)
        await press(app, pilot, "8")
        shown += screen_text(app)
        await press(app, pilot, "enter")
        shown += screen_text(app)
        await press(app, pilot, "K")
        shown += screen_text(app)
        await press(app, pilot, "escape", "escape", "h")
        shown += screen_text(app)
        assert shown.replace("\n", "").isprintable()
        assert "?[31mred??" in shown

    assert play(story, control=FakeControl(changes=(hostile,))).failures == []


@pytest.mark.parametrize("size", [(1, 1), (10, 3), (40, 8), (300, 90)])
def test_odd_terminals(size: tuple[int, int]) -> None:
    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource, control: FakeControl) -> None:
        await press(app, pilot, "8", "enter", "escape", "j", "enter", "A", "b", "escape", "escape", "h")
        screen_text(app)

    assert play(story, size=size, control=FakeControl(changes=(OBSERVED,))).failures == []


def test_a_view_that_fails_leaves_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ValueError("half a table")

    monkeypatch.setattr("tui.screens.tuners.tuners_rows", broken)

    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource, control: FakeControl) -> None:
        await press(app, pilot, "8")
        assert "tuners failed: ValueError: half a table" in screen_text(app)
        assert "q quit" in footer(app)

    assert play(story).failures == ["tuners: ValueError: half a table"]


def test_control_ends_before_the_source(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    order: list[str] = []

    class Source(FakeSource):
        def stop(self) -> None:
            order.append("source")

    class Control(FakeControl):
        def stop(self) -> None:
            order.append("control")

    monkeypatch.setattr(FleetApp, "run", lambda _app, *, mouse: None)
    assert run_app(Source(), control=Control(changes=(OBSERVED,)), read_only=False) == 0
    assert order == ["control", "source"]
    assert capsys.readouterr().err == "enginetop: undoing change 7f3a first\n"
