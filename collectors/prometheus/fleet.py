"""The scrapes of a Prometheus as scrapes of ours: the pages that it took since the last look, in order.

What is read is raw: range selectors over the families that the mapping tables know, one query (or a few,
where the names are many) for the whole fleet. `up` tells which scrapes there were and which of them failed,
so a dead replica is dead at once and never shows what it said before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence, Set

from collectors.answer import Answer
from collectors.discovery.roster import Changes, Roster
from collectors.prometheus.client import PrometheusClient
from collectors.prometheus.direct import DirectSides
from collectors.prometheus.feeds import EngineFeeds
from collectors.prometheus.gpus import PrometheusGpus
from collectors.prometheus.members import Members, Scraped
from collectors.prometheus.names import START_TIME, batches, one_of, range_over, selectors, wanted_names
from collectors.prometheus.pages import PageAssembler, body_of
from collectors.prometheus.ups import METRICS_PATH, News, Ups
from collectors.scrape import Feed, Scrape
from enginetop.fleet.frozen import frozen
from enginetop.fleet.gpu_device import GpuReport
from enginetop.fleet.model import Target

_HEADERS = {"content-type": "text/plain; version=0.0.4"}
_PROBE_SECONDS = 60.0
_SOON_SECONDS = 5.0
"""How long the names and jobs that a server has are taken for known, and while new ones still turn up."""
_NAMES_SECONDS = 3600.0
"""What a server has is what had samples in this time: an engine that is down is remembered for so long."""
_UP_SECONDS = 150.0
"""How far a look goes back for scrapes that came late."""
_FORGOTTEN_SECONDS = 600.0
"""A scraped thing without samples for so long belongs to nobody any more."""
_LATE_SECONDS = 30.0
"""How long a scrape may be without its series: where samples arrive one by one (remote write)."""
_MOST_ASKED = 500_000
"""Names on pages that are asked for at once; a longer stretch of time is asked in parts."""
_NARROWEST_SECONDS = 1.0
_NAMES_A_QUERY, _MOST_QUERIES = 8_000, 6
"""A look at a large fleet is asked in several queries, by names on pages: while we read the answer of one,
the server works on the next ones."""


@frozen(eq=False)
class Look:
    """What one look brought: who came and went, and the scrapes since the look before, in time order.

    `warning` is what the server said of missing data. `gpus` are what exporters told meanwhile.
    """

    at: float
    changes: Changes
    scrapes: Sequence[Scrape]
    warning: str = ""
    gpus: Sequence[GpuReport] = ()

    def in_order(self) -> Sequence[tuple[float, Scrape | GpuReport]]:
        """Everything that was scraped, by its time."""
        news: list[tuple[float, Scrape | GpuReport]] = [
            *((scrape.observation.at, scrape) for scrape in self.scrapes),
            *((report.at, report) for report in self.gpus),
        ]
        return sorted(news, key=lambda one: one[0])


class PrometheusFleet:
    """A fleet as one server scrapes it. `look` raises PrometheusError when there is no usable answer."""

    def __init__(
        self,
        client: PrometheusClient,
        new_feed: Callable[[Target], Feed],
        direct: DirectSides | None = None,
    ) -> None:
        """`direct` asks the engines for what a Prometheus cannot tell."""
        self._client = client
        self._gpus = PrometheusGpus(client)
        self._members = Members()
        self._ups = Ups(client, self._members)
        self._feeds = EngineFeeds(new_feed, direct)
        self._assembler = PageAssembler(self._members)
        self._roster = Roster()
        self._names: Sequence[str] = ()
        self._jobs: Sequence[str] = ()
        self._known_between = (math.inf, -math.inf)

    @property
    def targets(self) -> tuple[Target, ...]:
        """The engines that are listed now."""
        return self._roster.targets

    def look(self, at: float, since: float | None = None) -> Look:
        """Everything up to Unix time `at` of the server's clock that was not taken yet.

        `since` is where the first look begins; later ones go on from where they were.
        """
        warnings: list[str] = []
        first, last = self._known_between
        if not first <= at <= last:
            before = (self._names, self._jobs)
            self._probe(min(at - _NAMES_SECONDS, at if since is None else since), at)
            settled = before == (self._names, self._jobs) and self._jobs
            self._known_between = (at, at + (_PROBE_SECONDS if settled else _SOON_SECONDS))
        if not self._jobs:
            return Look(at, self._roster.take("prometheus", (), at), ())
        begin = since if since is not None else at - _UP_SECONDS
        news = self._ups.between(begin, at, self._jobs)
        warnings.append(self._client.warning)
        pages: dict[tuple[Scraped, float], list[str]] = {}
        for start, end in self._parts(news, at):
            for scraped_at, lines in self._pages(news.pages, start, end, warnings).items():
                pages.setdefault(scraped_at, []).extend(lines)
        taken = self._taken(news, pages, at)
        changes = self._changes(at)
        scrapes = self._feeds.scrapes([one for one in taken if one[1].is_row])
        if not len(self._members):
            warnings.append("there are series of engines, but no `up` that tells when they were scraped")
        gpus = self._gpus.look(begin, at)
        warnings.append(self._client.warning)
        return Look(at, changes, scrapes, next(filter(None, warnings), ""), gpus)

    def learn(self, first: float, last: float) -> bool:
        """Learn what there is between two times, for all looks in between; whether there is an engine."""
        self._probe(first, last)
        self._known_between = (first, last)
        return bool(self._jobs)

    def _probe(self, start: float, at: float) -> None:
        """Learn in which spelling which names are there, and whose they are."""
        known = self._client.label_values("__name__", start, at)
        self._names = wanted_names(known)
        self._gpus.learn(known, start, at)
        jobs: set[str] = set()
        if self._names:
            telling = [name for name in self._names if not name.endswith(("_bucket", "_sum", "_created"))]
            for batch in batches(telling or self._names):
                match = f'{{__name__=~"{one_of(batch)}",server=""}}'
                jobs.update(self._client.label_values("job", start, at, match))
                self._members.engines.update(self._client.label_values("instance", start, at, match))
        self._jobs = sorted(jobs)
        if jobs and any(name.endswith("_created") for name in self._names):
            started = self._client.label_values("job", start, at, f'{{__name__="{START_TIME}"}}')
            self._names = wanted_names(known, births=not jobs <= {*started})

    def _parts(self, news: News, at: float) -> Iterator[tuple[float, float]]:
        """The stretches of time in which pages are asked for, oldest first."""
        times = sorted({time for wanted in news.pages.values() for time in wanted})
        if not times:
            return
        pages = sum(map(len, news.pages.values()))
        parts = max(1, math.ceil(pages * len(self._names) / _MOST_ASKED))
        width = max((times[-1] - times[0]) / parts, _NARROWEST_SECONDS)
        start = times[0]
        while start <= times[-1]:
            end = min(start + width, at) if start + width < times[-1] else times[-1]
            yield start, end
            start = math.nextafter(end, math.inf)

    def _pages(
        self, wanted: Mapping[Scraped, Set[float]], start: float, end: float, warnings: list[str]
    ) -> Mapping[tuple[Scraped, float], list[str]]:
        inside = {
            scraped: {time for time in times if start <= time <= end} for scraped, times in wanted.items()
        }
        pages: dict[tuple[Scraped, float], list[str]] = {}
        asked = sum(map(len, inside.values())) * len(self._names)
        parts = min(_MOST_QUERIES, math.ceil(asked / _NAMES_A_QUERY))
        queries = (
            selector + range_over(start, end) for selector in selectors(self._names, self._jobs, parts)
        )
        for matrix, warning in self._client.matrices(queries, end):
            warnings.append(warning)
            for place, lines in self._assembler.pages(matrix, inside).items():
                pages.setdefault(place, []).extend(lines)
        return pages

    def _taken(
        self, news: News, pages: Mapping[tuple[Scraped, float], list[str]], at: float
    ) -> list[tuple[float, Scraped, Answer]]:
        """The answers in time order. A page whose series have not arrived yet waits for the next look."""
        answers: list[tuple[float, Scraped, Answer]] = []
        for scraped, times in news.pages.items():
            for time in sorted(times):
                lines = pages.get((scraped, time))
                if lines is None and not scraped.has_series:
                    scraped.newest = max(scraped.newest, time)
                    continue
                if lines is None and at - time < _LATE_SECONDS:
                    break
                scraped.newest = max(scraped.newest, time)
                scraped.has_series = True
                seconds = news.seconds.get((scraped, time), 0.0)
                body = body_of(lines or [])
                answers.append((time, scraped, Answer(METRICS_PATH, time, seconds, 200, _HEADERS, body)))
        for time, scraped in news.failures:
            scraped.newest = max(scraped.newest, time)
            answers.append((time, scraped, self._ups.failure(scraped, time)))
        answers.sort(key=lambda answer: answer[0])
        return answers

    def _changes(self, at: float) -> Changes:
        """Who came and went since the last look."""
        self._members.forget(at - _FORGOTTEN_SECONDS)
        changes = self._roster.take("prometheus", self._members.listed(at), at)
        expired = self._roster.expire(at)
        self._feeds.drop((*changes.dropped, *expired.dropped))
        self._feeds.move(changes.moved)
        return Changes((*expired.dropped, *changes.dropped), changes.moved, changes.left, changes.joined)
