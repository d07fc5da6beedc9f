"""What plots over time are fed with."""

from __future__ import annotations

import pytest

from enginetop.fleet.derive import no_signals, signals
from enginetop.fleet.history import TargetHistory
from enginetop.fleet.trends import TREND_NAMES, Trends
from tests.support.history_pages import INF, Told, columns, histogram, value

SHAPE = columns(
    value("kv_usage_ratio"),
    value("generation_tokens"),
    value("preemptions"),
    *histogram("ttft_seconds", (1.0, INF)),
)


def draw(history: TargetHistory, at: float) -> None:
    window = history.window(600)
    assert window is not None
    history.add_trend_point(at, signals(window))


def drawn(history: TargetHistory, name: str) -> list[float | None]:
    return list(history.trends.values[name])


def test_rates_are_those_since_the_page_of_the_previous_point() -> None:
    told = Told(SHAPE)
    for at, tokens in ((0, 0), (2, 200), (4, 200), (6, 260)):
        told.page(at, 0.5, tokens, 0, 0, 0, 0, 0)
        draw(told.history, at + 0.5)
    assert list(told.history.trends.times) == [0.5, 2.5, 4.5, 6.5]
    assert drawn(told.history, "generation_tokens_per_second") == [None, 100, 0, 30]
    assert drawn(told.history, "kv_usage_ratio") == [0.5] * 4


def test_two_pages_between_points_count_both_and_none_keeps_the_rate() -> None:
    told = Told(SHAPE)
    told.page(0, 0.5, 0, 0, 0, 0, 0, 0)
    draw(told.history, 0)
    told.page(2, 0.5, 100, 0, 0, 0, 0, 0)
    told.page(4, 0.5, 400, 2, 0, 0, 0, 0)
    draw(told.history, 4)
    draw(told.history, 6)
    assert drawn(told.history, "generation_tokens_per_second") == [None, 100, 100]
    assert drawn(told.history, "preemptions_per_second") == [None, 0.5, 0.5]


def test_quantiles_are_those_of_the_window_and_censored_ones_are_holes() -> None:
    told = Told(SHAPE)
    told.page(0, 0.5, 0, 0, 0, 0, 0, 0)
    told.page(2, 0.5, 0, 0, 10, 10, 5.0, 10)
    draw(told.history, 2)
    told.page(4, 0.5, 0, 0, 10, 20, 50.0, 20)
    draw(told.history, 4)
    first, second = drawn(told.history, "ttft_seconds.p95")
    assert first == pytest.approx(0.95)
    assert second is None


def test_a_target_that_is_away_leaves_holes() -> None:
    told = Told(SHAPE)
    told.page(0, 0.5, 0, 0, 0, 0, 0, 0)
    told.page(2, 0.5, 100, 0, 0, 0, 0, 0)
    draw(told.history, 2)
    told.history.add_trend_point(4, no_signals())
    draw(told.history, 6)
    assert drawn(told.history, "generation_tokens_per_second") == [50, None, 50]
    assert drawn(told.history, "kv_usage_ratio") == [0.5, None, 0.5]


def test_only_the_newest_points_are_kept() -> None:
    trends = Trends(points=3)
    for at in range(5):
        trends.add(at, {"kv_usage_ratio": at / 10})
    assert list(trends.times) == [2, 3, 4]
    assert trends.values["kv_usage_ratio"] == (0.2, 0.3, 0.4)
    assert trends.values["requests_running"] == (None, None, None)
    assert tuple(trends.values) == TREND_NAMES
