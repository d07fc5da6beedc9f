"""Every bench in one run, ours and others: `python -m bench [--quick]`, about a quarter of an hour.

Each part is a process and can be run alone (`python -m bench.NAME`). Its figures are printed below its title
as it tells them, and at the end one table holds those that are aimed at and those of others. `--quick`: each
part as short as it can be, to see that it works; its figures say little. Exit 1 where a part has failed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import dataclass

from bench.aims import Figures, summary


@dataclass(frozen=True, slots=True)
class Part:
    """One command: `python -m bench.` and these words; `quick` are more of them for a short run.

    `seconds`: how long it takes about, on a machine that nobody else uses.
    """

    title: str
    words: str
    quick: str
    seconds: float


PARTS = (
    Part("startup", "startup", "--rounds 1", 50),
    Part("parse", "parse", "--rounds 1", 20),
    Part("fetch", "fetch", "--rounds 1", 15),
    Part("scrape", "scrape", "--seconds 2", 30),
    Part("tick", "tick", "--ticks 2 --warm-up 1", 40),
    Part("screen", "screen", "--seconds 1 --keys 10", 70),
    Part("scale", "scale --replicas 200 1000 --seconds 20", "--seconds 2 --settle 1", 85),
    Part("scale https", "scale --replicas 1000 --seconds 20 --tls", "--seconds 2 --settle 1", 45),
    Part(
        "scale idle",
        "scale --replicas 8 --seconds 20 --interval 2 --settle 70 --idle",
        "--seconds 2 --settle 1",
        95,
    ),
    Part("rested", "rested", "", 6),
    Part("memory", "memory --replicas 200 --interval 1 --minutes 16", "--minutes 1", 140),
    Part("peers", "peers", "--replicas 8 --rounds 1 --seconds 2", 340),
)


def run(part: Part, *, quick: bool) -> list[Figures]:
    """Run it, print what it tells, and return its figures. CalledProcessError when it fails."""
    words = [*part.words.split(), *(part.quick.split() if quick else [])]
    command = [sys.executable, "-m", f"bench.{words[0]}", *words[1:], "--json"]
    found: list[Figures] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout or ():
            if line.startswith("{"):
                found.append(json.loads(line))
                print(flush=True)
            else:
                print(line, end="", flush=True)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return found


def main() -> int:
    """Run all parts; 1 when one has failed."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="Every bench in one run.")
    parser.add_argument("--quick", action="store_true", help="see that every part works; figures say little")
    quick = parser.parse_args().quick
    began = time.monotonic()
    found: dict[str, list[Figures]] = {}
    failed = []
    for number, part in enumerate(PARTS):
        left = "" if quick else f", some {sum(one.seconds for one in PARTS[number:]) / 60:.0f} min left"
        print(f"\n== {part.title} ({number + 1} of {len(PARTS)}{left})", flush=True)
        try:
            found[part.title] = run(part, quick=quick)
        except subprocess.CalledProcessError as error:
            failed.append(part.title)
            print(f"bench.{part.words} has failed: exit {error.returncode}", file=sys.stderr, flush=True)
    print(f"\n== all, in {(time.monotonic() - began) / 60:.1f} min\n{summary(found)}")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
