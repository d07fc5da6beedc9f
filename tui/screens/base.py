"""What all screens share: they show pictures, and a part that fails does not take the others with it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence

from textual.binding import Binding
from textual.message import Message
from textual.timer import Timer
from textual.widget import Widget

from themes.loader import Ink
from tui.actions import TYPING, Action, Place, actions_at
from tui.faults import failure_line
from tui.keymap import binding_id
from tui.screens.whole import WholeScreen
from tui.view.cells import EMPTY_LINE, Line, clip, line_text, plain, printable
from tui.view.footer import actions_now, footer_hints, footer_line, sight_text
from tui.view.picture import Picture
from tui.widgets.command_bar import CommandBar
from tui.widgets.ink import Inks
from tui.widgets.line_view import Complain, LineView

SAID_SECONDS = 6.0
"""How long a line stays that says what came of a command."""


def bindings_for(place: Place) -> list[Binding]:
    """Textual bindings from the action table. Their ids are the actions' names, for later remapping."""
    return [
        Binding(
            ",".join(action.keys),
            action.name,
            action.label,
            show=False,
            priority=action.at_once,
            key_display=action.key_text,
            tooltip=action.meaning,
            id=binding_id(place, action),
        )
        for action in actions_at(place)
        if place in action.places
    ]


class PictureScreen(WholeScreen):
    """A screen that shows pictures. `picture` is the one shown last."""

    PLACE = Place.ANYWHERE
    ESCAPE_TO_MINIMIZE = False
    AUTO_FOCUS = ""

    def __init__(self, inks: Inks, complain: Complain) -> None:
        super().__init__()
        self.inks = inks
        self.complain = complain
        self.picture = Picture()
        self._bar: CommandBar | None = None
        self._focused_before: Widget | None = None
        self._footer_said: Line = EMPTY_LINE
        self._said_timer: Timer | None = None
        self.awaits_entry = self.PLACE in TYPING
        """Whether what is typed waits for an entry that is not there yet."""

    class Resumed(Message):
        """A screen is on top again and wants the newest picture."""

    class EntryReady(Message):
        """The entry that was waited for has the keys."""

    class TunersWanted(Message):
        """The tuners of one replica are to be shown."""

        def __init__(self, url: str) -> None:
            super().__init__()
            self.url = url

    class RawPageWanted(Message):
        """The raw page of one replica is to be shown."""

        def __init__(self, url: str) -> None:
            super().__init__()
            self.url = url

    @property
    def export_name(self) -> str:
        """What a file with this view is called."""
        return str(self.PLACE)

    def exported_urls(self) -> Sequence[str] | None:
        """The replicas that this view is about; None: all."""
        return None

    def copied_text(self) -> str:
        """What is copied from this view: plain text, nothing in it that a terminal would obey."""
        lines = [line for view in self.query(LineView) if view.id != "footer" for line in view.all_lines()]
        return "\n".join(printable(line_text(line)).rstrip() for line in lines).strip("\n")

    # -- the command line at the foot

    @property
    def types(self) -> bool:
        """Whether somebody types in the command line."""
        return self._bar is not None

    def open_bar(self, bar: CommandBar) -> None:
        """Show the command line and give it the keys."""
        if self._bar is None:
            self._bar = bar
            self._focused_before = self.focused
            self.awaits_entry = True
            self.add_class("-commanding")
            self.mount(bar)
            self.call_after_refresh(self._focus_bar)
            self.withhold()

    def close_bar(self) -> None:
        """Take it away and give the keys back."""
        bar, self._bar = self._bar, None
        self.awaits_entry = False
        if bar is not None:
            self.set_focus(self._focused_before)
            self.remove_class("-commanding")
            bar.remove()
            self.withhold()

    def say_in_bar(self, mistake: str) -> None:
        """What is wrong with the line."""
        if self._bar is not None:
            self._bar.say(mistake)

    def on_descendant_focus(self) -> None:
        """An entry has the keys."""
        if self.awaits_entry:
            self.awaits_entry = False
            self.post_message(self.EntryReady())

    def _focus_bar(self) -> None:
        if self._bar is not None:
            self.set_focus(self._bar.entry)

    def say(self, text: str, ink: Ink = "info") -> None:
        """One line in the place of the footer, until the next key or for a few seconds."""
        self._footer_said = clip(plain(f" {printable(text)}", ink), max(self.size.width, 1))
        if self._said_timer is not None:
            self._said_timer.stop()  # this line has its own time
        self._said_timer = self.set_timer(SAID_SECONDS, self._fall_silent)
        self._show_said()

    def _fall_silent(self) -> None:
        if self._footer_said:
            self._footer_said = EMPTY_LINE
            self.paint()

    def _show_said(self) -> bool:
        if self._footer_said and self.query("#footer"):
            self.part("#footer").show_lines([self._footer_said])
            return True
        return False

    def on_key(self) -> None:
        """A key ends what was said."""
        self._footer_said = EMPTY_LINE

    def open_screen(self, screen: PictureScreen) -> None:
        """Put a screen on top; it shows the present picture at once."""
        screen.picture = self.picture
        self.app.push_screen(screen)

    def show(self, picture: Picture) -> None:
        """Show this picture now."""
        self.picture = picture
        self.paint_safely()

    @abstractmethod
    def paint(self) -> None:
        """Bring every part of the screen up to date with `picture`."""

    def paint_safely(self) -> None:
        """Paint; if that fails as a whole, say so at the foot of the screen and go on."""
        try:
            self.paint()
        except Exception as error:  # noqa: BLE001 - the program must go on
            self.complain(str(self.PLACE), error)
            self.say(f"✖ {failure_line(str(self.PLACE), error)}{self._logged}", "crit")

    @property
    def _logged(self) -> str:
        return f" · see {self.picture.fault_log}" if self.picture.fault_log else ""

    def on_screen_resume(self) -> None:
        """A screen that comes back shows the newest picture; the entry that keys wait for gets them."""
        # Textual gives none the focus where the terminal was left meanwhile: keys would wait for ever.
        if self.awaits_entry and self.AUTO_FOCUS and (entries := self.query(self.AUTO_FOCUS)):
            self.set_focus(entries.first())
        self.post_message(self.Resumed())

    def build_lines(self, where: str, build: Callable[[], list[Line]]) -> list[Line]:
        """The lines of one part; if building fails, a line that says so."""
        try:
            return build()
        except Exception as error:  # noqa: BLE001 - the rest of the screen must go on
            return [self.failed_line(where, error)]

    def failed_line(self, where: str, error: Exception) -> Line:
        """Tell of a fault in one part, in its place."""
        self.complain(where, error)
        said = f" {where} failed: {type(error).__name__}: {error}{self._logged}"
        return clip(plain(printable(said), "crit"), max(self.size.width, 1))

    def show_line(self, part: str, build: Callable[[], Line]) -> None:
        """Bring a part of one line up to date."""
        self.part(f"#{part}").show_lines(self.build_lines(part, lambda: [build()]))

    def paint_footer(self, view: LineView) -> None:
        """The keys of this place, and what part of `view` is in sight."""
        if self._show_said():
            return
        picture = self.picture
        hints = footer_hints(self.PLACE, len(picture.suggestions), self.offers, actions_now(picture))
        where = sight_text(view.in_sight(), view.line_count)
        self.show_line("footer", lambda: footer_line(hints, where, self.size.width))

    def on_line_view_moved(self, message: LineView.Moved) -> None:
        """The footer tells what is in sight now, not with the next picture."""
        self.paint_footer(message.view)

    def offers(self, action: Action) -> bool:
        """Whether the action can be taken now; what changes an engine never while all is read-only."""
        if action.name in ("faster", "slower") and self.picture.playback is None:
            return False
        if action.name == "apply" and self.picture.behind_seconds is not None:
            return False  # advice of the past
        return not (action.dangerous and self.picture.read_only)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """What is not offered is no key at all; while somebody types a command, nothing is."""
        if self.types and any(row.name.partition("(")[0] == action for row in actions_at(self.PLACE)):
            return False
        refused = any(row.name == action and not self.offers(row) for row in actions_at(self.PLACE))
        return False if refused else super().check_action(action, parameters)

    def action_back(self) -> None:
        """Back to where one came from."""
        self.dismiss()

    def part(self, selector: str) -> LineView:
        """One line view of this screen."""
        return self.query_one(selector, LineView)
