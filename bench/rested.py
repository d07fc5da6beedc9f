"""What the machine makes of work after a rest: `python -m bench.rested [--json]`.

A program that looks at a few engines every two seconds works for some milliseconds and then sleeps. The same
work of Python takes more CPU time after a sleep than in a row: its memory has left the caches, and a virtual
CPU that halted is slow to come back. By how much is the machine's, not the program's, and figures of idle
fleets are read beside it.
"""

from __future__ import annotations

import argparse
import json
import time
from statistics import median

from bench.figures import tell

REST_SECONDS = 0.5
_ROUNDS = 9
_TEXT = json.dumps([{f"name{number}": [number, number * 2.5, f"text{number}"]} for number in range(3000)])
"""Some 12 000 objects: a millisecond or two, and a megabyte of memory."""


def _work_seconds() -> float:
    """CPU seconds of one piece of work."""
    began = time.thread_time()
    json.loads(_TEXT)
    return time.thread_time() - began


def measure(rest_seconds: float = REST_SECONDS) -> dict[str, float]:
    """CPU of the same work in a row and after rests, medians."""
    in_a_row = [_work_seconds() for _ in range(2 * _ROUNDS)][_ROUNDS:]
    rested = []
    for _ in range(_ROUNDS):
        time.sleep(rest_seconds)
        rested.append(_work_seconds())
    return {
        "rest_seconds": rest_seconds,
        "in_a_row_cpu_ms": round(median(in_a_row) * 1000, 2),
        "rested_cpu_ms": round(median(rested) * 1000, 2),
        "rested_work_ratio": round(median(rested) / median(in_a_row), 1),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="The same work in a row and after rests.")
    parser.add_argument("--json", action="store_true")
    tell(measure(), as_json=parser.parse_args().json)


if __name__ == "__main__":
    main()
