"""Following a change on stderr: what happens now, not what an earlier run did."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest

from enginetop.cli.control import follow
from enginetop.fleet.change import ChangeState, ChangeView
from tests.tui.changes import OBSERVED
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
