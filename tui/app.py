"""The Textual app: wiring between the source of snapshots and the screens, and nothing else."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar, TypedDict, Unpack

from tui.terminal import prepare, wants_ascii

prepare(os.environ)

from textual.binding import BindingType  # noqa: E402 - Textual reads its settings at import
from textual.message import Message  # noqa: E402
from textual.timer import Timer  # noqa: E402

from enginetop.alerts.silence import QuietDesk  # noqa: E402
from enginetop.fleet.change import FINAL_STATES, ChangeView  # noqa: E402
from enginetop.fleet.errors import EnginetopError  # noqa: E402
from enginetop.fleet.model import Target  # noqa: E402
from enginetop.fleet.ports import ChangeControl, FleetSource, Playback, RawPages  # noqa: E402
from enginetop.fleet.snapshot import FleetSnapshot  # noqa: E402
from themes.loader import choose_theme, load_theme  # noqa: E402
from tui.actions import ACTIONS, Action, Place  # noqa: E402
from tui.alert_desk import AlertDesk  # noqa: E402
from tui.control_desk import ControlDesk  # noqa: E402
from tui.errands import Errands  # noqa: E402
from tui.faults import failure_line, write_fault  # noqa: E402
from tui.keymap import binding_keys  # noqa: E402
from tui.screens.alerts import AlertsScreen  # noqa: E402
from tui.screens.base import PictureScreen, bindings_for  # noqa: E402
from tui.screens.confirm import ConfirmScreen  # noqa: E402
from tui.screens.detail import DetailScreen  # noqa: E402
from tui.screens.fleet import FleetScreen  # noqa: E402
from tui.screens.help import HelpScreen  # noqa: E402
from tui.screens.pages import PAGES  # noqa: E402
from tui.screens.raw_page import RawPageScreen  # noqa: E402
from tui.screens.tuners import TunersScreen  # noqa: E402
from tui.travel_app import TravelApp  # noqa: E402
from tui.view.column_choice import Choice, ColumnStore  # noqa: E402
from tui.view.condition_memory import ConditionMemory  # noqa: E402
from tui.view.names import NameMemory  # noqa: E402
from tui.view.picture import Picture  # noqa: E402
from tui.view.undo import leave_question  # noqa: E402
from tui.view.verdict import is_silent  # noqa: E402
from tui.widgets.ink import Inks, textual_theme  # noqa: E402

_LOOK_AGAIN_SECONDS = 0.1
_TICK_SECONDS = 1.0


class Options(TypedDict, total=False):
    """The keyword arguments of `FleetApp`, for `run_app`."""

    title: str
    read_only: bool
    control: ChangeControl | None
    approver: str
    quiet: QuietDesk | None
    simulated: bool
    theme: str | None
    theme_folder: Path | None
    columns: ColumnStore | None
    ascii_only: bool
    mouse: bool
    targets: Sequence[Target]
    clock: Callable[[], float]
    playback: Playback | None
    actions: Sequence[Action] | None
    fault_log: Path | None
    pages: RawPages | None


class FleetApp(TravelApp):
    """Shows what `source` publishes.

    The source is started after the first paint. It calls back from its own thread; the callback only posts a
    token, and only if none is on its way, so a stalled terminal cannot pile up work. `clock` measures how
    long the picture has been frozen or without news: monotonic seconds, not the time of the snapshots.
    `targets` are shown while nothing has been scraped yet. `control` carries changes out, unless `read_only`;
    its changes are shown in either case; `approver` is who approves them, for the audit. Alerts are
    silenced and acknowledged through `quiet`, in the same name. `playback` is the source itself when it plays
    a recording; `actions` is the table with the user's keys; `fault_log` is where faults of views are
    written down. Unknown `theme`: ConfigError.
    `pages` are the raw pages of replicas.
    The user's own themes are files of `theme_folder`, his columns of the fleet are kept in `columns`.
    """

    TITLE = "enginetop"
    ENABLE_COMMAND_PALETTE = False
    CSS_PATH = [  # noqa: RUF012 - Textual's
        "screens/fleet.tcss",
        "screens/reading.tcss",
        "screens/tuners.tcss",
        "screens/pages.tcss",
        "screens/shell.tcss",
    ]
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_for(Place.ANYWHERE)]

    class Ready(Message):
        """The source has a new snapshot."""

    class ChangesReady(Message):
        """The controller has news of its changes."""

    def __init__(
        self,
        source: FleetSource,
        *,
        title: str = "",
        read_only: bool = True,
        control: ChangeControl | None = None,
        approver: str = "",
        quiet: QuietDesk | None = None,
        simulated: bool = False,
        theme: str | None = None,
        theme_folder: Path | None = None,
        columns: ColumnStore | None = None,
        ascii_only: bool = False,
        mouse: bool = True,
        targets: Sequence[Target] = (),
        clock: Callable[[], float] = time.monotonic,
        playback: Playback | None = None,
        actions: Sequence[Action] | None = None,
        fault_log: Path | None = None,
        pages: RawPages | None = None,
    ) -> None:
        palette = load_theme(choose_theme(theme, os.environ), theme_folder)
        super().__init__(playback, ansi_color=True if palette.ansi else None)
        self.animation_level = "none"
        self.register_theme(textual_theme(palette))
        self.theme = f"enginetop-{palette.name}"
        self.mouse = mouse
        self.failures: list[str] = []
        """What went wrong in the program itself, one line each; not empty: the exit code is not 0."""
        self._pages = pages
        self._columns = columns
        self._chosen, self._columns_problem = _saved(columns)
        self.source = source
        self._control = control
        self._desk = (
            None if control is None else ControlDesk(control, approver, self.begin, self.note_failure)
        )
        self._alert_desk = (
            None if quiet is None else AlertDesk(quiet, approver, self.begin, self.note_failure)
        )
        self.inks = Inks(palette, ascii_only=ascii_only or wants_ascii(os.environ))
        self._fleet_title, self._targets = title, tuple(targets)
        self._read_only, self._simulated = read_only or control is None, simulated
        self.clock = clock
        self._notice = ""
        self._ready_pending = False
        self._changes_pending = False
        self._subscriptions: list[Callable[[], None]] = []
        self._conditions, self._names = ConditionMemory(), NameMemory()
        self._changes: tuple[ChangeView, ...] = ()
        self._changes_heard_at = self._changes_at = clock()
        self.snapshot: FleetSnapshot | None = None
        self._arrived_at = clock()
        self.actions = ACTIONS if actions is None else tuple(actions)
        self.set_keymap(binding_keys(self.actions))
        self._painted_at: float | None = None
        self._paint_timer: Timer | None = None
        self._fault_log = fault_log

    def get_default_screen(self) -> FleetScreen:
        """The fleet is the first screen."""
        screen = FleetScreen(self.inks, self.note_failure)
        screen.choice = self._chosen
        screen.picture = self._picture()
        return screen

    def on_mount(self) -> None:
        """Keep the ages of pause and silence going."""
        self.set_interval(_TICK_SECONDS, self._tick)
        self.heed_signals()

    def on_unmount(self) -> None:
        """No more callbacks; whoever made the source stops it."""
        self.forget_signals()
        while self._subscriptions:
            self._subscriptions.pop()()

    def on_fleet_screen_chosen(self, message: FleetScreen.Chosen) -> None:
        """Keep the user's columns."""
        store, screen = self._columns, self.screen
        if store is not None and isinstance(screen, PictureScreen):
            Errands("columns", self.begin, self.note_failure).ask(
                lambda: store.save(message.choice), lambda _done: None, lambda said: screen.say(said, "warn")
            )

    def on_fleet_screen_painted(self) -> None:
        """Something is on the screen: now start the source."""
        if self._columns_problem and isinstance(self.screen, PictureScreen):
            self.screen.say(self._columns_problem, "warn")
        try:
            if self._control is not None:
                self._subscriptions.append(self._control.subscribe(self._announce_changes))
                self._take_changes()
            self._subscriptions.append(self.source.subscribe(self._announce))
            self.source.start()
        except EnginetopError as error:
            self._notice = str(error)
            self.failures.append(str(error))
        except Exception as error:  # noqa: BLE001 - shown on the screen instead of ending it
            self._notice = f"collection could not start: {type(error).__name__}: {error}"
            self.failures.append(self._notice)
        self.paint()

    def _announce(self) -> None:
        """Called from the source's thread: keep the picture, leave a token unless one is on its way."""
        snapshot = self.source.latest()
        try:
            if snapshot is not None:
                self.travel.timeline.add(snapshot)
        except Exception as error:  # noqa: BLE001 - the screen goes on without a past
            self.note_failure("timeline", error)
        if not self._ready_pending:
            self._ready_pending = True
            self.post_message(self.Ready())

    def _announce_changes(self) -> None:
        """Called from the controller's thread: the same, for its changes."""
        if not self._changes_pending:
            self._changes_pending = True
            self.post_message(self.ChangesReady())

    def on_fleet_app_ready(self) -> None:
        """Take the newest snapshot, and paint it when the last paint is long enough ago."""
        self._ready_pending = False
        self._arrived_at = self.clock()
        self._paint_soon()

    def on_fleet_app_changes_ready(self) -> None:
        """The same for changes."""
        self._changes_pending = False
        self._changes_heard_at = self.clock()
        self._paint_soon()

    def _paint_soon(self) -> None:
        if self.paused_at is not None or self._paint_timer is not None:
            return
        wait = 0.0
        if self._painted_at is not None:
            wait = self._painted_at + self.paint_spacing_seconds - self.clock()
        if self.terminal_behind:
            wait = max(wait, _LOOK_AGAIN_SECONDS)
        if wait <= 0:
            self.take_and_paint()
        else:
            self._paint_timer = self.set_timer(wait, self.take_and_paint)

    def take_and_paint(self) -> None:
        """Show the newest snapshot, once the terminal has taken the former picture."""
        self._paint_timer = None
        if self.terminal_behind:
            self._paint_timer = self.set_timer(_LOOK_AGAIN_SECONDS, self.take_and_paint)
            return
        self._painted_at = self.clock()
        if self.paused_at is None:
            self.snapshot = self.source.latest()
            self._take_changes()
        self.paint()

    def _take_changes(self) -> None:
        if self._control is not None:
            self._changes = self._control.latest()
            self._changes_at = self._changes_heard_at

    def _tick(self) -> None:
        """Once a second: how long the picture is frozen or without news, and how long a value is on trial."""
        self.look_after_terminal()
        if self._ages and not self.terminal_behind:
            self.paint()

    @property
    def _ages(self) -> bool:
        """Whether something that is shown changes without news, and was not painted just now."""
        now = self.clock()
        if self.paused_at is not None:
            return True
        if self.snapshot is not None and is_silent(now - self._arrived_at, self.snapshot.interval_seconds):
            return True
        flying = any(change.state not in FINAL_STATES for change in self._changes)
        return flying and (self._painted_at is None or now - self._painted_at >= _TICK_SECONDS / 2)

    def _picture(self) -> Picture:
        now, shown, live = self.clock(), self.travel.shown, self.source.latest()
        return Picture(
            snapshot=shown or self.snapshot,
            targets=self._targets,
            title=self._fleet_title,
            read_only=self._read_only,
            simulated=self._simulated,
            paused_seconds=None if self.paused_at is None else now - self.paused_at,
            silent_seconds=max(now - self._arrived_at, 0.0),
            finished=self.source.finished(),
            notice=self._notice,
            changes=self._changes,
            changes_age_seconds=max(now - self._changes_at, 0.0),
            memory=self._conditions,
            names=self._names,
            behind_seconds=None if shown is None or live is None else live.at - shown.at,
            playback=None if self.playback is None else self.playback.playback(),
            local_at=None if self.playback is None else time.time(),
            actions=self.actions,
            fault_log="" if self._fault_log is None else str(self._fault_log),
        )

    def present_picture(self) -> Picture:
        """What is to be shown now."""
        return self._picture()

    def paint(self) -> None:
        """Show the present picture on the screen on top."""
        screen = self.screen_stack[-1] if self.screen_stack else None
        if isinstance(screen, PictureScreen):
            screen.show(self._picture())

    def note_failure(self, where: str, error: Exception) -> None:
        """Remember a fault of a view: it is shown in its place, written down, and told in the exit code."""
        line = failure_line(where, error)
        if line not in self.failures:
            self.failures.append(line)
            if self._fault_log is not None:
                write_fault(self._fault_log, where, error, time.time())

    def action_refresh_now(self) -> None:
        """Ask every target now."""
        self.source.request_refresh()

    def action_help(self) -> None:
        """Open the help page."""
        if not isinstance(self.screen, HelpScreen):
            screen = HelpScreen(self.inks, self.note_failure)
            screen.picture = self._picture()
            self.push_screen(screen)

    def action_replica(self) -> None:
        """Open the replica under the fleet's cursor."""
        if not isinstance(self.screen, DetailScreen):
            self.action_fleet()
            fleet = self.screen
            if isinstance(fleet, FleetScreen):
                fleet.action_open()

    def action_page(self, name: str) -> None:
        """Open one of the pages about the whole fleet."""
        make = PAGES[name]
        if not isinstance(self.screen, make):
            self.action_fleet()
            screen = make(self.inks, self.note_failure)
            screen.picture = self._picture()
            self.push_screen(screen)

    def action_alerts(self) -> None:
        """Open the alerts."""
        if not isinstance(self.screen, AlertsScreen):
            self.action_fleet()
            screen = AlertsScreen(
                self.inks, self.note_failure, self._alert_desk, lambda: self.travel.timeline.begins
            )
            screen.picture = self._picture()
            self.push_screen(screen)

    def action_tuners(self) -> None:
        """Open the tuners of the whole fleet."""
        if not (isinstance(self.screen, TunersScreen) and self.screen.only is None):
            self.action_fleet()
            self._open_tuners(None)

    def on_picture_screen_resumed(self) -> None:
        """Show the newest picture at once."""
        self.paint()

    def on_picture_screen_tuners_wanted(self, message: PictureScreen.TunersWanted) -> None:
        """Open the tuners of one replica."""
        self._open_tuners(message.url)

    def on_picture_screen_raw_page_wanted(self, message: PictureScreen.RawPageWanted) -> None:
        """Open the raw page of one replica."""
        if self._pages is None:
            self.top.say("pages are not kept here")
            return
        self.top.open_screen(
            RawPageScreen(self.inks, self.note_failure, message.url, self._pages, self.begin)
        )

    def _open_tuners(self, only: str | None) -> None:
        screen = TunersScreen(self.inks, self.note_failure, self._desk, only)
        screen.picture = self._picture()
        self.push_screen(screen)

    def action_leave(self) -> None:
        """End the program; while a change is under way, only after a question."""
        if isinstance(self.screen, ConfirmScreen) or not self._picture().in_flight or self._read_only:
            self.exit()
            return
        screen = ConfirmScreen(
            self.inks,
            self.note_failure,
            title="quit",
            question=leave_question,
            word="y",
            done=self.exit,
            at_once=True,
        )
        screen.picture = self._picture()
        self.push_screen(screen)

    def _fatal_error(self) -> None:
        """Textual would print a traceback; a user gets one line."""
        error = sys.exc_info()[1]
        if isinstance(error, Exception):
            self.note_failure("the screen stopped", error)
        else:
            self.failures.append(f"the screen stopped: {type(error).__name__}")
        self._close_messages_no_wait()


def _saved(store: ColumnStore | None) -> tuple[Choice, str]:
    """The columns that were saved, or why they cannot be had: no reason not to show the fleet."""
    try:
        return ((), "") if store is None else (store.load(), "")
    except EnginetopError as error:
        return (), str(error)


def _stop_control(control: ChangeControl) -> None:
    for change in control.latest():
        if change.state not in FINAL_STATES:
            with suppress(OSError):  # the terminal may be gone; the change must be undone all the same
                print(f"enginetop: undoing change {change.id} first", file=sys.stderr)  # noqa: T201
    control.stop()


def run_app(source: FleetSource, **options: Unpack[Options]) -> int:
    """Run the terminal UI until the user leaves it; the options are those of `FleetApp`.

    Stops the control (which undoes what is under way) and the source afterwards, when the terminal is
    already restored. Returns 0, or 1 when the program
    itself failed (each failure is a line on stderr). ConfigError: the theme is not known.
    """
    app = FleetApp(source, **options)
    try:
        app.run(mouse=app.mouse)
    finally:
        try:
            control = options.get("control")
            if control is not None:
                _stop_control(control)
        finally:
            source.stop()
    with suppress(OSError):  # the terminal may be gone
        for failure in app.failures:
            print(f"enginetop: {failure}", file=sys.stderr)  # noqa: T201 - the terminal is ours again
        if app.failures and options.get("fault_log") is not None:
            print(f"enginetop: where it happened: {options['fault_log']}", file=sys.stderr)  # noqa: T201
    return 1 if app.failures else app.return_code or 0
