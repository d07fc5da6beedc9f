"""The figures that are aimed at, and those of others in the same run, out of what the benches found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bench.screen import BUDGETS

Figures = Mapping[str, object]
"""What one bench found of one fleet: a JSON object of its output."""

Found = Mapping[str, Sequence[Figures]]
"""The figures of every bench, by its title."""

OURS = "enginetop"


@dataclass(frozen=True, slots=True)
class Aim:
    """One figure: `key` of the bench `title`, for a fleet of `replicas` where that tells several.

    `limit`: what it may be at most, or at least where `at_least`; None: it is told only.
    """

    what: str
    title: str
    key: str
    replicas: int | None = None
    limit: float | None = None
    at_least: bool = False

    def figure(self, found: Found) -> float | None:
        """The figure; None where the bench did not tell it."""
        for figures in found.get(self.title, ()):
            value = figures.get(self.key)
            if figures.get("replicas", self.replicas) == self.replicas and isinstance(value, int | float):
                return value
        return None

    def kept(self, figure: float) -> bool | None:
        """Whether the figure is within its limit; None where it has none."""
        if self.limit is None:
            return None
        return figure >= self.limit if self.at_least else figure <= self.limit


AIMS = (
    Aim("--help, CPU s", "startup", "help_cpu_seconds", limit=0.1),
    Aim("snapshot of one replica, CPU s", "startup", "headless_cpu_seconds", limit=0.5),
    Aim("first picture, one replica, CPU s", "startup", "first_paint_of_1_cpu_seconds", limit=0.7),
    Aim("1000 replicas at 1 Hz, share of the scrapes", "scale", "achieved_ratio", 1000, 0.99, True),
    Aim("1000 replicas at 1 Hz, cores", "scale", "cores", 1000, 0.6),
    Aim("1000 replicas at 1 Hz, MB", "scale", "rss_mb", 1000, 400.0),
    Aim("1000 replicas over https, share of the scrapes", "scale https", "achieved_ratio", 1000, 0.99, True),
    Aim("1000 replicas over https, cores", "scale https", "cores", 1000, 1.2),
    Aim("200 replicas at 1 Hz, cores", "scale", "cores", 200),
    Aim("200 replicas at 1 Hz, MB", "scale", "rss_mb", 200, 120.0),
    Aim("200 replicas with full histories, headless, MB", "memory", "full_rss_mb", 200),
    Aim("8 idle replicas, cores", "scale idle", "cores", 8, 0.02),
    Aim("the same work after a rest of 0.5 s, times as dear here", "rested", "rested_work_ratio"),
    Aim(
        "a paint of 1000 rows, CPU ms",
        "screen",
        "paint_1000_rows_cpu_ms_min",
        limit=BUDGETS["paint_1000_rows_cpu_ms_min"],
    ),
    Aim("a key to its paint, p99 ms", "screen", "key_to_paint_ms_p99", limit=BUDGETS["key_to_paint_ms_p99"]),
)

_TIMES_FASTER = (
    ("a page seen first, prometheus_client takes", "parse", "first_sight_ratio"),
    ("the next page of a target, prometheus_client takes", "parse", "steady_ratio"),
    ("a GET of a page, httpx takes", "fetch", "ratio_to_httpx_per_target"),
)


def summary(found: Found) -> str:
    """One table: ours beside what is aimed at, then ours beside others."""
    lines = [f"{'figure':56}{'ours':>10}{'aim':>12}"]
    for aim in AIMS:
        figure = aim.figure(found)
        if figure is not None:
            word = "" if aim.limit is None else f"{'>=' if aim.at_least else '<='} {aim.limit:g}"
            missed = "  missed" if aim.kept(figure) is False else ""
            lines.append(f"{aim.what:56}{figure:10.4g}{word:>12}{missed}")
    lines += ["", f"{'beside others':56}{'ours':>10}{'theirs':>12}{'ratio':>10}"]
    for what, title, key in _TIMES_FASTER:
        ratio = Aim(what, title, key).figure(found)
        if ratio is not None:
            lines.append(f"{what:56}{1:10}{ratio:11.3g}x{ratio:10.3g}")
    lines += _peers(found.get("peers", ()))
    return "\n".join(lines)


def _peers(fleets: Sequence[Figures]) -> Iterator[str]:
    for figures in fleets:
        ours = _milliseconds(figures.get(OURS))
        for name, row in figures.items():
            theirs = _milliseconds(row)
            if ours and theirs is not None and name != OURS:
                what = f"{figures['replicas']} replicas, CPU ms a scrape, {name}"
                yield f"{what:56}{ours:10.3g}{theirs:12.3g}{theirs / ours:10.3g}"


def _milliseconds(row: object) -> float | None:
    value = row.get("cpu_ms_per_scrape") if isinstance(row, Mapping) else None
    return value if isinstance(value, float | int) else None
