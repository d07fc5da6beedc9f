"""The alerts' screen: acknowledge, silence, take back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.message import Message
from textual.widgets import Input

from enginetop.fleet.snapshot import Alert
from themes.loader import Ink
from tui.actions import Action, Place
from tui.alert_desk import WORDS_HELP, AlertDesk
from tui.screens.base import PictureScreen, bindings_for
from tui.screens.detail import DetailScreen
from tui.screens.listing import TitledListScreen
from tui.screens.why import HistoryScreen, WhyScreen
from tui.timeline import AlertBegin
from tui.view.alerts import alert_key, alert_rows, alerts_title, alerts_verdict
from tui.view.cells import Line, plain, printable, wrap_text
from tui.view.rows import Rows
from tui.view.title import screen_title
from tui.widgets.ink import Inks
from tui.widgets.line_view import Complain, LineView

_ACTS = frozenset({"acknowledge", "note", "silence(1800)", "silence(7200)", "silence_words", "undo_quiet"})


class AlertsScreen(TitledListScreen):
    """Pending and firing alerts, the gravest first. Without `desk` nobody can say anything to them.

    `begins` tells which alerts began in the time that is kept.
    """

    PLACE = Place.ALERTS
    HAS_VERDICT = True
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_for(Place.ALERTS)]

    def __init__(
        self,
        inks: Inks,
        complain: Complain,
        desk: AlertDesk | None,
        begins: Callable[[], Sequence[AlertBegin]] = tuple,
    ) -> None:
        super().__init__(inks, complain)
        self.table: Rows[Alert] = Rows((), 0)
        self._begins = begins
        self._desk = desk
        self._said = ""

    class BeganWanted(Message):
        """The fleet is to be shown as it was when this alert began."""

        def __init__(self, alert: Alert) -> None:
            super().__init__()
            self.alert = alert

    def title_line(self, width: int) -> Line:
        """What this list is."""
        return alerts_title(self.picture, width)

    def verdict_line(self, width: int) -> Line:
        """What came of the last act, else how many alerts there are."""
        return alerts_verdict(self.picture, width, self._said)

    def list_rows(self, width: int) -> Rows[Alert]:
        """The list."""
        self.table = alert_rows(self.picture, width)
        return self.table

    def open_row(self, key: str) -> None:
        """Show the replica that the alert is about."""
        alert = self.table.about(key)
        if alert is not None and self.picture.replica(alert.target) is not None:
            self.open_screen(DetailScreen(self.inks, self.complain, alert.target, lambda _: None))

    def offers(self, action: Action) -> bool:
        """What is done to an alert needs one, and somebody who keeps it; not the way to where one is."""
        if action.name == "alerts":
            return False
        if action.name in ("began", "why"):
            return self._selected() is not None
        if action.name in _ACTS:
            return self._desk is not None and self._selected() is not None
        return super().offers(action)

    def action_acknowledge(self) -> None:
        """Acknowledge the alert under the cursor."""
        self._do(lambda desk, alert: desk.acknowledge(alert, "", self._tell))

    def action_began(self) -> None:
        """Go back to the instant at which the alert under the cursor began."""
        alert = self._selected()
        if alert is not None:
            self.post_message(self.BeganWanted(alert))

    def action_why(self) -> None:
        """Show why the alert under the cursor is there."""
        alert = self._selected()
        if alert is not None:
            self.open_screen(WhyScreen(self.inks, self.complain, alert_key(alert)))

    def action_history(self) -> None:
        """Show the alerts that began, also those that are over."""
        self.open_screen(HistoryScreen(self.inks, self.complain, self._begins))

    def action_note(self) -> None:
        """Acknowledge it with a note."""

        def entered(desk: AlertDesk, alert: Alert, words: str) -> str:
            desk.acknowledge(alert, " ".join(words.split()), self._tell)
            return ""

        self._ask_words("acknowledge", "a note for whoever looks next", "", entered)

    def action_silence(self, seconds: int) -> None:
        """Silence its rule at its target for a while."""
        self._do(lambda desk, alert: desk.silence(alert, seconds, self._tell))

    def action_silence_words(self) -> None:
        """Silence as typed."""
        self._ask_words(
            "silence",
            WORDS_HELP,
            "4h ",
            lambda desk, alert, words: desk.silence_words(alert, words, self._tell),
        )

    def action_undo_quiet(self) -> None:
        """Take back what keeps it quiet."""
        name = self.picture.name_of
        self._do(lambda desk, alert: desk.undo(alert, name(alert.target), self._tell))

    def action_back(self) -> None:
        """Back to where one came from."""
        self._said = ""
        super().action_back()

    def _selected(self) -> Alert | None:
        key = self.rows.cursor if self.can_paint else None
        return None if key is None else self.table.about(key)

    def _do(self, act: Callable[[AlertDesk, Alert], None]) -> None:
        alert = self._selected()
        if self._desk is not None and alert is not None:
            act(self._desk, alert)

    def _ask_words(
        self, title: str, prompt: str, value: str, entered: Callable[[AlertDesk, Alert, str], str]
    ) -> None:
        def ask(desk: AlertDesk, alert: Alert) -> None:
            about = f"{title} {alert.rule} of {self.picture.name_of(alert.target)}"
            self.open_screen(
                WordsScreen(
                    self.inks, self.complain, about, prompt, value, lambda words: entered(desk, alert, words)
                )
            )

        self._do(ask)

    def _tell(self, said: str) -> None:
        self._said = said
        self.paint()


class WordsScreen(PictureScreen):
    """Asks for one line. `entered` gets it and returns a mistake, empty for none: then the screen closes."""

    PLACE = Place.CONFIRM
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_for(Place.CONFIRM)]
    AUTO_FOCUS = "Input"

    def __init__(
        self,
        inks: Inks,
        complain: Complain,
        title: str,
        prompt: str,
        value: str,
        entered: Callable[[str], str],
    ) -> None:
        super().__init__(inks, complain)
        self._title, self._prompt, self._value = title, prompt, value
        self._entered = entered
        self._mistake = ""

    def compose(self) -> ComposeResult:
        """Title, prompt, entry, footer."""
        yield LineView(self.inks, self.complain, id="title")
        yield LineView(self.inks, self.complain, id="prompt")
        yield Input(self._value, id="word", compact=True, select_on_focus=False)
        yield LineView(self.inks, self.complain, id="footer")

    def paint(self) -> None:
        """Bring every part up to date."""
        width = self.size.width
        if not self.can_paint:
            return
        ink: Ink = "warn" if self._mistake else "text"
        said = wrap_text(printable(self._mistake or self._prompt), width - 1)
        prompt = [plain(f" {text}", ink) for text in said]
        with self.app.batch_update():
            self.show_line("title", lambda: screen_title(self.picture, printable(self._title), "", width))
            self.part("#prompt").show_lines(prompt)
            self.paint_footer(self.part("#prompt"))

    def on_input_changed(self) -> None:
        """A new try."""
        self._mistake = ""
        self.paint()

    def on_input_submitted(self) -> None:
        """The line is entered."""
        self.action_confirm()

    def action_confirm(self) -> None:
        """Hand the line on."""
        self._mistake = self._entered(self.query_one(Input).value)
        if self._mistake:
            self.paint()
        else:
            self.dismiss()
