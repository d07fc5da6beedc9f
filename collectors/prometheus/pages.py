"""Raw samples of a Prometheus put together again: the pages that it scraped, as engines wrote them. Pure.

All samples of one scrape carry the time of that scrape, and so does its `up`. So the pages, and with them
every count, reset and missing series, come back exactly; what reads pages needs to know nothing of this.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Set
from typing import Any

from collectors.prometheus.members import Members, Scraped

_MOST_KNOWN = 2_000_000
_EXPORTED = "exported_"
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

Instant = tuple[Scraped, float]


class PageAssembler:
    """Puts pages together. Remembers of each series whose it is and how its line begins."""

    def __init__(self, members: Members) -> None:
        self._members = members
        self._version = members.version
        self._lines: dict[tuple[tuple[str, str], ...], tuple[Scraped, str] | None] = {}

    def pages(
        self, matrix: Iterable[Mapping[str, Any]], wanted: Mapping[Scraped, Set[float]]
    ) -> dict[Instant, list[str]]:
        """The lines of the pages at the wanted times, as far as these series tell."""
        pages: defaultdict[Instant, list[str]] = defaultdict(list)
        known = self._lines
        if len(known) > _MOST_KNOWN or self._version != self._members.version:
            known.clear()
            self._version = self._members.version
        for series in matrix:
            metric = series["metric"]
            key = tuple(metric.items())
            try:
                found = known[key]
            except KeyError:
                found = known[key] = self._line(metric)
            if found is None:
                continue
            scraped, beginning = found
            times = wanted.get(scraped)
            if not times:
                continue
            for at, value in series["values"]:
                if at in times:
                    pages[(scraped, at)].append(beginning + value)
        return pages

    def _line(self, metric: Mapping[str, str]) -> tuple[Scraped, str] | None:
        """Whose series it is, and its line up to the value: without the labels that the scraper added."""
        scraped = self._members.of_series(metric)
        if scraped is None:
            return None
        added = scraped.labels
        labels: dict[str, str] = {}
        for name, value in metric.items():
            if name == "__name__" or name in added:
                continue
            own = name.removeprefix(_EXPORTED)  # the page's own label, where the scraper had one of that name
            labels[own if own in added else name] = value
        inner = ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels.items())
        return scraped, f"{metric['__name__']}{{{inner}}} "


def body_of(lines: list[str]) -> bytes:
    """A page of these lines, in an order that does not depend on the server's."""
    return ("\n".join(sorted(lines)) + "\n").encode("utf-8", "surrogatepass")
