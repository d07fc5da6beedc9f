"""The GPUs that exporters told a Prometheus: raw samples put together again, a report each time it scraped.

Read like the exporters themselves (`collectors.gpu.exporter_page`); `up` gates them as it does engines.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from collectors.fetch import one_line
from collectors.gpu.exporter_page import Sample, hosts_of, spellings
from collectors.gpu.exporter_tables import EXPORTERS
from collectors.gpu.exporters import Ages, reports_of
from collectors.prometheus.client import PrometheusClient
from collectors.prometheus.names import batches, one_of, range_over
from enginetop.fleet.gpu_device import GpuReport
from enginetop.fleet.gpu_join import host_of

_GONE_SECONDS = 120.0
"""What was not scraped for so long is no exporter any more."""
_LONGEST_SECONDS = 300.0
"""How far one look goes back."""
_NODE_LABELS = ("node", "nodename", "kubernetes_node", "hostname")

_Exporter = tuple[str, str]
"""Job and instance."""


@dataclass(slots=True, eq=False)
class _Scraped:
    """One exporter: the labels of its `up`, the newest scrape that was taken, what it told last."""

    labels: Mapping[str, str]
    newest: float = -math.inf
    seen_at: float = -math.inf
    good_at: float = -math.inf
    reports: tuple[GpuReport, ...] = ()
    samples: defaultdict[float, list[Sample]] = field(default_factory=lambda: defaultdict(list))
    failed: list[float] = field(default_factory=list)


class PrometheusGpus:
    """Reports of what was scraped of GPU exporters since the last look; PrometheusError as the client."""

    def __init__(self, client: PrometheusClient) -> None:
        self._client = client
        self._names: Sequence[str] = ()
        self._jobs: Sequence[str] = ()
        self._ages = Ages()
        self._scraped: dict[_Exporter, _Scraped] = {}

    def learn(self, known: Collection[str], start: float, at: float) -> None:
        """Of all names that a server has those of GPU exporters, and who scrapes them."""
        self._names = sorted({name for exporter in EXPORTERS for name in spellings(exporter, known)})
        jobs: set[str] = set()
        for batch in batches(self._names):
            match = f'{{__name__=~"{one_of(batch)}"}}'
            jobs.update(self._client.label_values("job", start, at, match))
        self._jobs = sorted(jobs)

    def look(self, begin: float, at: float) -> Sequence[GpuReport]:
        """Every report up to Unix time `at` that was not taken yet, in the order of time."""
        if not self._jobs:
            return ()
        over = range_over(max(begin, at - _LONGEST_SECONDS), at)
        self._take_ups(over, at)
        for batch in batches(self._names):
            selector = f'{{__name__=~"{one_of(batch)}",job=~"{one_of(self._jobs)}"}}'
            self._take_samples(self._client.matrix(selector + over, at))
        reports = [report for one in self._scraped.values() for report in self._news(one)]
        reports += self._gone(at)
        return sorted(reports, key=lambda report: report.at)

    def _take_ups(self, over: str, at: float) -> None:
        for series in self._client.matrix(f'up{{job=~"{one_of(self._jobs)}"}}{over}', at):
            labels = {name: value for name, value in series["metric"].items() if name != "__name__"}
            one = self._scraped.setdefault(_exporter_of(labels), _Scraped(labels))
            for sampled_at, value in series["values"]:
                one.seen_at = max(one.seen_at, sampled_at)
                if value != "1" and sampled_at > one.newest:
                    one.failed.append(sampled_at)

    def _take_samples(self, matrix: Iterable[Mapping[str, object]]) -> None:
        for series in matrix:
            labels, values = series["metric"], series["values"]
            assert isinstance(labels, dict)
            one = self._scraped.get(_exporter_of(labels))
            if one is None or not isinstance(values, list):
                continue
            name = labels.get("__name__", "")
            for sampled_at, value in values:
                if sampled_at > one.newest:
                    one.samples[sampled_at].append((name, labels, float(value)))

    def _news(self, one: _Scraped) -> Iterable[GpuReport]:
        """The reports of one exporter since the last look; its former ones with a problem where it failed."""
        instance = one.labels.get("instance", "")
        exporter = f"http://{instance}"
        names = tuple(filter(None, (one.labels.get(label) for label in _NODE_LABELS)))
        for at in sorted({*one.samples, *one.failed}):
            one.newest = max(one.newest, at)
            if at in one.samples:
                found = hosts_of(one.samples[at], one.labels)
                one.reports = tuple(
                    reports_of(
                        found,
                        exporter,
                        host_of(exporter),
                        at,
                        lambda told, at=at: self._ages.dated(exporter, told, at),  # type: ignore[misc]
                        names,
                    )
                )
                one.good_at = at
                yield from one.reports
            elif one.reports:
                problem = one_line(f"GPU exporter {instance}: its scraper cannot read it")
                kept = at - one.good_at < _LONGEST_SECONDS
                for report in one.reports:
                    yield replace(report, at=at, gpus=report.gpus if kept else (), problem=problem)
        one.samples.clear()
        one.failed.clear()

    def _gone(self, at: float) -> Iterable[GpuReport]:
        """Who is scraped no more tells of nothing any more."""
        for exporter, one in list(self._scraped.items()):
            if at - one.seen_at > _GONE_SECONDS:
                del self._scraped[exporter]
                if one.reports:
                    yield replace(one.reports[0], at=at, gpus=(), problem="")


def _exporter_of(labels: Mapping[str, str]) -> _Exporter:
    return labels.get("job", ""), labels.get("instance", "")
