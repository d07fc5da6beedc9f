"""Hours under faults: `python -m bench.soak [--minutes 120] [--json]`.

A fleet of 64 replicas is watched by `enginetop watch` (alerts to a webhook, state on a disk of 1 MiB) and by
the screen on a pseudo-terminal. One fault after the other is put on: replicas that die, hang, trickle, reset,
talk garbage or without end, refuse the key; and a name that nobody knows, a clock that is set, no descriptors
left, a full disk, a receiver that is away, SIGHUP, resizes, a terminal that nobody reads. Figures: how soon
each fault was visible at all (a failed look, an answer that is overdue, or a state), was the replica's state
and was over; for how much of the first the watch was kept from its CPU, which is taken off where faults are
named that took more than two intervals; alerts that the webhook did not get, and how memory, threads and
descriptors grew after the first quarter.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from dataclasses import asdict
from itertools import cycle
from pathlib import Path

from bench.soak_figures import Row, table
from bench.soak_run import FAKETIME, Soak

_SPARED = 8
"""The first replicas are never broken: what is done to their connections must not hide a fault."""


def measure(
    minutes: float, replicas: int, interval: float, hold: float
) -> tuple[dict[str, object], list[Row]]:
    """Run the soak: every fault at least once, and again until the time is over."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Soak(Path(folder), replicas, interval, hold).running() as soak,
    ):
        began = time.monotonic()
        faults = soak.faults()
        for turn, strike in enumerate(cycle(faults)):
            passed = (time.monotonic() - began) / 60
            if turn >= len(faults) and passed >= minutes:
                break
            soak.sample(passed)
            row = strike(_SPARED + turn % (replicas - _SPARED))
            print(f"{passed:6.1f} min  {row}", file=sys.stderr, flush=True)
        soak.sample((time.monotonic() - began) / 60)
        lost = [row.fault for row in soak.rows if not (row.fired and row.resolved)]
        figures: dict[str, object] = {
            "minutes": round((time.monotonic() - began) / 60, 1),
            "replicas": replicas,
            "interval_seconds": interval,
            "faults": len(soak.rows),
            "never_seen": [row.fault for row in soak.rows if row.state_seconds is None],
            "visible_after_two_intervals": [
                row.fault
                for row in soak.rows
                if row.visible_seconds is None
                or row.visible_seconds - row.starved_seconds > 2 * interval + soak.gap_seconds
            ],
            "never_recovered": [row.fault for row in soak.rows if row.recovered_seconds is None],
            "alerts_lost": lost,
            "longest_silence_of_screen_seconds": round(soak.silent_seconds, 1),
            "clock_stepped": bool(FAKETIME),
            "disk_filled": soak.small,
            "watch": soak.watch_growth.figures(),
            "screen": soak.screen_growth.figures(),
        }
        return figures, soak.rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Hours under faults.")
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--replicas", type=int, default=64)
    parser.add_argument("--interval", type=float, default=2.0)
    parser.add_argument("--hold", type=float, default=30.0, help="hold of the alerts, in seconds")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was started and mounted ends too
    figures, rows = measure(arguments.minutes, arguments.replicas, arguments.interval, arguments.hold)
    if arguments.json:
        print(json.dumps({**figures, "rows": [asdict(row) for row in rows]}))
        return
    print(table(rows))
    for name, value in figures.items():
        print(f"{name:36} {value}")


if __name__ == "__main__":
    main()
