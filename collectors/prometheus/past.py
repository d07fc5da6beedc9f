"""The past as a Prometheus keeps it, written as a recording: whatever plays recordings plays it."""

from __future__ import annotations

from pathlib import Path

from collectors.engines.detect import RECORDED_FIELDS
from collectors.feed import TargetFeed
from collectors.layout import LayoutCache
from collectors.prometheus.client import PrometheusClient
from collectors.prometheus.fleet import PrometheusFleet
from collectors.recording_format import answer_line, header_line
from enginetop.fleet.errors import ConfigError

_PART_SECONDS = 300.0
"""The past is read in parts of this length."""


def record_past(client: PrometheusClient, path: Path, first: float, last: float, interval: float) -> int:
    """Write the scrapes between two times to `path`; how many there were.

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
                lines = [
                    answer_line(scrape.url, scrape.observation.at, answer, RECORDED_FIELDS)
                    for scrape in look.scrapes
                    for answer in scrape.answers
                ]
                if not scrapes and lines:
                    file.write(header_line(first, fleet.targets, interval))
                file.writelines(lines)
                scrapes += len(lines)
                begin = end
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; the past needs room on the disk") from error
    return scrapes
