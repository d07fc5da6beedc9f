"""A confirmation by typing: what will be done, and the word that must be typed to have it done."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.widgets import Input

from tui.actions import Action, Place
from tui.control_desk import ControlDesk
from tui.screens.base import PictureScreen, bindings_for
from tui.view.cells import Line, Span, clip, plain
from tui.view.picture import Picture
from tui.view.title import screen_title
from tui.view.undo import Undo, undo_question
from tui.widgets.ink import Inks
from tui.widgets.line_view import Complain, LineView

_OTHER_LINES = 4
"""Title, prompt, entry, footer."""

Question = Callable[[Picture, int], list[Line]]


class ConfirmScreen(PictureScreen):
    """Calls `done` once `word` is typed and entered; `at_once`: as soon as it is typed.

    `title` names the act, `question` says in lines what it will do.
    """

    PLACE = Place.CONFIRM
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_for(Place.CONFIRM)]
    AUTO_FOCUS = "Input"

    def __init__(
        self,
        inks: Inks,
        complain: Complain,
        *,
        title: str,
        question: Question,
        word: str,
        done: Callable[[], None],
        at_once: bool = False,
    ) -> None:
        super().__init__(inks, complain)
        self._title = title
        self._question = question
        self._word = word
        self._done = done
        self._at_once = at_once
        self._wrong = ""

    def compose(self) -> ComposeResult:
        """Title, what will be done, prompt, entry, footer."""
        for part in ("title", "body", "prompt"):
            yield LineView(self.inks, self.complain, id=part)
        yield Input(id="word", compact=True)
        yield LineView(self.inks, self.complain, id="footer")

    def paint(self) -> None:
        """Bring every part up to date; each fails alone."""
        picture, width = self.picture, self.size.width
        if not self.can_paint:
            return
        # A long question gives way: prompt and entry are always in sight.
        self.part("#body").styles.max_height = max(self.size.height - _OTHER_LINES, 1)
        with self.app.batch_update():
            self.show_line("title", lambda: screen_title(picture, self._title, "", width))
            self.part("#body").show_lines(
                self.build_lines("question", lambda: self._question(picture, width))
            )
            self.part("#prompt").show_lines([clip(self._prompt(), width)])
            self.paint_footer(self.part("#body"))

    def offers(self, action: Action) -> bool:
        """Entering only where it is needed."""
        return not (action.name == "confirm" and self._at_once) and super().offers(action)

    def _prompt(self) -> Line:
        if self._wrong:
            return plain(f" {self._wrong!r} is not {self._word!r}", "warn")
        end = "" if self._at_once else " and press enter"
        return (Span(" type "), Span(self._word, "key"), Span(f"{end} to do it; esc leaves it"))

    def on_input_changed(self, event: Input.Changed) -> None:
        """A new try."""
        self._wrong = ""
        if self._at_once and event.value.strip() == self._word:
            self.action_confirm()
        else:
            self.paint()

    def on_input_submitted(self) -> None:
        """The word is entered."""
        self.action_confirm()

    def action_confirm(self) -> None:
        """Do it if the word is right."""
        typed = self.query_one(Input).value.strip()
        if typed == self._word:
            self.dismiss()
            self._done()
        else:
            self._wrong = typed
            self.paint()


def confirm_roll_back(
    screen: PictureScreen, desk: ControlDesk, undo: Undo, failed: Callable[[str], None]
) -> None:
    """Ask once, then have the change undone; `failed` gets one line if that cannot be asked for."""

    def roll_back() -> None:
        desk.ask(lambda: desk.control.roll_back(undo.change), lambda _: None, failed)

    screen.open_screen(
        ConfirmScreen(
            screen.inks,
            screen.complain,
            title="roll back",
            question=lambda picture, width: undo_question(picture, undo, width),
            word="y",
            done=roll_back,
            at_once=True,
        )
    )
