"""The way from the screens to the controller: every call that may take long has a thread of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from enginetop.fleet.errors import EnginetopError
from enginetop.fleet.ports import ChangeControl
from tui.widgets.line_view import Complain

Answer = TypeVar("Answer")
Begin = Callable[[Awaitable[None]], object]


class ControlDesk:
    """Asks the controller without holding up the screen.

    `approver` is the user's name. `begin` starts a coroutine on the event loop. The outcome comes back there:
    `then` with the answer, or `failed` with one line; a fault that is not ours is also told to `complain`.
    """

    def __init__(self, control: ChangeControl, approver: str, begin: Begin, complain: Complain) -> None:
        self.control = control
        self._approver = approver
        self._begin = begin
        self._complain = complain

    def approval(self, word: str) -> str:
        """What the audit says of an approval by typing `word`."""
        return f'{self._approver} (typed "{word}")'.lstrip()

    def ask(
        self, call: Callable[[], Answer], then: Callable[[Answer], None], failed: Callable[[str], None]
    ) -> None:
        """Make `call` in a thread."""
        self._begin(self._ask(call, then, failed))

    async def _ask(
        self, call: Callable[[], Answer], then: Callable[[Answer], None], failed: Callable[[str], None]
    ) -> None:
        try:
            answer = await asyncio.to_thread(call)
        except EnginetopError as error:
            failed(str(error))
        except Exception as error:  # noqa: BLE001 - shown where it was asked
            self._complain("control", error)
            failed(f"{type(error).__name__}: {error}")
        else:
            then(answer)
