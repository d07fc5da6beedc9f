"""What a scrape costs without the rest of the program: `python -m bench.scrape [--tls] [--json]`.

The live engine itself, with real sockets, schedules, parsers and readers, over pages of 74 KiB that another
process serves; its tracker only counts. User and system time, page faults and switches of this process, per
scrape. Between two scrapes of a target lie those of all others, so that caches are as cold as in the program.
"""

from __future__ import annotations

import argparse
import os
import resource
import time

from bench.figures import tell
from bench.page_server import TLS, page_server
from bench.process_figures import resident_mib
from collectors.feed import TargetFeed
from collectors.fetch import Credentials
from collectors.http import HttpFetcher
from collectors.layout import LayoutCache
from collectors.loop import LiveEngine
from enginetop.fleet.fleet_tracker import FleetTracker
from enginetop.fleet.model import Target
from enginetop.fleet.observation import Observation
from enginetop.fleet.snapshot import CollectorHealth, FleetSnapshot, GpuReport, Slo

_WARM_UP_SECONDS = 8.0


class _Counting:
    """A tracker that only counts; its snapshots are of a fleet that nobody has looked at."""

    def __init__(self) -> None:
        self.good = self.failed = 0
        self._empty = FleetTracker(
            (), interval_seconds=1.0, window_seconds=60.0, slo_for=lambda _: Slo(), fixed_spacing_seconds=1.0
        )

    def observe(self, url: str, observation: Observation, next_try_at: float | None = None) -> None:
        del url, next_try_at
        self.good += observation.reading is not None
        self.failed += observation.failure is not None

    def observe_gpus(self, report: GpuReport) -> None:
        del report

    def snapshot(self, now: float, collector: CollectorHealth) -> FleetSnapshot:
        return self._empty.snapshot(now, collector)


def measure(
    replicas: int, seconds: float, interval: float, *, tls: bool = False, warm_up: float = _WARM_UP_SECONDS
) -> dict[str, float]:
    """Scrape such a fleet and return the figures."""
    with page_server(replicas, tls=tls) as server:
        credentials = {url: Credentials(ca_file=str(TLS / "server.crt")) for url in server.good if tls}
        targets = [Target(url, f"r{number}") for number, url in enumerate(server.good)]
        tracker, layouts = _Counting(), LayoutCache()
        engine = LiveEngine(
            targets,
            tracker=tracker,
            new_feed=lambda target: TargetFeed(target, layouts),
            new_fetcher=lambda: HttpFetcher(credentials),
            interval_seconds=interval,
        )
        engine.start()
        try:
            time.sleep(warm_up)
            before, good, began = resource.getrusage(resource.RUSAGE_SELF), tracker.good, time.monotonic()
            time.sleep(seconds)
            after, took = resource.getrusage(resource.RUSAGE_SELF), time.monotonic() - began
            scrapes = max(1, tracker.good - good)
        finally:
            engine.stop()
    return {
        "replicas": replicas,
        "interval_seconds": interval,
        "achieved_ratio": round(scrapes / took / (replicas / interval), 4),
        "failed_scrapes": tracker.failed,
        "user_ms_per_scrape": round((after.ru_utime - before.ru_utime) / scrapes * 1e3, 3),
        "system_ms_per_scrape": round((after.ru_stime - before.ru_stime) / scrapes * 1e3, 3),
        "page_faults_per_scrape": round((after.ru_minflt - before.ru_minflt) / scrapes, 2),
        "switches_per_scrape": round((after.ru_nvcsw - before.ru_nvcsw) / scrapes, 2),
        "rss_mib": round(resident_mib(os.getpid()), 1),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="CPU of a scrape without the rest of the program.")
    parser.add_argument("--replicas", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--interval", type=float, default=1.0)
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    figures = measure(arguments.replicas, arguments.seconds, arguments.interval, tls=arguments.tls)
    tell(figures, as_json=arguments.json)


if __name__ == "__main__":
    main()
