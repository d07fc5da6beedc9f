"""The Textual app: wiring between the source of snapshots and the screens, and nothing else.

Textual looks for actions and messages on one object, so the app is built up in layers, each of which knows
only those beneath it: `LinkedApp` (the terminal), `PictureApp` (painting, faults), `ShellApp` (the command
line), `TravelApp` (time), `FleetApp` (source, controller, screens). Which moment is shown: `tui.moment`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

from tui.terminal import prepare, wants_ascii

prepare(os.environ)

from textual.binding import BindingType  # noqa: E402 - Textual reads its settings at import
from textual.message import Message  # noqa: E402

from enginetop.alerts.rule import Rule  # noqa: E402
from enginetop.alerts.silence import QuietDesk  # noqa: E402
from enginetop.fleet.errors import EnginetopError  # noqa: E402
from enginetop.fleet.model import Target  # noqa: E402
from enginetop.fleet.ports import ChangeControl, FleetSource, Playback, RawPages  # noqa: E402
from themes.loader import choose_theme, load_theme  # noqa: E402
from tui.actions import ACTIONS, Action, Place  # noqa: E402
from tui.alert_desk import AlertDesk  # noqa: E402
from tui.control_desk import ControlDesk  # noqa: E402
from tui.errands import Errands  # noqa: E402
from tui.keymap import binding_keys  # noqa: E402
from tui.moment import Moment  # noqa: E402
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
from tui.view.picture import Picture  # noqa: E402
from tui.view.undo import leave_question  # noqa: E402
from tui.widgets.ink import Inks, textual_theme  # noqa: E402

_TICK_SECONDS = 1.0


class FleetApp(TravelApp):
    """Shows what `source` publishes.

    The source is started after the first paint. It calls back from its own thread; the callback only posts a
    token, and only if none is on its way, so a stalled terminal cannot pile up work.

    `targets` are shown while nothing has been scraped yet. `clock` measures how long the picture has been
    frozen or without news: monotonic seconds, not the time of the snapshots. `playback` is the source itself
    when it plays a recording. `control` carries changes out, unless `read_only`; its changes are shown in
    either case; `approver` is who approves them, for the audit. Alerts are silenced and acknowledged through
    `quiet`, in the same name. `pages` are the raw pages of replicas, `columns` keeps the user's columns of
    the fleet, `actions` is the table with his keys, `theme_folder` has themes of his own.
    `fault_log` is where faults of views are written down, `rules` are the alert rules in force (None: the
    built-in ones). ConfigError: the `theme` is not known.
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
        rules: Sequence[Rule] | None = None,
    ) -> None:
        palette = load_theme(choose_theme(theme, os.environ), theme_folder)
        always = Picture(
            targets=tuple(targets),
            title=title,
            read_only=read_only or control is None,
            simulated=simulated,
            actions=ACTIONS if actions is None else tuple(actions),
            fault_log="" if fault_log is None else str(fault_log),
            rules=None if rules is None else tuple(rules),
        )
        super().__init__(
            Moment(source, always, control=control, playback=playback, clock=clock),
            Inks(palette, ascii_only=ascii_only or wants_ascii(os.environ)),
            always.actions,
            clock=clock,
            fault_log=fault_log,
            ansi_color=True if palette.ansi else None,
        )
        self.animation_level = "none"
        self.register_theme(textual_theme(palette))
        self.theme = f"enginetop-{palette.name}"
        self.set_keymap(binding_keys(self.actions))
        self.mouse, self._theme_folder = mouse, theme_folder
        self._source, self._control, self._pages, self._columns = source, control, pages, columns
        self._chosen, self._columns_problem = _saved(columns)
        made_with = approver, self.begin, self.note_failure
        self._desk = None if control is None else ControlDesk(control, *made_with)
        self._alert_desk = None if quiet is None else AlertDesk(quiet, *made_with)
        self._ready_pending = self._changes_pending = False
        self._subscriptions: list[Callable[[], None]] = []

    def get_default_screen(self) -> FleetScreen:
        """The fleet is the first screen."""
        screen = FleetScreen(self.inks, self.note_failure)
        screen.choice = self._chosen
        screen.picture = self.moment.picture()
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

    # -- the source and the controller

    def on_fleet_screen_painted(self) -> None:
        """Something is on the screen: now start the source."""
        if self._columns_problem:
            self.top.say(self._columns_problem, "warn")
        try:
            if self._control is not None:
                self._subscriptions.append(self._control.subscribe(self._announce_changes))
                self.moment.take_changes()
            self._subscriptions.append(self._source.subscribe(self._announce))
            self._source.start()
        except EnginetopError as error:
            self._cannot_start(str(error))
        except Exception as error:  # noqa: BLE001 - shown on the screen instead of ending it
            self._cannot_start(f"collection could not start: {type(error).__name__}: {error}")
        self.paint()

    def _cannot_start(self, why: str) -> None:
        self.moment.notice = why
        self.failures.append(why)

    def _announce(self) -> None:
        """Called from the source's thread: keep the picture, leave a token unless one is on its way."""
        try:
            self.moment.remember()
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
        self.moment.hear()
        self.paint_soon()

    def on_fleet_app_changes_ready(self) -> None:
        """The same for changes."""
        self._changes_pending = False
        self.moment.hear_of_changes()
        self.paint_soon()

    # -- screens

    def on_fleet_screen_chosen(self, message: FleetScreen.Chosen) -> None:
        """Keep the user's columns."""
        store, screen = self._columns, self.top
        if store is not None:
            Errands("columns", self.begin, self.note_failure).ask(
                lambda: store.save(message.choice), lambda _done: None, lambda said: screen.say(said, "warn")
            )

    def action_refresh_now(self) -> None:
        """Ask every target now."""
        self._source.request_refresh()

    def action_help(self) -> None:
        """Open the help page."""
        if not isinstance(self.screen, HelpScreen):
            self.open_screen(HelpScreen(self.inks, self.note_failure))

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
            self.open_screen(make(self.inks, self.note_failure))

    def action_alerts(self) -> None:
        """Open the alerts."""
        if not isinstance(self.screen, AlertsScreen):
            self.action_fleet()
            timeline = self.moment.travel.timeline
            self.open_screen(
                AlertsScreen(self.inks, self.note_failure, self._alert_desk, lambda: timeline.begins)
            )

    def action_tuners(self) -> None:
        """Open the tuners of the whole fleet."""
        if not (isinstance(self.screen, TunersScreen) and self.screen.only is None):
            self.action_fleet()
            self.open_screen(TunersScreen(self.inks, self.note_failure, self._desk))

    def on_picture_screen_resumed(self) -> None:
        """Show the newest picture at once."""
        self.paint()

    def on_picture_screen_tuners_wanted(self, message: PictureScreen.TunersWanted) -> None:
        """Open the tuners of one replica."""
        self.open_screen(TunersScreen(self.inks, self.note_failure, self._desk, message.url))

    def on_picture_screen_raw_page_wanted(self, message: PictureScreen.RawPageWanted) -> None:
        """Open the raw page of one replica."""
        if self._pages is None:
            self.top.say("pages are not kept here")
        else:
            self.open_screen(
                RawPageScreen(self.inks, self.note_failure, message.url, self._pages, self.begin)
            )

    def action_leave(self) -> None:
        """End the program; while a change is under way, only after a question."""
        picture = self.moment.picture()
        if isinstance(self.screen, ConfirmScreen) or not picture.in_flight or picture.read_only:
            self.exit()
            return
        self.open_screen(
            ConfirmScreen(
                self.inks,
                self.note_failure,
                title="quit",
                question=leave_question,
                word="y",
                done=self.exit,
                at_once=True,
            )
        )


def _saved(store: ColumnStore | None) -> tuple[Choice, str]:
    """The columns that were saved, or why they cannot be had: no reason not to show the fleet."""
    try:
        return ((), "") if store is None else (store.load(), "")
    except EnginetopError as error:
        return (), str(error)
