"""What a Prometheus cannot tell, asked of the engines themselves: their side pages (release, start flags).

Off unless somebody asks for it: a Prometheus is there because the engines are many or far away. What cannot
be reached is left alone for a while; it never holds up a look for longer than `seconds`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from collectors.answer import Answer
from collectors.engines.detect import SIDE_FIELDS
from collectors.fetch import Fetcher
from collectors.no_engine_there import why_not_listed
from collectors.scrape import Feed
from collectors.waiting_fetcher import WaitingFetcher
from enginetop.fleet.observation import CONNECTION_FAILURES

_AT_ONCE = 32
_MOST_PAGES = 16
_ALONE_SECONDS = 120.0
"""How long an engine is left alone that could not be reached."""


class DirectSides:
    """Asks engines for the side pages that their feeds want. Belongs to one thread.

    `new_fetcher` is called in that thread; `page_seconds` bounds one page and `seconds` all of a look.
    """

    def __init__(
        self,
        new_fetcher: Callable[[], Fetcher],
        *,
        page_seconds: float = 2.0,
        seconds: float = 5.0,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fetcher = WaitingFetcher(new_fetcher)
        self._page_seconds = page_seconds
        self._seconds = seconds
        self._monotonic = monotonic
        self._alone_until: dict[str, float] = {}

    def asked(self, pages: Sequence[tuple[str, Feed, Answer]]) -> Mapping[str, tuple[Answer, ...]]:
        """The side pages by target URL, given each target's feed and the page that was scraped of it."""
        now = self._monotonic()
        wanted = [page for page in pages if self._alone_until.get(page[0], now) <= now]
        wanted = [page for page in wanted if not why_not_listed(page[0])]
        wanted = [page for page in wanted if _next_side(page[1], (page[2],)) is not None]
        if not wanted:
            return {}
        return self._fetcher.run(lambda fetcher: self._ask(fetcher, wanted))

    def close(self) -> None:
        """Close every connection."""
        self._fetcher.close()

    async def _ask(
        self, fetcher: Fetcher, wanted: Sequence[tuple[str, Feed, Answer]]
    ) -> Mapping[str, tuple[Answer, ...]]:
        turns = asyncio.Semaphore(_AT_ONCE)
        found: dict[str, tuple[Answer, ...]] = {}

        async def ask(url: str, feed: Feed, page: Answer) -> None:
            async with turns:
                answers = [page]
                while len(answers) <= _MOST_PAGES and (path := _next_side(feed, answers)) is not None:
                    answer = await fetcher.fetch(url, path, timeout_seconds=self._page_seconds)
                    if answer.error in CONNECTION_FAILURES:
                        self._alone_until[url] = self._monotonic() + _ALONE_SECONDS
                        break
                    answers.append(replace(answer, at=page.at))
                    found[url] = tuple(answers[1:])

        try:
            async with asyncio.timeout(self._seconds):
                await asyncio.gather(*(ask(*one) for one in wanted), return_exceptions=True)
        except TimeoutError:
            pass  # what has come by now counts; the rest is asked for at the next look
        return found


def _next_side(feed: Feed, answers: Sequence[Answer]) -> str | None:
    """The side page that is to be asked next; None: none, or the feed wants another page of figures."""
    path = feed.next_path(answers)
    return path if path is not None and path.partition("?")[0] in SIDE_FIELDS else None
