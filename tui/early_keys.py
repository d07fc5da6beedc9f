"""What is typed for an entry before it is there: a slow link brings the keys of whole lines at once."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import App
from textual.events import Event, Key, Paste
from textual.message import Message
from textual.timer import Timer
from textual.widgets import Input

_NEVER_HELD = "ctrl+c"

_PATIENCE_SECONDS = 2.0
"""What has not answered by then, such as a disk that hangs, does not keep the keyboard."""


class EarlyKeys(App[None]):
    """Holds keys back while the screen on top waits for its entry; that gets them, in their order.

    What follows an enter waits until what was entered is done, and what follows an escape until the entry is
    left: it is meant for what is there then.
    An action that opens an entry must be done at once (`Action.at_once`): else the next key is on its way to
    the screen before the entry is asked for.
    """

    _early: Sequence[Event] = ()
    _entered: Input | None = None
    _at_work = 0
    _patience: Timer | None = None

    class Passed(Message):
        """An entry, and all that it is in, have dealt with the keys before this."""

    class Done(Message):
        """What was entered, or chosen, is done."""

    @property
    def entry_to_come(self) -> bool:
        """Whether an entry is opened that has not got the keys yet."""
        return False

    @property
    def _holds(self) -> bool:
        entered = self._entered is not None and self._entered.is_attached  # else it will never answer
        return self.entry_to_come or entered or self._at_work > 0

    async def on_event(self, event: Event) -> None:
        """Take an event, or hold it back."""
        held = isinstance(event, Key | Paste) and not event.is_forwarded
        if held and not (isinstance(event, Key) and event.key == _NEVER_HELD):
            self._early = [*self._early, event]
            await self.hand_over_early_keys()
        else:
            await super().on_event(event)

    async def hand_over_early_keys(self) -> None:
        """Take what was held back, as far as nothing is waited for."""
        while self._early and not self._holds:
            event, *self._early = self._early
            entry = self.focused
            await super().on_event(event)
            if isinstance(entry, Input) and isinstance(event, Key) and event.key in ("enter", "escape"):
                self._entered = entry
                if event.key == "escape":
                    entry.post_message(self.Passed())  # it comes back behind whatever the escape brings about
        if self._early and self._patience is None:
            self._patience = self.set_timer(_PATIENCE_SECONDS, self._wait_no_longer)
        elif not self._early and self._patience is not None:
            self._patience.stop()
            self._patience = None

    async def _wait_no_longer(self) -> None:
        self._patience, self._entered, self._at_work = None, None, 0
        await self.hand_over_early_keys()

    async def on_input_submitted(self) -> None:
        """The screen has done with a line what it does."""
        await self.answered()

    async def on_early_keys_passed(self) -> None:
        """It was left, or it stays."""
        await self.answered()

    async def answered(self) -> None:
        """An entry has dealt with its enter or escape."""
        self._entered = None
        await self.hand_over_early_keys()

    def begin_work(self) -> None:
        """Hold keys back until as many times `Done` has come."""
        self._at_work += 1

    async def on_early_keys_done(self) -> None:
        """It is done."""
        self._at_work = max(self._at_work - 1, 0)
        await self.hand_over_early_keys()
