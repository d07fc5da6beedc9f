"""The app in time: pause, the past, bookmarks, and the pace of a recording."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import partial

from enginetop.fleet.ports import FleetSource, Playback
from enginetop.fleet.snapshot import Alert, FleetSnapshot
from tui.commands import CommandError, parse_time
from tui.pace import local_instant, next_pace, parse_pace
from tui.screens.alerts import AlertsScreen
from tui.screens.compare import CompareScreen
from tui.screens.detail import DetailScreen
from tui.screens.fleet import FleetScreen
from tui.shell import Done, ShellApp
from tui.time_travel import FAR_SECONDS, TimeTravel
from tui.timeline import Timeline


class TravelApp(ShellApp):
    """An app that shows the newest snapshot of `source`, or one of the past.

    `playback` is the source itself when it plays a recording.
    """

    source: FleetSource
    clock: Callable[[], float]

    def __init__(self, playback: Playback | None, *, ansi_color: bool | None) -> None:
        super().__init__(ansi_color=ansi_color)
        self.playback = playback
        self.travel = TimeTravel(Timeline())
        self.snapshot: FleetSnapshot | None = None
        """The newest one, or the one at which the picture was frozen."""
        self.paused_at: float | None = None
        """By `clock`, when the picture was frozen; None: it runs."""

    @abstractmethod
    def paint(self) -> None:
        """Show the present picture on the screen on top."""

    @abstractmethod
    def take_and_paint(self) -> None:
        """Show the newest snapshot."""

    def action_pause(self) -> None:
        """Freeze the picture, or let it run again: the source goes on. A recording stands still instead."""
        if self.playback is not None and self.travel.shown is None:
            self.playback.set_paused(not self.playback.playback().paused)
            self.paint()
        elif self.paused_at is None:
            self.paused_at = self.clock()
            self.paint()
        else:
            self._go_live()

    def _go_live(self) -> None:
        self.travel.shown = None
        self.paused_at = None
        self.take_and_paint()

    def _show_instant(self) -> None:
        """Show what the journey through time has come to."""
        if self.travel.shown is None:
            self._go_live()
            return
        if self.paused_at is None:
            self.paused_at = self.clock()
        self.paint()

    def action_travel(self, steps: int) -> None:
        """Some pictures back or on; at the end of what was played of a recording an interval of it."""
        if self.playback is not None and steps > 0 and self.travel.shown is None:
            if self.snapshot is not None:
                self.playback.seek(self.snapshot.at + self.snapshot.interval_seconds)
            self.source.request_refresh()  # a step at least, where they are further apart
            return
        self.travel.step(self._live(), steps)
        self._show_instant()

    def action_travel_far(self, steps: int) -> None:
        """Some minutes back or on."""
        if self.playback is not None and steps > 0 and self.travel.shown is None:
            self.playback.seek(self.playback.playback().at + steps * FAR_SECONDS)
            return
        self.travel.far(self._live(), steps)
        self._show_instant()

    def action_alert_event(self, step: int) -> None:
        """Where the alert before or after began to fire."""
        alert = self.travel.alert_event(self._live(), step)
        if alert is None:
            self.top.say(f"no alert began {'before' if step < 0 else 'after'} this in the last 15 minutes")
            return
        self._show_begin(alert)

    def on_alerts_screen_began_wanted(self, message: AlertsScreen.BeganWanted) -> None:
        """Show the fleet as it was when an alert began, with the cursor on what it is about."""
        self.travel.to(self._live(), self.travel.timeline.begin_of(message.alert))
        self.action_fleet()
        self._show_begin(message.alert)

    def _show_begin(self, alert: Alert) -> None:
        self._show_instant()
        top = self.top
        if isinstance(top, FleetScreen):
            top.rows.go_to(alert.target)
        top.say(f"{alert.rule} of {self.present_picture().name_of(alert.target)} begins")

    def _live(self) -> FleetSnapshot | None:
        """The newest snapshot; of a paused picture what is shown."""
        return self.source.latest() if self.travel.shown is not None else self.snapshot

    def action_bookmark(self) -> None:
        """Mark the instant that is shown."""
        letter = self.travel.bookmark(self.snapshot)
        self.top.say(f"bookmark {letter}" if letter else "nothing to mark yet")

    def action_compare(self) -> None:
        """Compare the bookmarks: of the replica that is shown, or of the fleet."""
        top = self.top
        url = top.url if isinstance(top, DetailScreen) else None
        pair = self.travel.pair(self.snapshot)
        top.open_screen(CompareScreen(self.inks, self.note_failure, pair, url))

    def action_faster(self) -> None:
        """Play the recording at the next higher pace."""
        self._change_pace(1)

    def action_slower(self) -> None:
        """Play the recording at the next lower pace."""
        self._change_pace(-1)

    def _change_pace(self, step: int) -> None:
        if self.playback is None:
            self.top.say("only a recording has a pace")
            return
        self.playback.set_speed(next_pace(self.playback.playback().speed, step))
        self.paint()

    def time_command(self, argument: str) -> Done:
        """`:time -5m`, `:time 14:32`, `:time live`."""
        shown = self.travel.shown or self.snapshot
        if shown is None:
            raise CommandError("nothing is known yet")
        return partial(self._go_to, parse_time(argument, shown.at, local_instant))

    def _go_to(self, at: float | None) -> str:
        playback, live = self.playback, self._live()
        reached = None if live is None else live.at
        if at is None or reached is None:
            self._go_live()
            return ""
        oldest = next(iter(self.travel.timeline.times), reached)
        if playback is not None and not oldest <= at <= reached:
            self._go_live()
            playback.seek(at)
            return ""
        self.travel.to(live, at)
        self._show_instant()
        return "" if at >= oldest else "the oldest picture there is"

    def speed_command(self, argument: str) -> Done:
        """`:speed 10`, `:speed pause`, `:speed play`."""
        playback = self.playback
        if playback is None:
            raise CommandError("only a recording has a pace")
        if argument in ("pause", "play"):
            return partial(self._paced, partial(playback.set_paused, argument == "pause"))
        return partial(self._paced, partial(playback.set_speed, parse_pace(argument)))

    def _paced(self, change: Callable[[], None]) -> str:
        change()
        self.paint()
        return ""
