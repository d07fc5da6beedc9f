"""What a soak finds out: a row a fault, and what a process holds over time."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import linear_regression, median_high

_WARM_UP_SHARE = 0.25


@dataclass(slots=True)
class Row:
    """One fault: seconds until anything told of it, until the state did, and from its end until it was over.

    None: never. `starved_seconds`: for how long, until it was visible, a thread of the watch had work and no
    CPU: the machine's part of the time.
    """

    fault: str
    state: str = ""
    visible_seconds: float | None = None
    state_seconds: float | None = None
    recovered_seconds: float | None = None
    starved_seconds: float = 0.0
    alert: str = ""
    fired: bool = False
    resolved: bool = False


@dataclass(slots=True)
class Growth:
    """What a process holds over time: minutes, MiB, descriptors, threads."""

    samples: list[tuple[float, float, int, int]] = field(default_factory=list)

    def take(self, pid: int, minutes: float) -> None:
        """One sample more."""
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
        found = dict(re.findall(r"^(VmRSS|Threads):\s+(\d+)", status, re.M))
        open_files = sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
        self.samples.append((minutes, int(found["VmRSS"]) / 1024, open_files, int(found["Threads"])))

    def figures(self) -> dict[str, float]:
        """After the warm-up: MiB at its end and at the last, MiB per hour, most descriptors and threads."""
        kept = self.samples[int(len(self.samples) * _WARM_UP_SHARE) :]
        minutes, mib, files, threads = zip(*kept, strict=True)
        return {
            "rss_mib_after_warm_up": round(mib[0], 1),
            "rss_mib_last": round(mib[-1], 1),
            "rss_mib_per_hour": round(linear_regression(minutes, mib).slope * 60, 2),
            "descriptors_after_warm_up": files[0],
            "descriptors_last": files[-1],
            "threads_most": max(threads),
            "threads_last": threads[-1],
        }


def table(rows: Sequence[Row]) -> str:
    """The faults by kind: how often, and the median and the longest of each of its times."""
    spans = " ".join(f"{title:>12}" for title in ("visible s", "state s", "over s", "starved s"))
    lines = [f"{'fault':24} {'times':>5} {'state':24} {spans} {'fired':>5} {'ended':>5}"]
    for fault in dict.fromkeys(row.fault for row in rows):
        mine = [row for row in rows if row.fault == fault]
        states = "/".join(dict.fromkeys(row.state for row in mine))
        times = zip(*map(_times, mine), strict=True)
        spans = " ".join(f"{_span(column):>12}" for column in times)
        fired, ended = sum(row.fired for row in mine), sum(row.resolved for row in mine)
        lines.append(f"{fault:24} {len(mine):5} {states:24} {spans} {fired:5} {ended:5}")
    return "\n".join(lines)


def _times(row: Row) -> tuple[float | None, ...]:
    return row.visible_seconds, row.state_seconds, row.recovered_seconds, row.starved_seconds


def starved_seconds(pid: int) -> dict[str, float]:
    """For how long each thread of a process has had work and no CPU since it began (proc(5), schedstat)."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):  # a thread that has just ended, as those of name lookups do
            waited = (task / "schedstat").read_text(encoding="ascii").split()[1]
            found[task.name] = int(waited) / 1e9
    return found


def _span(seconds: Sequence[float | None]) -> str:
    known = [one for one in seconds if one is not None]
    return f"{median_high(known):.1f} / {max(known):.1f}" if known else "never"
