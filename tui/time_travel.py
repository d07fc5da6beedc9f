"""Which instant is shown: the newest, a frozen one, or one of the past; and two bookmarks."""

from __future__ import annotations

from enginetop.fleet.snapshot import Alert, FleetSnapshot
from tui.timeline import Timeline

FAR_SECONDS = 60.0
"""One coarse step."""


class TimeTravel:
    """Moves through a timeline. `shown` is the picture of the past that is looked at; None: what is live."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self.shown: FleetSnapshot | None = None
        self.bookmarks: tuple[FleetSnapshot, ...] = ()
        """A, or A and B, oldest first."""

    def step(self, live: FleetSnapshot | None, steps: int) -> None:
        """Some pictures back (-) or on (+) from what is shown; past the newest one it is live again."""
        here = self.shown or live
        if here is None or (steps > 0 and self.shown is None):
            return
        self._show(self.timeline.beside(here.at, steps), live)

    def far(self, live: FleetSnapshot | None, steps: int) -> None:
        """Some minutes back or on; always by a picture at least."""
        here = self.shown or live
        if here is None or (steps > 0 and self.shown is None):
            return
        found = self.timeline.nearest(here.at + steps * FAR_SECONDS)
        if found is None or (found.at >= here.at if steps < 0 else found.at <= here.at):
            found = self.timeline.beside(here.at, 1 if steps > 0 else -1)
        beyond = live is not None and steps > 0 and here.at + steps * FAR_SECONDS >= live.at
        self._show(None if beyond else found, live)

    def to(self, live: FleetSnapshot | None, at: float) -> None:
        """The picture of an instant; live if it is now or in the future."""
        if live is not None and at >= live.at:
            self.shown = None
        else:
            self._show(self.timeline.at(at), live)

    def alert_event(self, live: FleetSnapshot | None, step: int) -> Alert | None:
        """Where the alert before (-1) or after (1) began to fire; None: there is none, and nothing moves."""
        here = self.shown or live
        begin = None if here is None else self.timeline.begin_beside(here.at, step)
        if begin is None:
            return None
        self._show(self.timeline.at(begin.at), live, keep=True)
        return begin.alert

    def bookmark(self, live: FleetSnapshot | None) -> str:
        """Mark what is shown: `A` first, then `B`, then `A` anew; the letter, empty when nothing is shown."""
        here = self.shown or live
        if here is None:
            return ""
        self.bookmarks = (*self.bookmarks, here) if len(self.bookmarks) == 1 else (here,)
        return "AB"[len(self.bookmarks) - 1]

    def pair(self, live: FleetSnapshot | None) -> tuple[FleetSnapshot, FleetSnapshot] | None:
        """The two instants to be compared: the bookmarks, or the only one and what is shown."""
        here = self.shown or live
        if len(self.bookmarks) == 2:
            first, second = self.bookmarks
            return first, second
        if len(self.bookmarks) == 1 and here is not None:
            return self.bookmarks[0], here
        return None

    def _show(self, found: FleetSnapshot | None, live: FleetSnapshot | None, *, keep: bool = False) -> None:
        """Look at `found`; a picture as new as the live one is live, unless it is to be kept in sight."""
        newest = found is not None and live is not None and found.at >= live.at
        self.shown = None if newest and not keep else found
