"""Timers that go off once, and surely."""

from __future__ import annotations

from textual.message_pump import MessagePump
from textual.timer import Timer, TimerCallback


class SureTimers(MessagePump):
    """An app or a screen whose one call after a delay is made however late it is.

    Textual leaves out the turns of a timer that are over when it comes to count them, so that one that goes
    off again and again does not catch up. It does so as well where there is one turn only: where a thread
    that works or a busy machine keeps it from the interpreter for as long as the delay, right after it has
    taken the time, the call is never made. A screen whose next picture waited for it then stood still.
    """

    def set_timer(
        self,
        delay: float,
        callback: TimerCallback | None = None,
        *,
        name: str | None = None,
        pause: bool = False,
    ) -> Timer:
        """Call `callback` after `delay` seconds."""
        timer = super().set_timer(delay, callback, name=name, pause=pause)
        timer._skip = False  # in time: its task has had no turn yet
        return timer
