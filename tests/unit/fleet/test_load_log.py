"""One point a window of what was achieved at which load."""

from __future__ import annotations

import pytest

from enginetop.fleet.derive import no_signals
from enginetop.fleet.facts import WindowFacts, merge_parts
from enginetop.fleet.load_log import LOAD_NAMES, LoadLog
from enginetop.fleet.model import Quality, Target
from enginetop.fleet.reading import ConfigValue
from enginetop.fleet.replica import ReplicaTracker
from enginetop.fleet.snapshot import Distribution, Goodput, Quantile, Scalar, Signals, Slo, Span
from tests.support.looks import VLLM, page

COUNTED = Goodput(4.0, 3.0, 0.75, quality=Quality.OK)


def window(now: float, seconds: float = 60.0) -> WindowFacts:
    return WindowFacts(now - seconds, now, merge_parts(()), ())


def signals(running: float | None, ttft: Quantile | None = None) -> Signals:
    quality = Quality.OK if running is not None else Quality.UNKNOWN
    shown = {**no_signals(), "requests_running": Scalar(running, "requests", quality)}
    if ttft is not None:
        shown["ttft_seconds"] = Distribution(10.0, None, Quantile(), {"p99": ttft}, "seconds", Quality.OK)
    return shown


def points(log: LoadLog) -> list[tuple[float | None, ...]]:
    return list(zip(*(log.points[name] for name in LOAD_NAMES), strict=True))


def test_the_mean_load_of_a_window_and_what_it_ended_with() -> None:
    log = LoadLog(60.0)
    for at in range(0, 61, 15):  # five looks: the load of a minute is that of its begin, middle and end
        log.take(float(at), signals(at / 15, Quantile(0.5, 0.25, 1.0)), window(at), COUNTED)
    assert points(log) == [(2.0, 3.0, 0.75, 0.5, 0.0)]
    for at in range(75, 121, 15):
        log.take(
            float(at),
            signals(8.0),
            window(at),
            Goodput(
                2.0, within_per_second=Span(1, 2, 1.5), joint=Span(0.5, 1, 0.75), quality=Quality.ESTIMATED
            ),
        )
    assert points(log)[1:] == [(8.0, 1.5, 0.75, None, 1.0)]


def test_of_a_percentile_past_the_last_bucket_its_bound_is_kept() -> None:
    log = LoadLog(60.0)
    for at in (0.0, 60.0):
        log.take(at, signals(1.0, Quantile(None, 8.0, None, censored=True)), window(at), COUNTED)
    assert points(log) == [(1.0, 3.0, 0.75, 8.0, 0.0)]


@pytest.mark.parametrize(
    ("facts_seconds", "running", "goodput"),
    [
        (30.0, 4.0, COUNTED),  # half a window
        (60.0, None, COUNTED),
        (60.0, 4.0, Goodput(4.0)),
        (60.0, 4.0, Goodput(4.0, 3.0, 0.75, quality=Quality.STALE)),
        (60.0, 4.0, Goodput(4.0, quality=Quality.ESTIMATED)),
    ],
)
def test_what_is_not_known_is_no_point(facts_seconds: float, running: float | None, goodput: Goodput) -> None:
    log = LoadLog(60.0)
    for at in (0.0, 30.0, 60.0):
        log.take(at, signals(running), window(at, facts_seconds), goodput)
    assert points(log) == []


def test_a_window_that_was_cut_short_is_given_up() -> None:
    log = LoadLog(60.0)
    log.take(0.0, signals(100.0), window(0.0), COUNTED)
    log.away()
    for at in (50.0, 110.0):
        log.take(at, signals(4.0), window(at), COUNTED)
    assert points(log) == [(4.0, 3.0, 0.75, None, 0.0)]


def test_a_clock_that_was_set_back_begins_a_window() -> None:
    log = LoadLog(60.0)
    for at in (1000.0, 500.0, 559.0):
        log.take(at, signals(4.0), window(at), COUNTED)
    assert points(log) == []
    log.take(560.0, signals(4.0), window(560.0), COUNTED)
    assert len(points(log)) == 1


def test_another_setting_or_version_is_another_curve() -> None:
    made = ReplicaTracker(
        Target("http://a", "a"), window_seconds=60.0, slo_for=lambda _: Slo(), fixed_spacing_seconds=15.0
    )

    def look(at: float, seats: int, version: str = "0.32.0") -> int:
        identity = VLLM if version == "0.32.0" else type(VLLM)(VLLM.engine, version, VLLM.model)
        config = {"max_num_seqs": ConfigValue(seats, "page")}
        made.observe(page(at, running=4, finished=at, config=config, identity=identity))
        return len(made.snapshot(at).load["running"])

    assert look(0.0, 256) == 0
    made._load._ring.add(1.0, {"running": 4.0})  # as after a window with a goodput
    assert look(15.0, 256) == 1
    assert look(30.0, 128) == 0
    made._load._ring.add(31.0, {"running": 4.0})
    assert look(45.0, 128, "0.33.0") == 0
