"""How fast a metrics page is parsed, against prometheus_client, in one run: `python -m bench.parse [--json]`.

The page is a capture of a loaded vLLM server. Every timed call does all that a scrape needs after the bytes
have arrived: decode, split, names, labels, values. The next pages are made before anything is timed. In each
round every way parses a run of pages, as a collector does between two waits, so that a busy machine is busy
for all of them; a page is copied just before its call, as the network would. CPU time, medians of calls.

The `cold_` figures are of the same code when the ways take turns page by page, so that each finds the
processor's caches full of another's data: the other end of what a collector meets. They are lower; read both.
"""

from __future__ import annotations

import argparse
import gc
import random
import statistics
import time
import tracemalloc
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from bench.figures import tell
from collectors.exposition import PageParser
from collectors.layout import LayoutCache

CAPTURE: Final = Path(__file__).parents[1] / "tests/fixtures/vllm/0.32.0/vllm-0.32.0-loaded.prom"
CHANGED_SHARE: Final = 0.35
ROUNDS: Final = 12
PAGES_PER_ROUND: Final = 8
MEMORY_TARGETS: Final = 20
MEMORY_PAGES: Final = 5


NextPage = Callable[[bytes, float, random.Random], bytes]


def next_page(body: bytes, share: float, chance: random.Random) -> bytes:
    """The page with that share of its values grown, spread evenly over its lines."""
    lines = body.split(b"\n")
    samples = [place for place, line in enumerate(lines) if line and not line.startswith(b"#")]
    for place in chance.sample(samples, round(share * len(samples))):
        series, _, value = lines[place].rpartition(b" ")
        lines[place] = b"%s %s" % (series, repr(float(value) + chance.randint(1, 50)).encode())
    return b"\n".join(lines)


def next_page_by_family(body: bytes, share: float, chance: random.Random) -> bytes:
    """The page with all values of that share of its families grown, of the same ones at each page.

    A busy engine counts in the same histograms again, and in most buckets of each.
    """
    families = body.split(b"\n# HELP ")
    for place in random.Random(0).sample(range(len(families)), round(share * len(families))):
        comment, _, rest = families[place].partition(b"\n")
        families[place] = comment + b"\n" + next_page(rest, 1.0, chance)
    return b"\n# HELP ".join(families)


def chain(
    body: bytes, share: float, length: int, chance: random.Random, following: NextPage = next_page
) -> list[bytes]:
    """Pages of one target, each the next of the one before; `body` is not among them."""
    pages = []
    for _ in range(length):
        body = following(body, share, chance)
        pages.append(body)
    return pages


def parse_as_the_reference(body: bytes) -> int:
    """What a scraper that uses prometheus_client does; the number of samples."""
    return sum(len(family.samples) for family in text_string_to_metric_families(body.decode("utf-8")))


def cpu_milliseconds(work: Callable[[bytes], object], page: bytes) -> float:
    """CPU time of one call on a copy of the page; the result is thrown away within it."""
    body = bytes(bytearray(page))
    started = time.process_time_ns()
    work(body)
    return (time.process_time_ns() - started) / 1e6


def measure_times(body: bytes, rounds: int, pages_per_round: int) -> dict[str, float]:
    """Median milliseconds of each way, by its name; each parses so many pages before the next one's turn."""
    chance = random.Random(35)  # the same pages in every run
    some = chain(body, CHANGED_SHARE, rounds * pages_per_round, chance)
    families = chain(body, CHANGED_SHARE, rounds * pages_per_round, chance, next_page_by_family)
    every = chain(body, 1.0, rounds * pages_per_round, chance)
    known = LayoutCache()
    one, other, third = PageParser(known), PageParser(known), PageParser(known)
    for parser in (one, other, third):
        parser.parse(body)
    ways: dict[str, tuple[Callable[[bytes], object], Sequence[bytes]]] = {
        "reference": (parse_as_the_reference, some),
        "first_sight": (lambda page: PageParser(LayoutCache()).parse(page), some),
        "steady": (third.parse, families),
        "steady_spread": (one.parse, some),
        "steady_all_changed": (other.parse, every),
        "second_target": (lambda page: PageParser(known).parse(page), every),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for name in ("reference", "first_sight"):
        ways[name][0](body)  # imports and code caches, outside the figures
    gc.collect()
    for turn in range(rounds):
        turns = range(turn * pages_per_round, (turn + 1) * pages_per_round)
        for name, (work, pages) in ways.items():
            times[name] += [cpu_milliseconds(work, pages[place]) for place in turns]
    return {name: statistics.median(series) for name, series in times.items()}


def measure_memory(body: bytes) -> dict[str, float]:
    """KiB that stay allocated: for a layout once, then for each target that has scraped a few pages."""
    chance = random.Random(36)
    pages = [chain(body, CHANGED_SHARE, MEMORY_PAGES, chance) for _ in range(MEMORY_TARGETS)]
    layouts = LayoutCache()
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        parsers = [PageParser(layouts)]
        parsers[0].parse(body)
        gc.collect()
        with_layout, _ = tracemalloc.get_traced_memory()
        for own_pages in pages:
            parser = PageParser(layouts)
            for page in own_pages:
                parser.parse(page)
            parsers.append(parser)
        gc.collect()
        with_targets, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return {
        "layout_kib": (with_layout - before) / 1024,
        "target_kib": (with_targets - with_layout) / 1024 / MEMORY_TARGETS,
    }


def measure(rounds: int = ROUNDS) -> dict[str, float | int | str]:
    """All figures, with units in their names; ratios say how many times faster than prometheus_client."""
    body = CAPTURE.read_bytes()
    times = measure_times(body, rounds, PAGES_PER_ROUND)
    reference = times.pop("reference")
    cold = measure_times(body, rounds * PAGES_PER_ROUND, 1)
    cold_reference = cold.pop("reference")
    return {
        **{f"{name}_ratio": round(reference / spent, 2) for name, spent in times.items()},
        **{f"cold_{name}_ratio": round(cold_reference / spent, 2) for name, spent in cold.items()},
        "reference_milliseconds": round(reference, 4),
        **{f"{name}_milliseconds": round(spent, 4) for name, spent in times.items()},
        **{f"cold_{name}_milliseconds": round(spent, 4) for name, spent in cold.items()},
        **{name: round(size, 1) for name, size in measure_memory(body).items()},
        "samples": parse_as_the_reference(body),
        "body_kib": round(len(body) / 1024, 1),
        "changed_share": CHANGED_SHARE,
        "rounds": rounds,
        "prometheus_client": version("prometheus_client"),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the figures as a table, with `--json` as one JSON object on the last line."""
    parser = argparse.ArgumentParser(prog="python -m bench.parse", description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"default {ROUNDS}")
    options = parser.parse_args(arguments)
    figures = measure(options.rounds)
    tell(figures, as_json=options.json)


if __name__ == "__main__":
    main()
