"""Following a change on stderr: what happens now, not what an earlier run did."""

from __future__ import annotations

import itertools
import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from enginetop.cli import control
from enginetop.cli.control import follow
from enginetop.fleet.change import ChangeState, ChangeView
from enginetop.fleet.ports import FleetSource
from tests.tui.changes import OBSERVED
from tests.unit.cli.test_settings import _settings
from tuners.control.controller import Controller


class _Over:
    """A controller whose change is over."""

    busy = False

    def __init__(self, view: ChangeView) -> None:
        self._view = view

    def wait(self, _: float) -> ChangeView:
        return self._view

    def latest(self) -> tuple[ChangeView, ...]:
        return (self._view,)


def test_a_rollback_does_not_tell_the_past_as_if_it_happened_now(capsys: pytest.CaptureFixture[str]) -> None:
    row = OBSERVED.history[0]
    rows = (
        replace(row, at=100.0, state=ChangeState.DONE, detail="in force on 3"),
        replace(row, at=200.0, state=ChangeState.ROLLED_BACK, detail="asked for by ada"),
    )
    view = replace(OBSERVED, history=rows)
    assert follow(cast(Controller, _Over(view)), since=150.0) is view
    told = capsys.readouterr().err
    assert "ROLLED_BACK asked for by ada" in told
    assert "in force on 3" not in told


def test_a_step_on_another_replica_than_the_canary_names_it(capsys: pytest.CaptureFixture[str]) -> None:
    """A rollback of eight replicas told `write the former value` eight times."""
    row = replace(OBSERVED.history[0], state=ChangeState.OBSERVE)
    rows = (
        replace(row, target=OBSERVED.canary_target, detail="write the former value"),
        replace(row, target="http://b2:8000", detail="write the former value"),
    )
    follow(cast(Controller, _Over(replace(OBSERVED, history=rows))), since=0.0)
    told = [line.partition(" OBSERVE ")[2] for line in capsys.readouterr().err.splitlines()]
    assert told == ["write the former value", "http://b2:8000: write the former value"]


def test_changes_go_by_a_clock_that_never_runs_backwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A renewal would wait for as long as it did, and the engine would take the value back."""
    monkeypatch.setattr(control, "Controller", lambda *_, **given: given)
    wall = itertools.count(1e9, -3600.0)
    monkeypatch.setattr("enginetop.cli.control.time.time", lambda: next(wall))
    given = cast(dict[str, Any], control.controller(_settings(tmp_path, "")[0], cast(FleetSource, None), ()))
    first = given["clock"]()
    assert given["clock"]() >= first


class _UnderWay(_Over):
    """A controller whose change is under way until it is rolled back; meanwhile a signal arrives."""

    busy = True

    def __init__(self, view: ChangeView, number: signal.Signals) -> None:
        super().__init__(view)
        self._number = number
        self.why: list[str] = []

    def wait(self, _: float) -> ChangeView | None:  # type: ignore[override]
        if self.why:
            return self._view
        os.kill(os.getpid(), self._number)
        return None

    def roll_back(self, change_id: str, why: str) -> None:
        assert change_id == self._view.id
        self.why.append(why)


def test_an_observation_says_how_far_it_is_once_a_minute(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]

    class Slow(_Over):
        busy = True

        def wait(self, _: float) -> ChangeView | None:  # type: ignore[override]
            clock[0] += 20.0
            return replace(self._view, state=ChangeState.DONE) if clock[0] > 1170.0 else None

    still = SimpleNamespace(
        monotonic=lambda: clock[0], time=time.time, strftime=time.strftime, localtime=time.localtime
    )
    monkeypatch.setattr("enginetop.cli.control.time", still)  # the module's own: threads of others go on
    view = replace(OBSERVED, history=(), block=11, blocks=30, eta_seconds=1140.0)
    follow(cast(Controller, Slow(view)), since=0.0)
    told = [line for line in capsys.readouterr().err.splitlines() if " OBSERVE " in line]
    assert [line.partition(" OBSERVE ")[2] for line in told] == ["block 11 of 30, 19m00s left"] * 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_undoes_the_change_and_is_not_called_a_person(number: signal.Signals) -> None:
    control = _UnderWay(OBSERVED, number)
    follow(cast(Controller, control), since=0.0)
    assert control.why == ["enginetop was told to stop"]
