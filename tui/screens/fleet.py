"""The first screen: verdict, totals and the grid of replicas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.events import Click
from textual.message import Message
from textual.widgets import Input

from tui.actions import Place
from tui.screens.base import bindings_for
from tui.screens.columns import ColumnsScreen
from tui.screens.detail import DetailScreen
from tui.screens.listing import ListScreen
from tui.view.arrange import Sort
from tui.view.below import LoadMemory, WithBelow, below_lines
from tui.view.cells import Line
from tui.view.column_choice import Choice
from tui.view.events import events_line
from tui.view.grid_memory import GridMemory
from tui.view.grid_notes import mistake_line, no_rows_line, search_line, waiting_lines
from tui.view.query import Query, QueryError, parse_query
from tui.view.table import FleetTable
from tui.view.title import title_line
from tui.view.totals import totals_line
from tui.view.verdict import verdict_line
from tui.widgets.ink import Inks
from tui.widgets.line_view import Complain, LineView
from tui.widgets.row_list import RowList


class FleetScreen(ListScreen):
    """The fleet. Sorting, filter and cursor live here and outlast every picture."""

    PLACE = Place.FLEET
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_for(Place.FLEET)]
    VERTICAL_BREAKPOINTS = [(0, "-tiny"), (8, "-short"), (14, "-normal"), (30, "-tall")]  # noqa: RUF012 - Textual's

    class Painted(Message):
        """The first picture is on the terminal."""

    class Chosen(Message):
        """The user has chosen other columns."""

        def __init__(self, choice: Choice) -> None:
            super().__init__()
            self.choice = choice

    sort = Sort()
    choice: Choice = ()
    filter_query = Query()
    filter_error = ""
    table: FleetTable | None = None
    _painted = _told = False

    def __init__(self, inks: Inks, complain: Complain) -> None:
        super().__init__(inks, complain)
        self._memory = GridMemory()
        self._load = LoadMemory()

    def compose(self) -> ComposeResult:
        """Title, verdict, totals; column titles; grid; events; filter; footer."""
        for part in ("title", "verdict", "totals", "columns"):
            yield LineView(self.inks, self.complain, id=part)
        yield RowList(self.inks, self.complain, id="grid")
        yield LineView(self.inks, self.complain, id="events")
        yield LineView(self.inks, self.complain, id="filtered")
        yield Input(
            placeholder="text  state:down  model:llama  kv>0.9  ttft>500ms", id="filter", compact=True
        )
        yield LineView(self.inks, self.complain, id="footer")

    def paint(self) -> None:
        """Bring every part up to date; each fails alone."""
        picture, width = self.picture, self.size.width
        if not self.can_paint:
            return
        with self.app.batch_update():
            self.show_line("title", lambda: title_line(picture, width))
            self.show_line("verdict", lambda: verdict_line(picture, width))
            self.show_line("totals", lambda: totals_line(picture, width))
            self._paint_grid(width)
            if self.part("#events").display:
                self.show_line("events", lambda: events_line(picture, width))
            self.show_line("filtered", lambda: self._filter_line(width))
            self.paint_footer(self.rows)
        self._painted = True

    def _compositor_refresh(self) -> None:
        """The first picture is told of when it is handed to the terminal, not when its lines are built."""
        super()._compositor_refresh()
        if self._painted and not self._told and not self.withheld:
            self._told = True
            self.post_message(self.Painted())

    def _paint_grid(self, width: int) -> None:
        snapshot = self.picture.snapshot
        if snapshot is None:
            self.part("#columns").show_lines([])
            self.rows.show_lines(waiting_lines(self.picture, width))
            return
        try:
            table = FleetTable(
                snapshot,
                self.picture.conditions,
                width=width,
                sort=self.sort,
                query=self.filter_query,
                choice=self.choice,
                memory=self._memory,
            )
            header = table.header()
        except Exception as error:  # noqa: BLE001 - the heading still tells what is wrong with the fleet
            self.rows.show_lines([self.failed_line("grid", error)])
            return
        self.table = table
        self.part("#columns").show_lines([header])
        if len(table):
            # Without the strip of events there is a line more: what is below has the events itself.
            room = self.rows.size.height + int(self.part("#events").display) - len(table)
            below = self.build_lines("below", lambda: below_lines(self.picture, self._load, width, room))
            self._make_room(bool(below))
            self.rows.show_rows(WithBelow(table, below, len(table) + room) if below else table)
        else:
            self._make_room(False)
            self.rows.show_lines([no_rows_line(width, filtered=bool(self.filter_query.terms))])

    def _make_room(self, roomy: bool) -> None:
        """Take the strip of events away, or bring it back: another height wants another picture."""
        if roomy != self.has_class("-roomy"):
            self.set_class(roomy, "-roomy")
            self.withhold()

    def _filter_line(self, width: int) -> Line:
        if self.filter_error:
            return mistake_line(self.filter_error, width)
        snapshot = self.picture.snapshot
        total = len(snapshot.replicas) if snapshot is not None else 0
        shown = self.table.shown if self.table is not None else 0
        return search_line(self.filter_query.text, f"{shown} of {total}", width)

    def set_filter(self, query: Query) -> None:
        """Show only what matches."""
        self.filter_query, self.filter_error = query, ""
        self.query_one("#filter", Input).value = query.text
        self.set_class(bool(query.text), "-filtered")
        self.call_after_refresh(self.paint)

    def sort_by(self, sort: Sort) -> None:
        """Put the rows in this order."""
        self.sort = sort
        self.paint()

    def exported_urls(self) -> Sequence[str] | None:
        """The replicas that the filter leaves, in the order in which they stand."""
        table = self.table
        if table is None:
            return None
        return [key for index in range(len(table)) if table.is_row(index) and (key := table.key(index))]

    def action_columns(self) -> None:
        """Open the picker of columns."""
        screen = ColumnsScreen(
            self.inks,
            self.complain,
            self.choice,
            lambda: self.table.placed_keys() if self.table is not None else (),
            self.choose,
        )
        self.open_screen(screen)

    def choose(self, choice: Choice) -> None:
        """Show these columns from now on."""
        self.choice = choice
        self.paint()
        self.post_message(self.Chosen(choice))

    def on_click(self, event: Click) -> None:
        """A click on a column's title sorts by it, one more turns the order around."""
        if self.table is None or event.widget is not self.part("#columns"):
            return
        key = self.table.column_at(event.x)
        if key is not None:
            self.sort_by(Sort(key, key == self.sort.column and not self.sort.reverse))

    def action_sort_next(self) -> None:
        """Sort by the next column on screen; after the last one, trouble first again."""
        keys: tuple[str | None, ...] = (None, *(self.table.sortable() if self.table else ()))
        position = keys.index(self.sort.column) if self.sort.column in keys else 0
        self.sort = Sort(keys[(position + 1) % len(keys)])
        self.paint()

    def action_sort_turn(self) -> None:
        """Turn the order around."""
        self.sort = Sort(self.sort.column, not self.sort.reverse)
        self.paint()

    def action_filter(self) -> None:
        """Open the filter line."""
        entry = self.query_one(Input)
        self.add_class("-typing")
        entry.value = self.filter_query.text
        self.set_focus(entry)  # `focus()` would be later, and the next keys the grid's

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """While a filter is typed, the key that opens it is a character like any other."""
        if action == "filter" and self.has_class("-typing"):
            return False
        return super().check_action(action, parameters)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while typing; what cannot be read yet leaves the rows as they are."""
        try:
            self.filter_query = parse_query(event.value)
            self.filter_error = ""
        except QueryError as error:
            self.filter_error = str(error)
        self.set_class(bool(self.filter_query.text or self.filter_error), "-filtered")
        self.paint()

    def on_input_submitted(self) -> None:
        """Keep the filter and go back to the grid."""
        self._leave_entry()

    def _leave_entry(self) -> None:
        self.set_focus(None)
        self.remove_class("-typing")
        self.withhold()

    def action_back(self) -> None:
        """Clear the filter; with none, go back to trouble first."""
        if self.has_class("-typing") or self.filter_query.text or self.filter_error:
            self.query_one(Input).value = ""
            self.filter_query, self.filter_error = Query(), ""
            self.remove_class("-filtered")
            self._leave_entry()
        else:
            self.sort = Sort()
        self.paint()

    def open_row(self, key: str) -> None:
        """Show all about the replica with this target URL."""
        self.open_screen(DetailScreen(self.inks, self.complain, key, neighbour=self.rows.neighbour))
