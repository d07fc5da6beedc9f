"""The tuners' screens: the list, one suggestion, what is left alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType

from enginetop.fleet.change import Proposal
from enginetop.fleet.snapshot import PoolAdvice
from tui.actions import Action, Place
from tui.control_desk import ControlDesk
from tui.screens.base import bindings_for
from tui.screens.change import ChangeScreen, PastScreen
from tui.screens.confirm import ConfirmScreen, confirm_roll_back
from tui.screens.listing import ListScreen
from tui.screens.reading import ReadingScreen
from tui.screens.what_if import WhatIfScreen
from tui.view.advice import ACTIONABLE, Suggestion, advice_of
from tui.view.cells import Line, Span, plain, spread
from tui.view.heading import badges
from tui.view.pool import pool_key, pool_lines, pool_title, pools_of
from tui.view.suggestion import Plan, proposal_lines, suggestion_lines, suggestion_title
from tui.view.tuners import (
    TunersTable,
    change_to_undo,
    quiet_lines,
    quiet_members,
    tuners_title,
    tuners_verdict,
)
from tui.view.undo import undo_of
from tui.widgets.ink import Inks
from tui.widgets.line_view import Complain, LineView
from tui.widgets.row_list import RowList


class TunersScreen(ListScreen):
    """Changes under way, suggestions, and what is left alone; of one replica when `only` names its URL."""

    PLACE = Place.TUNERS
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_for(Place.TUNERS)]

    def __init__(
        self, inks: Inks, complain: Complain, desk: ControlDesk | None, only: str | None = None
    ) -> None:
        super().__init__(inks, complain)
        self.only = only
        self.table: TunersTable | None = None
        self._desk = desk
        self._trouble = ""

    def compose(self) -> ComposeResult:
        """Title, verdict, list, footer."""
        yield LineView(self.inks, self.complain, id="title")
        yield LineView(self.inks, self.complain, id="verdict")
        yield RowList(self.inks, self.complain, id="list")
        yield LineView(self.inks, self.complain, id="footer")

    def paint(self) -> None:
        """Bring every part up to date; each fails alone."""
        picture, width = self.picture, self.size.width
        if not self.can_paint:
            return
        with self.app.batch_update():
            self.part("#title").show_lines(
                self.build_lines("title", lambda: [tuners_title(picture, width, self.only)])
            )
            try:
                table = TunersTable(picture, width, self.only)
                verdict = tuners_verdict(table, picture, width, self._trouble)
            except Exception as error:  # noqa: BLE001 - the rest of the screen must go on
                self.complain("advice", error)
                self.rows.show_lines([plain(f" the advice failed: {type(error).__name__}: {error}", "crit")])
            else:
                self.table = table
                self.part("#verdict").show_lines([verdict])
                self.rows.show_rows(table)
            self.paint_footer(self.rows)

    def open_row(self, key: str) -> None:
        """Show the change, the suggestion or the replicas that the row stands for."""
        table = self.table
        if table is None:
            return
        change, suggestion, group = table.change(key), table.suggestion(key), table.group(key)
        if change is not None:
            self.open_screen(ChangeScreen(self.inks, self.complain, self._desk, change.id))
        elif suggestion is not None:
            url, knob = suggestion.replica.target.url, suggestion.advice.knob
            self.open_screen(SuggestionScreen(self.inks, self.complain, self._desk, url, knob))
        elif (pool := table.pool(key)) is not None:
            self.open_screen(PoolScreen(self.inks, self.complain, pool_key(pool)))
        elif group is not None:
            self.open_screen(QuietScreen(self.inks, self.complain, group.action, group.knob, self.only))

    def action_what_if(self) -> None:
        """Ask what the replicas of the row under the cursor would do at a value."""
        asked = self._asked()
        if asked is not None:
            self.open_screen(WhatIfScreen(self.inks, self.complain, *asked))

    def _asked(self) -> tuple[tuple[str, ...], str] | None:
        """The replicas and the knob of the row under the cursor; None: the row is of no knob."""
        key, table = self.rows.cursor, self.table
        if key is None or table is None:
            return None
        if (suggestion := table.suggestion(key)) is not None:
            return (suggestion.replica.target.url,), suggestion.advice.knob
        group = table.group(key)
        return None if group is None else (urls_of(group.members), group.knob)

    def action_past(self) -> None:
        """Show the past changes."""
        self.open_screen(PastScreen(self.inks, self.complain, self._desk))

    def action_roll_back(self) -> None:
        """Undo the change under the cursor, or the only one under way."""
        change = change_to_undo(self.picture.changes, self.rows.cursor)
        if change is not None and self._desk is not None:
            confirm_roll_back(self, self._desk, undo_of(change), self._tell)

    def offers(self, action: Action) -> bool:
        """A rollback only when there is something to undo; not the way to where one is."""
        if action.name == "tuners" and self.only is None:
            return False
        if action.name == "what_if" and (not self.can_paint or self._asked() is None):
            return False
        cursor = self.rows.cursor if self.can_paint else None
        undo = action.name != "roll_back" or change_to_undo(self.picture.changes, cursor) is not None
        return undo and super().offers(action)

    def _tell(self, trouble: str) -> None:
        self._trouble = trouble
        self.paint()


def urls_of(members: Sequence[Suggestion]) -> tuple[str, ...]:
    """The targets of these rows."""
    return tuple(member.replica.target.url for member in members)


class QuietScreen(ReadingScreen):
    """The replicas behind one row of what is left alone, each with its reasons."""

    PLACE = Place.QUIET
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_for(Place.QUIET)]

    def __init__(self, inks: Inks, complain: Complain, action: str, knob: str, only: str | None) -> None:
        super().__init__(inks, complain)
        self._action, self._knob, self._only = action, knob, only

    def title_line(self, width: int) -> Line:
        """Which knob, and what is advised."""
        left = (Span(f" {self._action}", "title"), Span(f" · {self._knob}"))
        return spread(left, badges(self.picture), width)

    def body_lines(self, width: int) -> list[Line]:
        """One paragraph a replica."""
        return quiet_lines(self.picture, self._action, self._knob, width, self._only)

    def action_what_if(self) -> None:
        """Ask what these replicas would do at a value."""
        members = quiet_members(self.picture, self._action, self._knob, self._only)
        self.open_screen(WhatIfScreen(self.inks, self.complain, urls_of(members), self._knob))


class PoolScreen(ReadingScreen):
    """The advice on a pool, by the pool's key."""

    PLACE = Place.QUIET
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_for(Place.QUIET)]

    def __init__(self, inks: Inks, complain: Complain, key: str) -> None:
        super().__init__(inks, complain)
        self._key = key

    @property
    def pool(self) -> PoolAdvice | None:
        """The pool in the present picture."""
        return next((one for one in pools_of(self.picture) if pool_key(one) == self._key), None)

    def title_line(self, width: int) -> Line:
        """Which pool."""
        return pool_title(self.picture, self.pool, width)

    def body_lines(self, width: int) -> list[Line]:
        """Knob by knob."""
        return pool_lines(self.picture, self.pool, width)

    def offers(self, action: Action) -> bool:
        """No what-if: a value is asked for of a knob."""
        return action.name != "what_if" and super().offers(action)


class SuggestionScreen(ReadingScreen):
    """One suggestion. With a controller it is asked what the change would take, anew before every start."""

    PLACE = Place.SUGGESTION
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_for(Place.SUGGESTION)]

    def __init__(self, inks: Inks, complain: Complain, desk: ControlDesk | None, url: str, knob: str) -> None:
        super().__init__(inks, complain)
        self.url, self.knob = url, knob
        self.plan = Plan()
        self._desk = desk
        self._confirm_wanted = False

    def on_mount(self) -> None:
        """Ask what the change would take; this reads and writes nothing."""
        self._propose(confirm=False)

    def title_line(self, width: int) -> Line:
        """Which suggestion."""
        return suggestion_title(self.picture, self.url, self.knob, width)

    def body_lines(self, width: int) -> list[Line]:
        """Diff, reasons, expectation, what it takes."""
        return suggestion_lines(self.picture, self.url, self.knob, self.plan, width)

    def action_what_if(self) -> None:
        """Ask what the replica would do at a value."""
        self.open_screen(WhatIfScreen(self.inks, self.complain, (self.url,), self.knob))

    def action_apply(self) -> None:
        """Work the change out anew; if nothing speaks against it, ask for the canary's name."""
        self._propose(confirm=True)

    def _propose(self, *, confirm: bool) -> None:
        advice = advice_of(self.picture.replica(self.url), self.knob)
        desk = self._desk
        if desk is None or self.picture.read_only or advice is None or advice.action not in ACTIONABLE:
            return
        self._confirm_wanted = confirm
        if not self.plan.asking:
            self._show_plan(Plan(self.plan.proposal, asking=True))
            desk.ask(lambda: desk.control.propose(self.url, self.knob), self._take, self._tell)

    def _take(self, proposal: Proposal) -> None:
        self._show_plan(Plan(proposal))
        if self._confirm_wanted and not proposal.refusals and self.is_current and self._desk is not None:
            self._confirm(self._desk, proposal)

    def _confirm(self, desk: ControlDesk, proposal: Proposal) -> None:
        name = self.picture.name_of(proposal.canary_target)

        def start() -> None:
            approval = desk.approval(name)
            desk.ask(
                lambda: desk.control.start(proposal.id, approval), lambda _: self._started(desk), self._tell
            )

        self.open_screen(
            ConfirmScreen(
                self.inks,
                self.complain,
                title=f"apply · {self.knob}",
                question=lambda picture, width: proposal_lines(picture, proposal, width),
                word=name,
                done=start,
            )
        )

    def _started(self, desk: ControlDesk) -> None:
        proposal = self.plan.proposal
        if proposal is not None and self.is_current:
            self.open_screen(ChangeScreen(self.inks, self.complain, desk, proposal.id))

    def _tell(self, trouble: str) -> None:
        self._show_plan(Plan(self.plan.proposal, trouble=trouble))

    def _show_plan(self, plan: Plan) -> None:
        self.plan = plan
        self.paint()
