"""What a start costs: `python -m bench.startup [--json]`. CPU (user and system) of fresh processes, medians.

`help`: `--help` to its end. `headless`: `snapshot --samples 1` of one replica, from the start of the process
to its end: the page scraped, derived, printed. `first_paint`: the screen alone up to its first picture.
`first_paint_of_1`, `_of_1000`: the whole program up to its first picture, a config file with so many targets.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.figures import tell
from bench.page_server import page_server
from bench.scale import config
from bench.screen import first_paint
from bench.screen_terminal import Terminal

_ROUNDS = 7
_FLEETS = (1, 1000)


def cpu_seconds(arguments: Sequence[str]) -> float:
    """CPU of one run of the program. CalledProcessError when it fails."""
    before = os.times()
    command = [sys.executable, "-m", "enginetop", *arguments]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def first_paint_of(path: Path) -> float:
    """CPU of the program with this config file up to its first picture."""
    with Terminal([sys.executable, "-m", "enginetop", "--config", str(path)]) as terminal:
        terminal.wait_for(b"enginetop  ")
        return terminal.cpu_seconds()


def measure(rounds: int = _ROUNDS) -> dict[str, float]:
    """CPU seconds of each start; they take turns."""
    found: dict[str, list[float]] = {"help": [], "headless": [], "first_paint": []}
    found |= {f"first_paint_of_{count}": [] for count in _FLEETS}
    with page_server(1) as server, tempfile.TemporaryDirectory() as folder:
        for count in _FLEETS:
            urls = [f"{server.good[0]}/{number}" for number in range(count)]
            Path(folder, f"{count}.toml").write_text(config(urls, tls=False))
        for _ in range(rounds):
            found["help"].append(cpu_seconds(["--help"]))
            found["headless"].append(
                cpu_seconds(["snapshot", "--samples", "1", "--timeout", "10", *server.good])
            )
            found["first_paint"].append(first_paint()[0] / 1000)
            for count in _FLEETS:
                found[f"first_paint_of_{count}"].append(first_paint_of(Path(folder, f"{count}.toml")))
    return {f"{name}_cpu_seconds": round(statistics.median(times), 3) for name, times in found.items()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="CPU of starts.")
    parser.add_argument("--rounds", type=int, default=_ROUNDS)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    figures = measure(arguments.rounds)
    tell(figures, as_json=arguments.json)


if __name__ == "__main__":
    main()
