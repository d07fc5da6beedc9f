"""How long a page, a window and advice take in the core: `python -m bench.derive [--json]`.

The page has the shape of a vLLM server with one rank and speculation; 35 % of its numbers change from page to
page. Advice is timed in CPU seconds on simulated replicas under load, once their evidence is full.
"""

from __future__ import annotations

import sys
from random import Random
from statistics import fmean, median
from time import perf_counter, process_time

from bench.figures import tell
from enginetop.fleet.derive import rank_signals, signals
from enginetop.fleet.facts import merge_facts
from enginetop.fleet.history import TargetHistory
from enginetop.fleet.reading import Columns, Part, Reading, Series
from enginetop.simulator.builtin import scenario_named
from enginetop.simulator.stepped import SteppedWorld
from tuners.advice import Advisor

_EPOCH = 1_764_446_400.0
_ADVISED = ("steady", "kv-pressure")
"""A fleet with nothing to tune, and one where rules have much to say."""
_BUCKETS = {
    "ttft_seconds": 22,
    "tpot_seconds": 19,
    "itl_seconds": 19,
    "e2e_seconds": 20,
    "queue_seconds": 20,
    "prompt_tokens": 18,
    "output_tokens": 18,
    "iteration_tokens": 13,
}
_COUNTERS = (
    "preemptions",
    "prompt_tokens_processed",
    "generation_tokens",
    *["requests_finished"] * 5,
    "requests_aborted",
    "requests_errored",
    "prefix_queries",
    "prefix_hits",
    "external_prefix_queries",
    "external_prefix_hits",
    "spec_drafts",
    "spec_draft_tokens",
    "spec_accepted_tokens",
    *["spec_accepted_at_position"] * 4,
)
_GAUGES = ("requests_running", "requests_waiting", "kv_usage_ratio", "kv_capacity_tokens")


def vllm_columns() -> Columns:
    """Columns like those of a vLLM page with one rank and four draft positions."""
    rank = "0"
    series = [Series(measure, rank, f"{measure}{i}") for i, measure in enumerate(_GAUGES)]
    positions = iter(range(4))
    for i, measure in enumerate(_COUNTERS):
        position = next(positions) if measure == "spec_accepted_at_position" else -1
        series.append(Series(measure, rank, f"{measure}{i}", position=position))
    for measure, count in _BUCKETS.items():
        bounds = [0.01 * 1.5**i for i in range(count)] + [float("inf")]
        series += [Series(measure, rank, f"{measure}_bucket{le}", Part.BUCKET, le) for le in bounds]
        series += [Series(measure, rank, f"{measure}_{part}", part) for part in (Part.SUM, Part.COUNT)]
    births = tuple((i,) for i in range(4, 4 + len(_COUNTERS)))
    return Columns(tuple(series), ranks={rank: {"engine": rank}}, birth_groups=births)


def pages(columns: Columns, count: int, seed: int = 1) -> list[Reading]:
    """Pages 2 s apart; each gauge and a third of the counting series move."""
    random = Random(seed)
    values = [100.0] * len(columns.series)
    births = [1.0] * len(columns.birth_groups)
    readings = []
    for i in range(count):
        values = [value + random.randrange(1, 50) * (random.random() < 0.35) for value in values]
        readings.append(Reading(2.0 * i, columns, values, list(births), start_token=1.0))
    return readings


def advice_microseconds(scenario: str, replicas: int = 20, ticks: int = 150) -> float:
    """CPU time of advice a replica and tick, pools included: the mean of the last third of the ticks, since
    rules of calm replicas are not asked at each.
    """
    world = SteppedWorld(scenario_named(scenario), replicas, 1, tick_seconds=2.0, epoch=_EPOCH)
    advise, spent = Advisor(), []
    for _ in range(ticks):
        world.advance()
        snapshot = world.snapshot()
        start = process_time()
        advise(snapshot)
        spent.append(process_time() - start)
    return fmean(spent[-ticks // 3 :]) / replicas * 1e6


def measure(count: int = 400) -> dict[str, float]:
    """Medians over `count` pages; one merge of a fleet of 1000."""
    columns = vllm_columns()
    history = TargetHistory(keep_seconds=60.0)
    appending, windowing, deriving = [], [], []
    for reading in pages(columns, count):
        start = perf_counter()
        history.append(reading)
        appended = perf_counter()
        window = history.window(60.0, reading.at)
        windowed = perf_counter()
        if window is not None:
            rank_signals(window, signals(window))
        derived = perf_counter()
        appending.append(appended - start)
        windowing.append(windowed - appended)
        deriving.append(derived - windowed)
    windows = [window] * 1000 if window is not None else []
    start = perf_counter()
    merge_facts(windows)
    merging = perf_counter() - start
    return {
        "series": len(columns.series),
        "append_microseconds": round(median(appending) * 1e6, 1),
        "window_microseconds": round(median(windowing) * 1e6, 1),
        "signals_microseconds": round(median(deriving) * 1e6, 1),
        "merge_1000_replicas_milliseconds": round(merging * 1e3, 1),
        **{f"advice_{name}_microseconds": round(advice_microseconds(name), 1) for name in _ADVISED},
    }


if __name__ == "__main__":
    tell(measure(), as_json="--json" in sys.argv[1:])
