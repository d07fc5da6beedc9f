"""The past as a Prometheus keeps it, written as a recording: whatever plays recordings plays it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from collectors.engines.detect import RECORDED_FIELDS
from collectors.feed import TargetFeed
from collectors.layout import LayoutCache
from collectors.prometheus.client import PrometheusClient
from collectors.prometheus.fleet import PrometheusFleet
from collectors.recording_format import answer_line, gpu_line, header_line
from collectors.scrape import Scrape
from enginetop.fleet.errors import ConfigError
from enginetop.fleet.gpu_device import GpuReport

_PART_SECONDS = 300.0
"""The past is read in parts of this length."""


def record_past(
    client: PrometheusClient,
    path: Path,
    first: float,
    last: float,
    interval: float,
    on_part: Callable[[float], None] = lambda _: None,
) -> int:
    """Write the scrapes between two times to `path`; how many there were. `on_part`: read up to that time.

    PrometheusError when the server gives no usable answer, ConfigError when the file cannot be written.
    """
    layouts = LayoutCache()
    fleet = PrometheusFleet(client, lambda target: TargetFeed(target, layouts))
    scrapes = 0
    if not fleet.learn(first, last):
        return 0
    try:
        with path.open("w", encoding="utf-8") as file:
            begin = first
            while begin < last:
                end = min(begin + _PART_SECONDS, last)
                look = fleet.look(end, begin)
                lines = [line for _, news in look.in_order() for line in _lines(news)]
                if not scrapes and lines:
                    file.write(header_line(first, fleet.targets, interval))
                file.writelines(lines)
                scrapes += len(look.scrapes)
                begin = end
                on_part(end)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; the past needs room on the disk") from error
    return scrapes


def _lines(news: Scrape | GpuReport) -> Iterator[str]:
    if isinstance(news, GpuReport):
        yield gpu_line(news)
        return
    for answer in news.answers:
        yield answer_line(news.url, news.observation.at, answer, RECORDED_FIELDS)
