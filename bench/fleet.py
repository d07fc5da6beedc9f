"""Scraping a fleet in which one replica hangs and one is dead: `python -m bench.fleet [--json]`.

The whole engine runs: fetching, parsing, engine tables, histories, one snapshot a tick. The server is another
process. Figures: scrapes achieved over asked of each good replica (the worst one counts), the age of the
oldest good page in any snapshot, and this process's CPU per scrape, snapshots included.
"""

from __future__ import annotations

import argparse
import resource
import socket
import threading
import time
from collections import Counter
from collections.abc import Sequence

from bench.figures import tell
from bench.page_server import page_server
from collectors.answer import Answer
from collectors.feed import TargetFeed
from collectors.http import HttpFetcher
from collectors.layout import LayoutCache
from collectors.loop import LiveEngine
from enginetop.fleet.fleet_tracker import FleetTracker, default_name
from enginetop.fleet.model import Target
from enginetop.fleet.snapshot import GpuReport, Slo

WARM_UP_INTERVALS = 3


class Watcher:
    """Counts scrapes as a recorder would see them, and the age of pages as a screen would."""

    problem = ""

    def __init__(self, good: Sequence[str]) -> None:
        self.scrapes: Counter[str] = Counter()
        self.ages: list[float] = []
        self.counting = False
        self._good = frozenset(good)

    def record_scrape(self, url: str, at: float, answers: Sequence[Answer]) -> None:  # noqa: ARG002
        """Count it."""
        self.scrapes[url] += self.counting

    def record_gpus(self, report: GpuReport) -> None:
        """There are none."""

    def look(self, engine: LiveEngine) -> None:
        """Note the age of the oldest page of a good replica."""
        snapshot = engine.latest()
        if snapshot is not None and self.counting:
            self.ages += [
                snapshot.at - (replica.scraped_at or 0.0)
                for replica in snapshot.replicas
                if replica.target.url in self._good
            ]


def measure(replicas: int, seconds: float, interval: float) -> dict[str, float]:
    """Run the fleet and return the figures."""
    with page_server(replicas - 2, hung=1) as server, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound and not listening: refuses
        dead = f"http://127.0.0.1:{closed.getsockname()[1]}"
        targets = [Target(url, default_name(url)) for url in (*server.good, *server.hung, dead)]
        layouts = LayoutCache()
        watcher = Watcher(server.good)
        engine = LiveEngine(
            targets,
            tracker=FleetTracker(
                targets,
                interval_seconds=interval,
                window_seconds=60.0,
                slo_for=lambda _: Slo(),
                fixed_spacing_seconds=interval,
            ),
            new_feed=lambda target: TargetFeed(target, layouts),
            new_fetcher=HttpFetcher,
            interval_seconds=interval,
            recorder=watcher,
        )
        engine.subscribe(lambda: watcher.look(engine))
        pause = threading.Event()
        engine.start()
        pause.wait(WARM_UP_INTERVALS * interval)
        watcher.counting, cpu, began = True, time.process_time(), time.monotonic()
        pause.wait(seconds)
        cpu, took = time.process_time() - cpu, time.monotonic() - began
        watcher.counting = False
        snapshot = engine.latest()
        engine.stop()
    if snapshot is None:
        raise RuntimeError("the engine published nothing")
    states = Counter(replica.state.value for replica in snapshot.replicas)
    asked = took / interval
    good = [watcher.scrapes[url] for url in server.good]
    return {
        "replicas": replicas,
        "seconds": round(took, 1),
        "interval_seconds": interval,
        "asked_scrapes_per_second": round((replicas - 2) / interval, 2),
        "achieved_scrapes_per_second": round(sum(good) / took, 2),
        "achieved_ratio_min": round(min(good) / int(asked), 3),
        "page_age_seconds_max": round(max(watcher.ages), 3),
        "cpu_ms_per_scrape": round(cpu / sum(watcher.scrapes.values()) * 1000, 3),
        "cpu_share_of_one_core": round(cpu / took, 4),
        "late_ticks": snapshot.collector.late_ticks,
        "replicas_up": states["ok"] + states["idle"],
        "replicas_down": states["down"],
        "scrapes_of_the_hung_one": watcher.scrapes[server.hung[0]],
        "scrapes_of_the_dead_one": watcher.scrapes[dead],
        "rss_mib_max": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Scrape a fleet with one hung and one dead replica.")
    parser.add_argument("--replicas", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--interval", type=float, default=2.0)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    figures = measure(arguments.replicas, arguments.seconds, arguments.interval)
    tell(figures, as_json=arguments.json)


if __name__ == "__main__":
    main()
