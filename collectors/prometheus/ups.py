"""Which scrapes a Prometheus made and which of them failed, as `up` tells."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite

from collectors.answer import Answer
from collectors.fetch import one_line
from collectors.prometheus.client import PrometheusClient
from collectors.prometheus.members import Members, Scraped
from collectors.prometheus.names import one_of, range_over
from enginetop.fleet.foreign_json import field_at
from enginetop.fleet.observation import FailureKind

METRICS_PATH = "/metrics"
"""Where the answers of a Prometheus's scrapes are said to come from."""

_SCRAPE_ERRORS: tuple[tuple[tuple[str, ...], FailureKind], ...] = (
    (("x509", "tls", "certificate"), FailureKind.TLS),
    (("no such host", "lookup "), FailureKind.DNS),
    (("deadline exceeded", "timeout", "timed out"), FailureKind.TIMEOUT),
    (("body size limit",), FailureKind.TOO_LARGE),
    (("unexpected eof",), FailureKind.TRUNCATED),
    (("expected", "invalid", "parse", "sample limit", "content-type"), FailureKind.PROTOCOL),
)
"""Words of Prometheus's scraper, and of Go's net below it, and what they mean."""


@dataclass(slots=True)
class News:
    """The scrapes of a stretch of time that were not taken yet."""

    pages: defaultdict[Scraped, set[float]] = field(default_factory=lambda: defaultdict(set))
    failures: list[tuple[float, Scraped]] = field(default_factory=list)
    seconds: dict[tuple[Scraped, float], float] = field(default_factory=dict)


class Ups:
    """The scrapes of `members`, and why they failed; PrometheusError as the client."""

    def __init__(self, client: PrometheusClient, members: Members) -> None:
        self._client = client
        self._members = members
        self._why: Mapping[str, str] = {}

    def between(self, begin: float, at: float, jobs: Sequence[str]) -> News:
        """The scrapes by `jobs` up to Unix time `at`, good and failed ones, that were not taken yet."""
        news = News()
        selector = f'{{__name__=~"up|scrape_duration_seconds",job=~"{one_of(jobs)}"}}'
        durations: list[tuple[Scraped, Sequence[tuple[float, str]]]] = []
        for series in self._client.matrix(selector + range_over(begin, at), at):
            labels = dict(series["metric"])
            name = labels.pop("__name__", "")
            scraped = self._members.of_up(labels)
            if name != "up":
                durations.append((scraped, series["values"]))
                continue
            for sampled_at, value in series["values"]:
                scraped.seen_at = max(scraped.seen_at, sampled_at)
                if sampled_at <= scraped.newest or sampled_at < begin:
                    continue
                if value == "1":
                    news.pages[scraped].add(sampled_at)
                else:
                    news.failures.append((sampled_at, scraped))
            scraped.failing = bool(series["values"]) and series["values"][-1][1] != "1"
        for scraped, values in durations:
            for sampled_at, value in values:
                if isfinite(seconds := float(value)):
                    news.seconds[(scraped, sampled_at)] = seconds
        for series in self._client.matrix(f'up{{job=~"{one_of(jobs)}"}}', at):
            labels = {name: value for name, value in series["metric"].items() if name != "__name__"}
            self._members.confirm(labels, at)
        if news.failures:
            self._why = self._reasons()
        return news

    def failure(self, scraped: Scraped, at: float) -> Answer:
        """A scrape of the server's that failed, as if it had been ours."""
        why = self._why.get(scraped.labels.get("instance", ""), "")
        kind, status = _failure_of(why)
        cause = why.rpartition(": ")[2]
        detail = f"its scraper says: {cause}" if cause else "its scraper cannot read it"
        if status is not None:
            return Answer(METRICS_PATH, at, status=status)
        return Answer(METRICS_PATH, at, error=kind, detail=detail)

    def _reasons(self) -> Mapping[str, str]:
        """Why the newest scrape of each instance failed, where the server tells."""
        found: dict[str, str] = {}
        for entry in self._client.active_targets():
            instance, error = field_at(entry, "labels", "instance"), field_at(entry, "lastError")
            if isinstance(instance, str) and isinstance(error, str) and error:
                found[instance] = one_line(error)
        return found


def _failure_of(why: str) -> tuple[FailureKind, int | None]:
    """What an error of Prometheus's scraper means: a failure of the connection, or an HTTP status."""
    text = why.lower()
    _, named, status = text.partition("http status ")
    if named and status[:3].isdigit():
        return FailureKind.SERVER_ERROR, int(status[:3])
    for words, kind in _SCRAPE_ERRORS:
        if any(word in text for word in words):
            return kind, None
    return FailureKind.REFUSED, None
