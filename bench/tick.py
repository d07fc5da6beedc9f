"""What a tick of a large fleet costs, part by part: `python -m bench.tick [--json]`.

Pages of 74 KiB, each a replica's own, are read and observed; then the fleet is published as the program does
it: a picture of 200 replicas a second, advice, alerts. No sockets, no screen. Figures are CPU microseconds of
this thread a replica and tick: the medians over the ticks after a warm-up.
"""

from __future__ import annotations

import argparse
from statistics import median
from time import thread_time

from bench.figures import tell
from bench.memory import Fleet
from bench.page_server import AGE_SECONDS, AGES, MovingPage
from enginetop.cli.garbage import pace_garbage

PARTS = ("take", "observe", "snapshot", "advise", "alert")
_PICTURES_PER_SECOND = 200.0
_EPOCH = 1_764_446_400.0


def measure(replicas: int, ticks: int, warm_up: int) -> dict[str, float]:
    """Run the fleet and return the figures."""
    pace_garbage(replicas)
    fleet = Fleet(replicas, 1.0, pictures_per_second=_PICTURES_PER_SECOND)
    page = MovingPage()
    spent: dict[str, list[float]] = {part: [] for part in PARTS}
    for tick in range(warm_up + ticks):
        bodies = [page.at(tick + AGE_SECONDS * age) for age in range(AGES)]
        took = fleet.timed_look(_EPOCH + tick, bodies, thread_time)
        if tick >= warm_up:
            for part, seconds in zip(PARTS, took, strict=True):
                spent[part].append(seconds / replicas * 1e6)
    figures = {f"{part}_microseconds": round(median(times), 1) for part, times in spent.items()}
    return {"replicas": replicas, **figures, "all_microseconds": round(sum(figures.values()), 1)}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Parts of a tick of a large fleet.")
    parser.add_argument("--replicas", type=int, nargs="+", default=[64, 200, 1000])
    parser.add_argument("--ticks", type=int, default=12)
    parser.add_argument("--warm-up", type=int, default=8)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    for count in arguments.replicas:
        figures = measure(count, arguments.ticks, arguments.warm_up)
        tell(figures, as_json=arguments.json)


if __name__ == "__main__":
    main()
