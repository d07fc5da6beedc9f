"""The picker of columns, as a user drives it."""

from __future__ import annotations

import asyncio

import pytest

from enginetop.fleet.errors import ConfigError, EnginetopError
from tests.tui.running import running
from tests.tui.snapshots import FakeSource, fleet, replica
from tests.tui.test_app import screen_lines, screen_text
from tui.app import FleetApp
from tui.screens.columns import ColumnsScreen
from tui.screens.fleet import FleetScreen
from tui.view.column_choice import Choice


class Shelf:
    """A store in memory."""

    def __init__(self, choice: Choice = (), fault: EnginetopError | None = None) -> None:
        self.choice, self.fault = choice, fault
        self.saved: list[Choice] = []

    def load(self) -> Choice:
        if self.fault is not None:
            raise self.fault
        return self.choice

    def save(self, choice: Choice) -> None:
        if self.fault is not None:
            raise self.fault
        self.saved.append(choice)


def drive(shelf: Shelf, keys: list[str], size: tuple[int, int] = (80, 24)) -> tuple[FleetApp, list[str]]:
    app = FleetApp(FakeSource(fleet([replica("a1")])), columns=shelf)
    seen: list[str] = []

    async def run() -> None:
        async with running(app, size) as pilot:
            for key in keys:
                await pilot.press(key)
                await app.workers.wait_for_complete()
                await pilot.pause()
            await pilot.pause()
            seen.extend(screen_lines(app))
            seen.append(type(app.screen).__name__)

    asyncio.run(run())
    assert app.failures == []
    return app, seen


def titles(seen: list[str]) -> list[str]:
    return next(line for line in seen if line.startswith(" replica")).split()


def test_saved_columns_are_there_at_the_start() -> None:
    _, seen = drive(Shelf(("name", "state", "tok", "run")), [])
    assert titles(seen) == ["replica", "state", "tok/s", "run"]


@pytest.mark.parametrize("size", [(50, 15), (80, 24), (200, 50)])
def test_the_picker_lists_every_column(size: tuple[int, int]) -> None:
    _, seen = drive(Shelf(("name", "state", "tok")), ["c"], size)
    assert seen[-1] == ColumnsScreen.__name__
    assert seen[0].startswith(" columns · 3 of ")
    assert seen[1].startswith("▸[=] replica")
    assert [line[:15].rstrip() for line in seen[3:5]] == [" [ ] model", " [ ] run"]


def test_hide_move_and_keep() -> None:
    shelf = Shelf(("name", "state", "tok", "run"))
    _, seen = drive(shelf, ["c", "j", "j", "enter", "right", "escape"])
    # Below the fixed columns the model is hidden; once shown, it moves to the right with the cursor on it.
    assert shelf.saved == [("name", "state", "model", "tok", "run"), ("name", "state", "tok", "model", "run")]
    assert seen[-1] == FleetScreen.__name__
    assert titles(seen) == ["replica", "state", "tok/s", "run"]  # the group's line has the model


def test_default_forgets_the_choice() -> None:
    shelf = Shelf(("name", "state", "tok"))
    _, seen = drive(shelf, ["c", "d", "escape"])
    assert shelf.saved == [()]
    assert "TTFT95ms" in titles(seen)


def test_what_cannot_be_kept_is_told_and_holds_for_now() -> None:
    class Full(Shelf):
        def save(self, choice: Choice) -> None:
            raise EnginetopError("columns.toml: no space left; the columns are not kept")

    _, seen = drive(Full(("name", "state", "tok", "run")), ["c", "j", "j", "j", "enter"])
    assert " columns.toml: no space left; the columns are not kept" in seen
    assert seen[0].startswith(" columns · 3 of ")


def test_saved_columns_that_cannot_be_read_are_told_and_do_not_hide_the_fleet() -> None:
    app = FleetApp(
        FakeSource(fleet([replica("a1")])), columns=Shelf(fault=ConfigError("columns.toml: not a list"))
    )
    seen: list[str] = []

    async def run() -> None:
        async with running(app):
            seen.append(screen_text(app))

    asyncio.run(run())
    assert " columns.toml: not a list" in seen[0]
    assert "▸a1 " in seen[0]
    assert app.failures == []
