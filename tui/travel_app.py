"""The app in time: pause, the past, bookmarks, and the pace of a recording."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from enginetop.fleet.snapshot import Alert
from tui.commands import CommandError, parse_time
from tui.pace import local_instant, next_pace, parse_pace
from tui.screens.alerts import AlertsScreen
from tui.screens.compare import CompareScreen
from tui.screens.detail import DetailScreen
from tui.screens.fleet import FleetScreen
from tui.shell import Done, ShellApp, Understand
from tui.time_travel import FAR_SECONDS


class TravelApp(ShellApp):
    """An app that shows the newest snapshot, or one of the past, or plays a recording."""

    def argued(self) -> dict[str, Understand]:
        """With the commands about time."""
        return {**super().argued(), "time": self._time_command, "speed": self._speed_command}

    def action_pause(self) -> None:
        """Freeze the picture, or let it run again: the source goes on. A recording stands still instead."""
        moment, playback = self.moment, self.moment.playback
        if playback is not None and moment.travel.shown is None:
            playback.set_paused(not playback.playback().paused)
            self.paint()
        elif moment.frozen_at is None:
            moment.freeze()
            self.paint()
        else:
            self._go_live()

    def _go_live(self) -> None:
        self.moment.go_live()
        self.take_and_paint()

    def _show_instant(self) -> None:
        """Show what the journey through time has come to."""
        if self.moment.travel.shown is None:
            self._go_live()
        else:
            self.moment.freeze()
            self.paint()

    def action_travel(self, steps: int) -> None:
        """Some pictures back or on; at the end of what was played of a recording an interval of it."""
        moment, playback, here = self.moment, self.moment.playback, self.moment.snapshot
        if playback is not None and steps > 0 and moment.travel.shown is None:
            if here is not None:
                playback.seek(here.at + here.interval_seconds)
            moment.source.request_refresh()  # a step at least, where they are further apart
            return
        moment.travel.step(moment.live, steps)
        self._show_instant()

    def action_travel_far(self, steps: int) -> None:
        """Some minutes back or on."""
        moment, playback = self.moment, self.moment.playback
        if playback is not None and steps > 0 and moment.travel.shown is None:
            playback.seek(playback.playback().at + steps * FAR_SECONDS)
            return
        moment.travel.far(moment.live, steps)
        self._show_instant()

    def action_alert_event(self, step: int) -> None:
        """Where the alert before or after began to fire."""
        alert = self.moment.travel.alert_event(self.moment.live, step)
        if alert is None:
            self.top.say(f"no alert began {'before' if step < 0 else 'after'} this in the last 15 minutes")
            return
        self._show_begin(alert)

    def on_alerts_screen_began_wanted(self, message: AlertsScreen.BeganWanted) -> None:
        """Show the fleet as it was when an alert began, with the cursor on what it is about."""
        travel = self.moment.travel
        travel.to(self.moment.live, travel.timeline.begin_of(message.alert))
        self.action_fleet()
        self._show_begin(message.alert)

    def _show_begin(self, alert: Alert) -> None:
        self._show_instant()
        top = self.top
        if isinstance(top, FleetScreen):
            top.rows.go_to(alert.target)
        top.say(f"{alert.rule} of {self.moment.picture().name_of(alert.target)} begins")

    def action_bookmark(self) -> None:
        """Mark the instant that is shown."""
        letter = self.moment.travel.bookmark(self.moment.snapshot)
        self.top.say(f"bookmark {letter}" if letter else "nothing to mark yet")

    def action_compare(self) -> None:
        """Compare the bookmarks: of the replica that is shown, or of the fleet."""
        top = self.top
        url = top.url if isinstance(top, DetailScreen) else None
        pair = self.moment.travel.pair(self.moment.snapshot)
        top.open_screen(CompareScreen(self.inks, self.note_failure, pair, url))

    def action_faster(self) -> None:
        """Play the recording at the next higher pace."""
        self._change_pace(1)

    def action_slower(self) -> None:
        """Play the recording at the next lower pace."""
        self._change_pace(-1)

    def _change_pace(self, step: int) -> None:
        playback = self.moment.playback
        if playback is None:
            self.top.say("only a recording has a pace")
            return
        playback.set_speed(next_pace(playback.playback().speed, step))
        self.paint()

    def _time_command(self, argument: str) -> Done:
        """`:time -5m`, `:time 14:32`, `:time live`."""
        shown = self.moment.shown
        if shown is None:
            raise CommandError("nothing is known yet")
        return partial(self._go_to, parse_time(argument, shown.at, local_instant))

    def _go_to(self, at: float | None) -> str:
        playback, live, travel = self.moment.playback, self.moment.live, self.moment.travel
        reached = None if live is None else live.at
        if at is None or reached is None:
            self._go_live()
            return ""
        oldest = next(iter(travel.timeline.times), reached)
        if playback is not None and not oldest <= at <= reached:
            self._go_live()
            playback.seek(at)
            return ""
        travel.to(live, at)
        self._show_instant()
        return "" if at >= oldest else "the oldest picture there is"

    def _speed_command(self, argument: str) -> Done:
        """`:speed 10`, `:speed pause`, `:speed play`."""
        playback = self.moment.playback
        if playback is None:
            raise CommandError("only a recording has a pace")
        if argument in ("pause", "play"):
            return partial(self._paced, partial(playback.set_paused, argument == "pause"))
        return partial(self._paced, partial(playback.set_speed, parse_pace(argument)))

    def _paced(self, change: Callable[[], None]) -> str:
        change()
        self.paint()
        return ""
