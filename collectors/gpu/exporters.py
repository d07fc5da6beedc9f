"""GPUs of other machines, from their exporters: a `GpuSource` that asks all of them at once over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from collectors.answer import Answer
from collectors.exposition import LayoutCache, PageParser
from collectors.fetch import Fetcher, one_line
from collectors.gpu.exporter_page import HostGpus, hosts_of
from collectors.waiting_fetcher import WaitingFetcher
from enginetop.fleet.gpu_device import GpuDevice, GpuReport
from enginetop.fleet.model import Target

PATH = "/metrics"

_KEPT_SECONDS = 300.0
"""How long the figures of an exporter that fails are shown, as old ones."""
_AT_ONCE = 64
_MOST_HOSTS = 256


class Ages:
    """When the figures of each source last changed; what is seen first changed then, as far as is known."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], tuple[int, float]] = {}

    def dated(self, source: str, told: HostGpus, at: float) -> tuple[GpuDevice, ...]:
        """The devices of one host, with the time of the last change."""
        mark, changed_at = self._known.get((source, told.host), (None, at))
        if mark != told.mark:
            changed_at = at
        self._known[(source, told.host)] = (told.mark, changed_at)
        return tuple(replace(gpu, changed_at=changed_at) for gpu in told.gpus)


@dataclass(slots=True, eq=False)
class _Exporter:
    """What is kept of one exporter: its address, its parser, the reports of its last good page."""

    target: Target
    parser: PageParser
    reports: tuple[GpuReport, ...] = ()
    good_at: float = field(default=float("-inf"))


class ExporterGpus:
    """The GPUs that these exporters tell of. An exporter that fails is a problem of its own reports alone.

    `new_fetcher` is called in the thread that reads. `timeout_seconds` bounds one page.
    """

    def __init__(
        self,
        exporters: Sequence[Target],
        new_fetcher: Callable[[], Fetcher],
        timeout_seconds: float,
    ) -> None:
        layouts = LayoutCache()
        self._exporters = [_Exporter(target, PageParser(layouts)) for target in exporters]
        self._fetcher = WaitingFetcher(new_fetcher)
        self._timeout = timeout_seconds
        self._ages = Ages()

    def open(self, targets: Sequence[Target]) -> None:
        """Nothing is asked before the first `read`; the replicas are found by those who have all of them."""

    def read(self, now: float) -> Sequence[GpuReport]:
        """A report of each host that an exporter tells of; of one that fails its last, with the problem."""
        answers = self._fetcher.run(self._ask_all)
        return [
            report
            for exporter, answer in zip(self._exporters, answers, strict=True)
            for report in self._taken(exporter, answer, now)
        ]

    def close(self) -> None:
        """Close every connection."""
        self._fetcher.close()

    async def _ask_all(self, fetcher: Fetcher) -> Sequence[Answer | BaseException]:
        turns = asyncio.Semaphore(_AT_ONCE)

        async def ask(target: Target) -> Answer:
            async with turns:
                path = target.metrics_path or PATH
                return await fetcher.fetch(target.url, path, timeout_seconds=self._timeout)

        asked = (ask(exporter.target) for exporter in self._exporters)
        return await asyncio.gather(*asked, return_exceptions=True)

    def _taken(
        self, exporter: _Exporter, answer: Answer | BaseException, now: float
    ) -> tuple[GpuReport, ...]:
        url, name = exporter.target.url, exporter.target.name
        try:
            found, problem = _read(exporter.parser, answer)
            reports = tuple(
                reports_of(found, url, exporter.target.host, now, lambda one: self._ages.dated(url, one, now))
            )
        except Exception as fault:  # noqa: BLE001 - one exporter's trouble is its own
            reports, problem = (), f"a fault of enginetop ({type(fault).__name__})"
        if not problem:
            exporter.reports, exporter.good_at = reports, now
            return reports
        line = one_line(f"GPU exporter {name}: {problem}")
        if exporter.reports and now - exporter.good_at < _KEPT_SECONDS:
            return tuple(replace(report, at=now, problem=line) for report in exporter.reports)
        emptied = tuple(replace(report, at=now, gpus=(), problem=line) for report in exporter.reports)
        return emptied or (GpuReport(exporter.target.host, now, (), line, url),)


def reports_of(
    found: Sequence[HostGpus],
    exporter: str,
    address: str,
    at: float,
    dated: Callable[[HostGpus], tuple[GpuDevice, ...]],
    host_names: tuple[str, ...] = (),
) -> Sequence[GpuReport]:
    """A report of each host. Where there is only one, the exporter's own `address` is a name of it too."""
    hosts = {one.host for one in found[:_MOST_HOSTS]}
    reports: list[GpuReport] = []
    for one in found[:_MOST_HOSTS]:
        alone = len(hosts) == 1
        names = tuple(dict.fromkeys((*((address,) if alone else ()), one.host, *host_names)))
        reports.append(
            GpuReport(
                one.host or address,
                at,
                dated(one),
                exporter=exporter,
                host_names=tuple(name for name in names if name and name != (one.host or address)),
            )
        )
    return reports


def _read(parser: PageParser, answer: Answer | BaseException) -> tuple[Sequence[HostGpus], str]:
    """What a page tells, and why it tells nothing."""
    if isinstance(answer, BaseException):
        return (), f"a fault of enginetop ({type(answer).__name__})"
    if answer.error is not None:
        return (), answer.detail or str(answer.error)
    if answer.status in (401, 403):
        return (), (
            f"HTTP {answer.status}: it needs a key, or another one: api_key_env, api_key_file or username in "
            "[[gpu_exporters]]"
        )
    if answer.status != 200:
        return (), f"HTTP {answer.status}"
    page = parser.parse(answer.body)
    found = hosts_of(zip(page.layout.names, page.layout.labels, page.values, strict=True))
    return found, "" if found else "no GPU of a known exporter on its page (dcgm, AMD, Intel, Triton)"
