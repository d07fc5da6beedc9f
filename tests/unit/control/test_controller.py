"""The controller: its thread, its lock, its store; a second one, a stop, a rollback, a recovery."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from collectors.clock import SteadyClock
from enginetop.fleet.change import FINAL_STATES, ChangeState, ChangeView, Verdict
from enginetop.fleet.plan import Plan
from enginetop.fleet.ports import ChangeControl
from enginetop.fleet.snapshot import Advice, FleetSnapshot
from tests.support.control_runs import SHORT, gain, loss, values
from tests.support.virtual_fleet import KNOB, START, VERSION, VirtualFleet, plan_for, three
from tuners.control.controller import Controller
from tuners.control.driver import ControlError, World
from tuners.control.recovery import progress_document, resume_to_undo
from tuners.control.settings import ControlSettings
from tuners.control.store import ChangeStore

OLD, NEW = 2048, 512
BACK = [(OLD, None)] * 3


class Source:
    """A `FleetSource` whose clock moves a tick whenever somebody looked at the last picture."""

    def __init__(self, fleet: VirtualFleet) -> None:
        self.fleet = fleet
        self.advice: tuple[Advice, ...] = ()
        self.until = float("inf")
        self._listeners: list[Callable[[], None]] = []
        self._latest = fleet.snapshot()
        self._seen = threading.Event()
        self._ended = False
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended = True
        self._seen.set()
        self._thread.join()

    def hold_at(self, seconds: float) -> None:
        """Let time stand still from so many seconds after the start on, so that a test can act there."""
        self.until = START + seconds

    def release(self) -> None:
        """Let time go on."""
        self.until = float("inf")
        self._seen.set()

    def _run(self) -> None:
        while not self._ended:
            self._seen.wait()
            self._seen.clear()
            if self._ended or self.fleet.time >= self.until:
                continue
            self.fleet.advance()
            self._latest = self.fleet.snapshot()
            for listener in tuple(self._listeners):
                listener()

    def latest(self) -> FleetSnapshot:
        self._seen.set()
        return self._latest

    def subscribe(self, on_snapshot: Callable[[], None]) -> Callable[[], None]:
        self._listeners.append(on_snapshot)
        return lambda: self._listeners.remove(on_snapshot)

    def finished(self) -> bool:
        return False

    def request_refresh(self) -> None:
        pass


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., tuple[VirtualFleet, Source, Controller]]]:
    made: list[tuple[Source, Controller]] = []

    def build(fleet: VirtualFleet, folder: str = "state") -> tuple[VirtualFleet, Source, Controller]:
        fleet.tick = 10.0
        source = Source(fleet)
        source.start()
        controller = Controller(
            source,
            fleet.client,
            ChangeStore(tmp_path / folder),
            settings=SHORT,
            tool_version=VERSION,
            clock=fleet.now,
        )
        made.append((source, controller))
        return fleet, source, controller

    yield build
    for source, controller in made:
        source.release()
        controller.stop()
        source.stop()


def _end(controller: Controller) -> ChangeView:
    view = controller.wait(30.0)
    assert view is not None
    return view


def _until(controller: Controller, state: ChangeState) -> None:
    """Return once the change under way is in `state`."""
    there = threading.Event()

    def look() -> None:
        if any(view.state is state for view in controller.latest()):
            there.set()

    leave = controller.subscribe(look)
    look()
    assert there.wait(20.0), f"never {state}"
    leave()


def test_a_change_in_its_thread(make: Callable[..., tuple[VirtualFleet, Source, Controller]]) -> None:
    fleet, _, controller = make(three(attainment=gain))
    port: ChangeControl = controller
    assert port.latest() == ()
    controller.begin(plan_for(fleet), "me")
    view = _end(controller)
    assert (view.state, view.verdict) == (ChangeState.DONE, Verdict.IMPROVED)
    assert values(fleet) == [(NEW, None)] * 3
    assert port.latest() == (view,)
    assert port.audit() == view.history
    with pytest.raises(ControlError, match="carried out before"):
        controller.begin(plan_for(fleet), "me")


def test_a_machine_s_clock_that_is_set_back_holds_no_change_up(
    make: Callable[..., tuple[VirtualFleet, Source, Controller]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By an hour, of a value that the engine takes back after three minutes unless it is renewed."""
    fleet, set_back = three(attainment=gain), [0.0]
    clock = SteadyClock(lambda: fleet.time - set_back[0], lambda: fleet.time)
    monkeypatch.setattr(fleet, "now", clock.now)
    _, source, controller = make(fleet)
    source.hold_at(300.0)
    controller.begin(plan_for(fleet), "me")
    _until(controller, ChangeState.OBSERVE)
    set_back[0] = 3600.0
    source.release()
    assert _end(controller).state is ChangeState.DONE
    assert values(fleet) == [(NEW, None)] * 3


def test_propose_then_start_then_roll_back_what_is_done(
    make: Callable[..., tuple[VirtualFleet, Source, Controller]],
) -> None:
    fleet, source, controller = make(three(attainment=gain))
    refused = controller.propose("http://r1:8000", KNOB)
    assert refused.refusals == (f"there is no advice on {KNOB}",)
    with pytest.raises(ControlError, match="propose anew"):
        controller.start("nope", "me")

    advice = (Advice(KNOB, "lower", ("TPOT breaks",), current=OLD, proposed=NEW),)
    plain = fleet.snapshot

    def advised() -> FleetSnapshot:
        snapshot = plain()
        return replace(
            snapshot, replicas=tuple(replace(replica, advice=advice) for replica in snapshot.replicas)
        )

    fleet.snapshot = advised  # type: ignore[method-assign]
    source._latest = advised()
    proposal = controller.propose("http://r2:8000", KNOB)
    assert proposal.refusals == ()
    assert (proposal.before, proposal.after) == (OLD, NEW)
    assert (proposal.canary_target, proposal.promote_targets) == (
        "http://r2:8000",
        ("http://r1:8000", "http://r3:8000"),
    )
    assert proposal.observation_seconds == 720.0
    assert any("observation takes 12 min" in note for note in proposal.notes)
    controller.start(proposal.id, "me")
    assert _end(controller).state is ChangeState.DONE
    controller.roll_back(proposal.id)
    view = _end(controller)
    assert view.state is ChangeState.ROLLED_BACK
    assert values(fleet) == BACK
    assert [row.state for row in view.history][-1] is ChangeState.ROLLED_BACK
    assert any(row.state is ChangeState.DONE for row in view.history)
    with pytest.raises(ControlError, match="nothing of it is in force"):
        controller.roll_back(proposal.id)
    with pytest.raises(ControlError, match="no change"):
        controller.roll_back("unknown")


@pytest.mark.parametrize("how", ["method", "stop", "kill switch", "other process"])
def test_ways_to_stop(
    make: Callable[..., tuple[VirtualFleet, Source, Controller]], tmp_path: Path, how: str
) -> None:
    fleet, source, controller = make(three(attainment=gain))
    source.hold_at(60.0)
    plan = plan_for(fleet)
    controller.begin(plan, "me")
    _until(controller, ChangeState.WARMUP)
    if how == "method":
        controller.roll_back(plan.id, "a person says so")
    elif how == "stop":
        controller.stop()
    elif how == "kill switch":
        (tmp_path / "state" / "kill-switch").touch()
    else:
        ChangeStore(tmp_path / "state").request_stop(plan.id)
    source.release()
    view = _end(controller)
    assert view.state is ChangeState.ROLLED_BACK
    assert values(fleet) == BACK
    assert not list((tmp_path / "state" / "changes").glob("*.stop"))


def test_a_kill_switch_that_is_on_refuses_new_changes_until_it_is_off(
    make: Callable[..., tuple[VirtualFleet, Source, Controller]], tmp_path: Path
) -> None:
    fleet, _, controller = make(three(attainment=gain))
    (tmp_path / "state").mkdir()
    switch = tmp_path / "state" / "kill-switch"
    switch.touch()
    told = f"the kill switch {switch} is on: delete that file to allow changes"
    # before anybody is asked to type a confirmation
    assert controller.preflight(plan_for(fleet)).problems == (told,)
    with pytest.raises(ControlError, match=told):
        controller.begin(plan_for(fleet), "me")
    assert [(row.state, row.detail) for row in controller.audit()] == [(ChangeState.REFUSED, told)]
    assert all(not engine.writes for engine in fleet.engines.values())
    switch.unlink()
    controller.begin(plan_for(fleet), "me")
    assert _end(controller).state is ChangeState.DONE


def test_a_plan_that_the_engines_refused_can_be_begun_again(
    make: Callable[..., tuple[VirtualFleet, Source, Controller]], tmp_path: Path
) -> None:
    fleet, source, controller = make(three(attainment=gain))
    plan = plan_for(fleet)
    source.hold_at(0.0)
    controller.begin(replace(plan, tool_version="0.0"), "me")
    source.release()
    assert _end(controller).state is ChangeState.REFUSED
    controller.begin(plan, "me")
    assert _end(controller).state is ChangeState.DONE
    with pytest.raises(ControlError, match="the plan 7f3a was carried out before; make a new one"):
        controller.begin(plan, "me")


def test_a_second_controller_is_refused_with_a_line_in_the_audit(
    make: Callable[..., tuple[VirtualFleet, Source, Controller]],
) -> None:
    fleet, source, first = make(three(attainment=gain))
    _, _, second = make(three(attainment=gain))
    source.hold_at(60.0)
    first.begin(plan_for(fleet), "me")
    _until(first, ChangeState.WARMUP)
    with pytest.raises(ControlError, match=r"another controller is at work: change 7f3a \(process \d+\)"):
        second.begin(plan_for(fleet, id="beef"), "me")
    with pytest.raises(ControlError, match="another controller"):
        second.recover()
    row = second.audit()[-1]
    assert (row.change, row.state) == ("beef", ChangeState.REFUSED)
    assert "another controller" in row.detail
    second.roll_back("7f3a")  # asks the first one
    assert not second.busy
    source.release()
    assert _end(first).state is ChangeState.ROLLED_BACK
    assert values(fleet) == BACK


def test_the_plan_that_runs_is_not_ended_by_its_second_start(
    make: Callable[..., tuple[VirtualFleet, Source, Controller]],
) -> None:
    fleet, source, first = make(three(attainment=gain))
    _, _, second = make(three(attainment=gain))
    source.hold_at(60.0)
    first.begin(plan_for(fleet), "me")
    _until(first, ChangeState.WARMUP)
    with pytest.raises(ControlError, match="another controller"):
        second.begin(plan_for(fleet), "me")
    *own, attempt = first.audit()
    assert (attempt.change, attempt.state) == ("7f3a-again", ChangeState.REFUSED)
    assert {row.change for row in own} == {"7f3a"}
    assert not any(row.state in FINAL_STATES for row in own)
    source.release()
    assert _end(first).state is ChangeState.DONE
    # once it is over, the plan's own last word is that it was refused
    with pytest.raises(ControlError, match="carried out before"):
        second.begin(plan_for(fleet), "me")
    assert (second.audit()[-1].change, second.audit()[-1].state) == ("7f3a", ChangeState.REFUSED)


def test_the_audit_tells_a_wish_from_a_verdict(
    make: Callable[..., tuple[VirtualFleet, Source, Controller]],
) -> None:
    fleet, _, controller = make(three(attainment=loss), "worse")
    controller.begin(plan_for(fleet), "me")
    assert _end(controller).state is ChangeState.ROLLED_BACK
    assert not any(row.asked for row in controller.audit())
    fleet, _, controller = make(three(attainment=gain), "done")
    controller.begin(plan_for(fleet), "me")
    assert _end(controller).state is ChangeState.DONE
    controller.roll_back("7f3a")
    assert _end(controller).state is ChangeState.ROLLED_BACK
    assert [(row.state, row.asked) for row in controller.audit() if row.state in FINAL_STATES] == [
        (ChangeState.DONE, False),
        (ChangeState.ROLLED_BACK, True),
    ]
    fleet, source, controller = make(three(attainment=gain), "stopped")
    source.hold_at(60.0)
    controller.begin(plan_for(fleet), "me")
    _until(controller, ChangeState.WARMUP)
    controller.roll_back("7f3a")
    source.release()
    assert _end(controller).state is ChangeState.ROLLED_BACK
    assert controller.audit()[-1].asked


def test_a_finished_change_is_not_rolled_back_beside_another_one(
    make: Callable[..., tuple[VirtualFleet, Source, Controller]], tmp_path: Path
) -> None:
    """Whoever has the lock looks after its own change only: nobody would hear that this one is to go back."""
    fleet, _, controller = make(three(attainment=gain))
    controller.begin(plan_for(fleet), "me")
    assert _end(controller).state is ChangeState.DONE
    other = ChangeStore(tmp_path / "state")
    assert other.lock.take("change beef") == ""
    with pytest.raises(ControlError, match=r"change beef \(process \d+\) is under way; .* when it is over"):
        controller.roll_back("7f3a")
    assert not list((tmp_path / "state" / "changes").glob("*.stop"))
    other.lock.release()
    controller.roll_back("7f3a")
    assert _end(controller).state is ChangeState.ROLLED_BACK
    assert values(fleet) == BACK


def test_what_was_left_unfinished_is_undone_first(
    make: Callable[..., tuple[VirtualFleet, Source, Controller]], tmp_path: Path
) -> None:
    fleet, source, controller = make(three(attainment=loss))
    source.hold_at(200.0)
    plan = plan_for(fleet)
    controller.begin(plan, "me")
    _until(controller, ChangeState.OBSERVE)
    stored = (tmp_path / "state" / "changes" / "7f3a.json").read_bytes()
    source.release()
    _end(controller)
    # as if the process had died there: the store says so, and the value is still in force
    (tmp_path / "state" / "changes" / "7f3a.json").write_bytes(stored)
    canary = next(iter(fleet.engines.values()))
    canary._set(fleet.time, NEW, 1e6)
    _, _, after = make(fleet)
    with pytest.raises(ControlError, match="7f3a is not finished"):
        after.begin(plan_for(fleet, id="beef"), "me")
    begun: list[str] = []
    (view,) = after.recover(begins=begun.append)
    assert begun == ["7f3a"]
    assert view.state is ChangeState.ROLLED_BACK
    assert "ended before the change did" in view.detail
    assert values(fleet) == BACK
    assert after.recover() == ()


def test_the_reason_of_a_way_back_that_is_begun_again_is_told_once(
    make: Callable[..., tuple[VirtualFleet, Source, Controller]], tmp_path: Path
) -> None:
    fleet, source, controller = make(three())
    source.hold_at(200.0)
    controller.begin(plan_for(fleet), "me")
    _until(controller, ChangeState.OBSERVE)
    document = json.loads((tmp_path / "state" / "changes" / "7f3a.json").read_bytes())
    source.release()
    _end(controller)
    for _ in range(3):
        again = resume_to_undo(document, now=1.0, why="it died", settings=ControlSettings(), tool_version="0")
        assert again.ending is not None
        assert again.ending.why == "it died"
        document = progress_document(again)


@pytest.mark.parametrize(
    ("key", "junk"), [("verdict", "splendid"), ("written", None), ("ending", {"to": "X"})]
)
def test_an_unfinished_change_that_is_damaged_is_told_of_in_a_line(
    make: Callable[..., tuple[VirtualFleet, Source, Controller]], tmp_path: Path, key: str, junk: object
) -> None:
    fleet, source, controller = make(three())
    source.hold_at(200.0)
    controller.begin(plan_for(fleet), "me")
    _until(controller, ChangeState.OBSERVE)
    stored = json.loads((tmp_path / "state" / "changes" / "7f3a.json").read_bytes())
    (tmp_path / "other" / "changes").mkdir(parents=True)
    (tmp_path / "other" / "changes" / "7f3a.json").write_text(json.dumps({**stored, key: junk}))
    _, _, after = make(fleet, "other")
    with pytest.raises(ControlError, match=f"7f3a cannot be undone: a damaged stored change: {key}"):
        after.recover()


def test_a_plan_without_a_world_is_refused_and_holds_nobody_up(tmp_path: Path) -> None:
    fleet = three()
    source = Source(fleet)
    worlds = iter((ControlError("its record cannot be read"),))

    def world_of(_plan: Plan, world: World, _undoing: bool) -> World:
        if (trouble := next(worlds, None)) is not None:
            raise trouble
        return world

    source.start()
    store = ChangeStore(tmp_path)
    controller = Controller(
        source,
        fleet.client,
        store,
        settings=SHORT,
        tool_version=VERSION,
        clock=fleet.now,
        world_of=world_of,
    )
    with pytest.raises(ControlError, match="its record cannot be read"):
        controller.begin(plan_for(fleet), "me")
    assert store.lock.take("somebody else") == ""
    assert [row.state for row in store.audit.rows()] == [ChangeState.REFUSED]
    controller.stop()
    source.stop()


@pytest.mark.parametrize("junk", ["", "{", "[]", '{"schema": "enginetop.change/1"}'])
def test_a_damaged_store_stops_everything_until_somebody_looks(
    make: Callable[..., tuple[VirtualFleet, Source, Controller]], tmp_path: Path, junk: str
) -> None:
    fleet, _, controller = make(three())
    changes = tmp_path / "state" / "changes"
    changes.mkdir(parents=True)
    (changes / "dead.json").write_text(junk)
    for call in (controller.recover, lambda: controller.begin(plan_for(fleet), "me")):
        with pytest.raises(ControlError) as caught:
            call()
        assert "\n" not in str(caught.value)


def test_a_state_folder_that_cannot_be_written_refuses(
    make: Callable[..., tuple[VirtualFleet, Source, Controller]], tmp_path: Path
) -> None:
    (tmp_path / "state").write_text("a file in its place")
    fleet, _, controller = make(three())
    with pytest.raises(ControlError, match="cannot be written"):
        controller.begin(plan_for(fleet), "me")
    assert all(not engine.writes for engine in fleet.engines.values())
