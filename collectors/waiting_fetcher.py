"""A fetcher for a thread that may wait: many requests at once, asked from code that is not asynchronous."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from collectors.event_loop import EngineEventLoop
from collectors.fetch import Fetcher

T = TypeVar("T")


class WaitingFetcher:
    """A fetcher with an event loop of its own, both made at the first use. Belongs to one thread."""

    def __init__(self, new_fetcher: Callable[[], Fetcher]) -> None:
        self._new_fetcher = new_fetcher
        self._runner: asyncio.Runner | None = None
        self._fetcher: Fetcher | None = None

    def run(self, ask: Callable[[Fetcher], Coroutine[Any, Any, T]]) -> T:
        """Wait for what `ask` does with the fetcher; its result, or what it raises."""
        if self._runner is None:
            self._runner = asyncio.Runner(loop_factory=EngineEventLoop)
        return self._runner.run(self._asked(ask))

    def close(self) -> None:
        """Close every connection; a later `run` begins anew."""
        if self._runner is not None:
            if self._fetcher is not None:
                self._runner.run(self._fetcher.aclose())
                self._fetcher = None
            self._runner.close()
            self._runner = None

    async def _asked(self, ask: Callable[[Fetcher], Coroutine[Any, Any, T]]) -> T:
        # made inside the loop that it belongs to
        self._fetcher = self._fetcher or self._new_fetcher()
        return await ask(self._fetcher)
