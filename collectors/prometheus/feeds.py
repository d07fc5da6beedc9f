"""The feeds of the engines that a Prometheus scrapes: answers of its scrapes as scrapes of ours."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from collectors.answer import Answer
from collectors.fetch import one_line
from collectors.prometheus.direct import DirectSides
from collectors.prometheus.members import Scraped
from collectors.scrape import Feed, Scrape
from enginetop.fleet.model import Target
from enginetop.fleet.observation import Failure, FailureKind, Observation


class EngineFeeds:
    """A feed for each engine. `direct` asks the engines themselves for what a Prometheus cannot tell."""

    def __init__(self, new_feed: Callable[[Target], Feed], direct: DirectSides | None) -> None:
        self._new_feed = new_feed
        self._direct = direct
        self._feeds: dict[str, Feed] = {}

    def drop(self, urls: Iterable[str]) -> None:
        """Forget engines that are gone."""
        for url in urls:
            self._feeds.pop(url, None)

    def move(self, moved: Sequence[tuple[str, Target]]) -> None:
        """Engines go on under other URLs: the former URL, and the target now."""
        targets = dict(moved)
        former = {url: self._feeds.pop(url) for url in targets if url in self._feeds}
        self._feeds |= {targets[url].url: feed for url, feed in former.items()}

    def scrapes(self, rows: Sequence[tuple[float, Scraped, Answer]]) -> Sequence[Scrape]:
        """The scrapes of these answers, in their order. With the newest of each engine come the pages that it
        was asked for itself.
        """
        if self._direct is None:
            return [self._scrape(*one) for one in rows]
        newest = {one.target.url: place for place, (_, one, _) in enumerate(rows)}
        last = set(newest.values())
        scrapes = {place: self._scrape(*one) for place, one in enumerate(rows) if place not in last}
        good = {url: place for url, place in newest.items() if rows[place][2].error is None}
        sides = self._direct.asked(
            [(url, self._feed(rows[place][1]), rows[place][2]) for url, place in good.items()]
        )
        for url, place in newest.items():
            scrapes[place] = self._scrape(*rows[place], sides.get(url, ()))
        return [scrapes[place] for place in sorted(scrapes)]

    def _feed(self, scraped: Scraped) -> Feed:
        url = scraped.target.url
        feed = self._feeds.get(url)
        if feed is None:
            feed = self._feeds[url] = self._new_feed(scraped.target)
        return feed

    def _scrape(self, at: float, scraped: Scraped, answer: Answer, sides: tuple[Answer, ...] = ()) -> Scrape:
        url = scraped.target.url
        feed = self._feed(scraped)
        answers = (answer, *sides)
        try:
            return Scrape(url, answers, feed.take(answers, at, answer.seconds))
        except Exception as error:  # noqa: BLE001 - as in the live engine: one target's trouble is its state
            failure = Failure(FailureKind.COLLECTOR, at, one_line(f"{type(error).__name__}: {error}"))
            return Scrape(url, (), Observation(at, 0.0, failure=failure))
