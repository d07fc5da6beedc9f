"""One suggestion: what speaks for it, what it takes, and the way to its canary."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import BindingType

from enginetop.fleet.change import Proposal
from tui.actions import Action, Place
from tui.control_desk import ControlDesk
from tui.screens.base import bindings_for
from tui.screens.change import ChangeScreen
from tui.screens.confirm import ConfirmScreen
from tui.screens.reading import ReadingScreen
from tui.screens.what_if import WhatIfScreen
from tui.view.advice import ACTIONABLE, advice_of
from tui.view.cells import Line
from tui.view.suggestion import Plan, proposal_lines, suggestion_lines, suggestion_title
from tui.widgets.ink import Inks
from tui.widgets.line_view import Complain


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

    def offers(self, action: Action) -> bool:
        """A start only while the advice is a change: it may come to hold while somebody reads."""
        advice = advice_of(self.picture.replica(self.url), self.knob)
        stays = advice is None or advice.action not in ACTIONABLE
        return not (stays and action.name == "apply") and super().offers(action)

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
                lambda: desk.control.start(proposal.id, approval),
                lambda _: self._started(desk, proposal),
                self._tell,
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

    def _started(self, desk: ControlDesk, proposal: Proposal) -> None:
        if self.is_current:
            self.open_screen(ChangeScreen(self.inks, self.complain, desk, proposal.id))

    def _tell(self, trouble: str) -> None:
        self._show_plan(Plan(self.plan.proposal, trouble=trouble))

    def _show_plan(self, plan: Plan) -> None:
        self.plan = plan
        self.paint()
