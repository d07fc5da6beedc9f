"""What a start costs: `python -m bench.startup [--json]`. CPU (user and system) of fresh processes, medians.

`help`: `--help` to its end. `headless`: `snapshot --samples 1` of one replica, from the start of the process
to its end: the page scraped, derived, printed. `first_paint`: the screen up to its first picture.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence

from bench.page_server import page_server
from bench.screen import first_paint

_ROUNDS = 7


def cpu_seconds(arguments: Sequence[str]) -> float:
    """CPU of one run of the program. CalledProcessError when it fails."""
    before = os.times()
    command = [sys.executable, "-m", "enginetop", *arguments]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def measure(rounds: int = _ROUNDS) -> dict[str, float]:
    """CPU seconds of each start; they take turns."""
    found: dict[str, list[float]] = {"help": [], "headless": [], "first_paint": []}
    with page_server(1) as server:
        for _ in range(rounds):
            found["help"].append(cpu_seconds(["--help"]))
            found["headless"].append(cpu_seconds(["snapshot", "--samples", "1", *server.good]))
            found["first_paint"].append(first_paint()[0] / 1000)
    return {f"{name}_cpu_seconds": round(statistics.median(times), 3) for name, times in found.items()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="CPU of starts.")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    figures = measure()
    for name, value in figures.items():
        print(f"{name:26} {value:8.3f}")
    if arguments.json:
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
