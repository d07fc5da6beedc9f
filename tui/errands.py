"""Calls that may take long, made in threads, with their outcome back on the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from enginetop.fleet.errors import EnginetopError
from tui.widgets.line_view import Complain

Answer = TypeVar("Answer")
Begin = Callable[[Awaitable[None]], object]


class Errands:
    """Asks without holding up the screen.

    `begin` starts a coroutine on the event loop. The outcome comes back there: `then` with the answer, or
    `failed` with one line; a fault that is not ours is also told to `complain`, as one of `what`.
    """

    def __init__(self, what: str, begin: Begin, complain: Complain) -> None:
        self._what = what
        self._begin = begin
        self._complain = complain

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
            self._complain(self._what, error)
            failed(f"{type(error).__name__}: {error}")
        else:
            then(answer)
