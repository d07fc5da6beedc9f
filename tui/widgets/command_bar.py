"""The command line at the foot of a screen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import Input

from tui.view.cells import Line, Span, clip, plain, printable, wrap_items
from tui.widgets.ink import Inks
from tui.widgets.line_view import Complain, LineView

Completions = Callable[[str], Sequence[str]]
"""The lines that a beginning can become."""


class CommandBar(Vertical):
    """One line to type, above it what it can become. It says `Entered`; its owner closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "complete", priority=True, show=False),
        Binding("escape", "close", priority=True, show=False),
        Binding("up", "former(-1)", priority=True, show=False),
        Binding("down", "former(1)", priority=True, show=False),
    ]

    class Entered(Message):
        """The line was entered."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Left(Message):
        """It was left with nothing done."""

    def __init__(
        self, inks: Inks, complain: Complain, completions: Completions, history: Sequence[str], value: str
    ) -> None:
        super().__init__()
        self._inks, self._complain = inks, complain
        self._completions = completions
        self._history = [*history, value]
        self._place = len(history)
        self._mistake = ""

    def compose(self) -> ComposeResult:
        """Hints above, the entry below."""
        yield LineView(self._inks, self._complain, id="hints")
        yield Input(self._history[-1], id="command", compact=True, select_on_focus=False)

    @property
    def entry(self) -> Input:
        """Where one types."""
        return self.query_one("#command", Input)

    def say(self, mistake: str) -> None:
        """Show in one line what is wrong, until the next key."""
        self._mistake = mistake
        self._paint()

    def on_mount(self) -> None:
        """What can be typed."""
        self.call_after_refresh(self._paint)

    def on_input_changed(self, event: Input.Changed) -> None:
        """What it can become now."""
        event.stop()
        self._mistake = ""
        self._paint()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Hand it over."""
        event.stop()
        self.post_message(self.Entered(event.value))

    def action_close(self) -> None:
        """Leave it."""
        self.post_message(self.Left())

    def action_complete(self) -> None:
        """Type what all completions have in common, else the first of them."""
        value = self.entry.value
        found = self._completions(value)
        if found:
            common = found[0]
            for other in found[1:]:
                while not other.startswith(common):
                    common = common[:-1]
            self._enter(common if len(common) > len(value) else found[0])

    def action_former(self, step: int) -> None:
        """Go through what was entered before."""
        self._place = max(0, min(self._place + step, len(self._history) - 1))
        self._enter(self._history[self._place])

    def _enter(self, text: str) -> None:
        self.entry.value = text
        self.entry.cursor_position = len(text)

    def _paint(self) -> None:
        width = self.size.width
        if not self.is_mounted or width <= 0:
            return
        lead = Span(" : ", "key")
        if self._mistake:
            line: Line = (lead, Span(printable(self._mistake), "warn"))
        else:
            found = self._completions(self.entry.value)
            items = [plain(printable(text.rpartition(" ")[2] or text.strip()), "dim") for text in found]
            line = (lead, *wrap_items(items, max(width - 3, 1), Span("  ")))
        self.query_one("#hints", LineView).show_lines([clip(line, width)])
