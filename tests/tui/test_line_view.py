"""What is sent to the terminal: only the lines that changed, and nothing when nothing did."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence

import pytest
from rich.segment import Segment
from textual.app import App, ComposeResult
from textual.geometry import Region
from textual.strip import Strip

from tests.tui.snapshots import FakeSource, fleet, replica
from themes.loader import load_theme
from tui.app import FleetApp
from tui.view.cells import Line, Span, plain
from tui.widgets.ink import Inks
from tui.widgets.line_view import LineView
from tui.widgets.loose_strip import LooseStrip


class Host(App[None]):
    """One line view on a screen."""

    def compose(self) -> ComposeResult:
        yield LineView(Inks(load_theme("dark")), lambda _where, _error: None, id="view")


def regions_of(first: Sequence[Line], second: Sequence[Line], top: int = 0) -> list[Region]:
    """The regions that going from the first lines to the second declares dirty."""
    found: list[Region] = []

    async def run() -> None:
        app = Host()
        async with app.run_test(size=(20, 6)) as pilot:
            view = app.query_one(LineView)
            view.show_lines(first)
            await pilot.pause()
            view.scroll_lines_to(top)
            await pilot.pause()
            refresh = view.refresh

            def record(*regions: Region, **options: bool) -> object:
                found.extend(regions or [Region(0, 0, 20, 99)])
                return refresh(*regions, **options)

            view.refresh = record  # type: ignore[method-assign, assignment]
            view.show_lines(second)
            await pilot.pause()

    asyncio.run(run())
    return found


LINES = [plain(f"line {number}") for number in range(12)]


def test_nothing_changed_nothing_refreshed() -> None:
    assert regions_of(LINES, list(LINES)) == []


def test_one_region_for_each_changed_line() -> None:
    changed = [*LINES]
    changed[1] = (Span("line 1", "warn"),)
    changed[4] = plain("another")
    assert regions_of(LINES, changed) == [Region(0, 1, 20, 1), Region(0, 4, 20, 1)]


def test_a_change_out_of_sight_costs_nothing() -> None:
    changed = [*LINES]
    changed[9] = plain("another")
    assert regions_of(LINES, changed) == []
    assert regions_of(LINES, changed, top=5) == [Region(0, 4, 20, 1)]


def test_fewer_lines_blank_what_is_left_over() -> None:
    async def run() -> None:
        app = Host()
        async with app.run_test(size=(20, 6)) as pilot:
            view = app.query_one(LineView)
            view.show_lines(LINES)
            await pilot.pause()
            view.scroll_lines_to(6)
            view.show_lines(LINES[:2])
            await pilot.pause()
            shown = [strip.text.rstrip() for strip in app.screen._compositor.render_strips()]
            assert shown == ["line 0", "line 1", "", "", "", ""]

    asyncio.run(run())


@pytest.mark.parametrize("size", [(80, 24), (200, 50)])
def test_the_same_figures_again_paint_no_grid_line(size: tuple[int, int]) -> None:
    async def run() -> None:
        source = FakeSource()
        app = FleetApp(source, clock=iter(range(10_000)).__next__)
        async with app.run_test(size=size) as pilot:
            source.publish(fleet([replica("a1"), replica("a2")]))
            await pilot.pause()
            await pilot.pause()  # what stands under the grid has taken its room
            painted: list[object] = []
            for view in app.screen.query(LineView):
                view.refresh = lambda *regions, **_options: painted.append(regions)  # type: ignore[method-assign, assignment]
            source.publish(fleet([replica("a1"), replica("a2")], sequence=2))
            await pilot.pause()
            assert painted == []

    asyncio.run(run())


def test_lines_that_were_painted_end_without_a_search_for_cycles() -> None:
    """Twenty paints of six lines each: those of one are on the screen, and one of them may be on its way."""

    def strips() -> int:
        return sum(isinstance(one, Strip) for one in gc.get_objects())

    async def run() -> None:
        app = Host()
        async with app.run_test(size=(20, 6)) as pilot:
            view = app.query_one(LineView)
            view.show_lines([plain(f"first {row}") for row in range(6)])
            await pilot.pause()
            gc.collect()
            gc.disable()
            before = strips()
            for paint in range(20):
                view.show_lines([plain(f"paint {paint} row {row}") for row in range(6)])
                await pilot.pause()
            assert strips() - before <= 2 * 6

    try:
        asyncio.run(run())
    finally:
        gc.enable()


@pytest.mark.parametrize("cuts", [[20], [20, 31], [5, 20], [3, 7], [31], []])
def test_a_loose_strip_is_cut_as_any_other(cuts: list[int]) -> None:
    segments = [Segment("twenty"), Segment(" cells wide"), Segment("   ")]
    loose, usual = LooseStrip(segments), Strip(segments)
    assert [piece.text for piece in loose.divide(cuts)] == [piece.text for piece in usual.divide(cuts)]
    assert loose.cell_length == 20
