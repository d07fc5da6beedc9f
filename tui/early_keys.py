"""What is typed for an entry before it is there: a slow link brings the keys of a whole line at once."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import App
from textual.events import Event, Key, Paste

_NEVER_HELD = "ctrl+c"


class EarlyKeys(App[None]):
    """Holds keys back while the screen on top waits for its entry; that gets them, in their order.

    An action that opens an entry must be done at once (`Action.at_once`): else the next key is on its way to
    the screen before the entry is asked for.
    """

    _early: Sequence[Event] = ()

    @property
    def entry_to_come(self) -> bool:
        """Whether an entry is opened that has not got the keys yet."""
        return False

    async def on_event(self, event: Event) -> None:
        """Take an event, or hold it back."""
        if isinstance(event, Key | Paste) and not event.is_forwarded:
            if self.entry_to_come and not (isinstance(event, Key) and event.key == _NEVER_HELD):
                self._early = [*self._early, event]
                return
            await self.hand_over_early_keys()
        await super().on_event(event)

    async def hand_over_early_keys(self) -> None:
        """Take what was held back."""
        early, self._early = self._early, ()
        for event in early:
            await super().on_event(event)
