"""Resident memory of a headless fleet once its histories are full: `python -m bench.memory [--json]`.

256 vLLM replicas with pages of 74 KiB, looked at every 2 s for 20 minutes of compressed time: the real feeds,
tracker, advice and alerts, a snapshot a tick, in a process of its own that another one hands the pages, which
are of several ages. In a large fleet replicas take turns, as under a screen; `--screen` keeps the pictures
that one keeps to look back at. What histories may take is worked out beforehand (`enginetop.fleet.memory`)
and printed beside what they took. Sockets and drawing are not part of it: `bench.scale --settle 870` has
them, in a quarter of an hour.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO, Final

from bench.figures import tell
from bench.page_server import AGE_SECONDS, AGES, MovingPage
from bench.process_figures import resident_mib
from collectors.answer import Answer
from collectors.feed import TargetFeed
from collectors.layout import LayoutCache
from enginetop.alerts.book import AlertBook
from enginetop.alerts.builtin import builtin_rules
from enginetop.cli.garbage import pace_garbage, trim
from enginetop.fleet.fleet_tracker import FleetTracker
from enginetop.fleet.memory import history_bytes
from enginetop.fleet.model import Target
from enginetop.fleet.snapshot import FleetSnapshot, Slo
from tui.timeline import Timeline
from tuners.advice import Advisor

_HEADERS: Final = {"content-type": "text/plain; version=0.0.4"}
_WINDOW_SECONDS: Final = 60.0
_PICTURES_PER_SECOND = 200.0
_EPOCH = 1_764_446_400.0


class Fleet:
    """Replicas that give the same few pages, each read and remembered by itself."""

    def __init__(self, replicas: int, interval: float, pictures_per_second: float = math.inf) -> None:
        targets = [Target(f"http://10.0.0.{number}:8000", f"r{number}") for number in range(replicas)]
        layouts = LayoutCache()
        self._feeds = {target.url: TargetFeed(target, layouts) for target in targets}
        self._tracker = FleetTracker(
            targets,
            interval_seconds=interval,
            window_seconds=_WINDOW_SECONDS,
            slo_for=lambda _: Slo(),
            fixed_spacing_seconds=interval,
            pictures_per_second=pictures_per_second,
        )
        self._advise, self._alert = Advisor(), AlertBook(builtin_rules(_WINDOW_SECONDS))
        self.latest: FleetSnapshot | None = None

    def look(self, at: float, body: bytes) -> None:
        """One tick."""
        self.timed_look(at, [body], lambda: 0.0)

    def timed_look(self, at: float, bodies: Sequence[bytes], clock: Callable[[], float]) -> Sequence[float]:
        """One tick, in which replicas give these pages in turn. What it took by `clock`: reading all pages,
        observing them, the snapshot, advice, alerts.
        """
        reading = observing = 0.0
        for number, (url, feed) in enumerate(self._feeds.items()):
            own = bytes(bytearray(bodies[number % len(bodies)]))  # as it comes from the network
            came = at + number / 1000
            begun = clock()
            look = feed.take([Answer("/metrics", came, 0.01, 200, _HEADERS, own)], came, 0.01)
            read = clock()
            self._tracker.observe(url, look)
            observing += clock() - read
            reading += read - begun
        begun = clock()
        snapshot = self._tracker.snapshot(at + 1)
        seen = clock()
        snapshot = self._advise(snapshot)
        advised = clock()
        self.latest = self._alert(snapshot)
        self._alert.take_events()
        return reading, observing, seen - begun, advised - seen, clock() - advised


def series_read(body: bytes) -> int:
    """How many series of the page the engine's table reads."""
    feed = TargetFeed(Target("http://10.0.0.1:8000", "r"), LayoutCache())
    reading = feed.take([Answer("/metrics", 0.0, 0.01, 200, _HEADERS, body)], 0.0, 0.01).reading
    if reading is None:
        raise RuntimeError("the page is not an engine's")
    return len(reading.columns.series)


def watch(
    pages: BinaryIO, replicas: int, interval: float, ticks: int, *, screen: bool
) -> list[tuple[float, float]]:
    """Read `AGES` pages a tick, the length of each in a line before it. Minutes and resident MiB by then."""
    fleet, timeline = Fleet(replicas, interval, _PICTURES_PER_SECOND), Timeline()
    pace_garbage(replicas)
    seen = [(0.0, resident_mib(os.getpid()))]
    for tick in range(ticks):
        bodies = [pages.read(int(pages.readline())) for _ in range(AGES)]
        fleet.timed_look(_EPOCH + tick * interval, bodies, lambda: 0.0)
        if screen and fleet.latest is not None:
            timeline.add(fleet.latest)
        minutes = (tick + 1) * interval / 60
        if minutes == int(minutes):
            seen.append((minutes, resident_mib(os.getpid())))
            print(f"after {minutes:4g} min {seen[-1][1]:8.1f} MiB", file=sys.stderr, flush=True)
            trim()  # as the program does, six times as often
    return seen


@contextmanager
def _child(arguments: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "bench.memory", "--child", *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def measure(replicas: int, minutes: float, interval: float, *, screen: bool = False) -> dict[str, float]:
    """Run the fleet and return the figures."""
    ticks = int(minutes * 60 / interval)
    page = MovingPage()
    given = [f"--replicas={replicas}", f"--minutes={minutes}", f"--interval={interval}"]
    with _child([*given, "--screen"] if screen else given) as process:
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("no pipe to the fleet")
        for tick in range(ticks):
            for age in range(AGES):
                body = page.at(tick * interval + age * AGE_SECONDS)
                process.stdin.write(b"%d\n%s" % (len(body), body))
        process.stdin.close()
        seen: list[tuple[float, float]] = json.loads(process.stdout.read())
    resident = dict(seen)
    planned = history_bytes(interval, _WINDOW_SECONDS, series_read(page.at(0)))
    return {
        "replicas": replicas,
        "interval_seconds": interval,
        "minutes": minutes,
        "page_kib": round(len(page.at(0)) / 1024, 1),
        "start_rss_mib": round(resident[0.0], 1),
        "full_rss_mib": round(max(mib for _, mib in seen), 1),
        "full_rss_mb": round(max(mib for _, mib in seen) * 1.048576, 1),
        **{f"planned_{name}_kib_per_replica": round(size / 1024, 1) for name, size in planned.items()},
        "planned_histories_mib": round(replicas * sum(planned.values()) / 2**20, 1),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Resident memory of a headless fleet with full histories.")
    parser.add_argument("--replicas", type=int, default=256)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--interval", type=float, default=2.0)
    parser.add_argument("--screen", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        ticks = int(arguments.minutes * 60 / arguments.interval)
        fleet = (arguments.replicas, arguments.interval, ticks)
        print(json.dumps(watch(sys.stdin.buffer, *fleet, screen=arguments.screen)))
        return
    figures = measure(arguments.replicas, arguments.minutes, arguments.interval, screen=arguments.screen)
    tell(figures, as_json=arguments.json)


if __name__ == "__main__":
    main()
