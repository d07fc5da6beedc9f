"""What plots over time are fed with."""

from __future__ import annotations

import gc
import sys
from array import array
from dataclasses import replace
from itertools import product
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enginetop.fleet import figure_block
from enginetop.fleet.derive import no_signals, signals
from enginetop.fleet.figure_ring import FigureRing
from enginetop.fleet.history import TargetHistory
from enginetop.fleet.model import Quality
from enginetop.fleet.snapshot import Goodput, Span
from enginetop.fleet.trends import TREND_NAMES, Trends, trend_bytes, trend_values
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


def test_a_page_of_the_same_instant_that_counted_is_a_new_one() -> None:
    """By hand: 200 tokens in 2 s; then the page of that instant is replaced by one with 300, in 2 s too."""
    told = Told(SHAPE)
    for at, tokens in ((0, 0), (2, 200), (2, 300)):
        told.page(at, 0.5, tokens, 0, 0, 0, 0, 0)
        draw(told.history, at)
    assert drawn(told.history, "generation_tokens_per_second") == [None, 150.0]


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
    trends = Trends(interval_seconds=300.0)
    for at in range(0, 2400, 300):
        trends.add(at, {"kv_usage_ratio": at / 4800})
    assert list(trends.times) == [1200, 1500, 1800, 2100]
    assert list(trends.values["kv_usage_ratio"]) == [0.25, 0.3125, 0.375, 0.4375]
    assert list(trends.values["requests_running"]) == [None] * 4
    assert tuple(trends.values) == TREND_NAMES


def test_fifteen_minutes_are_kept_at_the_interval_whatever_it_is() -> None:
    for interval in (0.5, 2.0, 15.0):
        trends = Trends(interval)
        for tick in range(int(2000 / interval)):
            trends.add(tick * interval, {"requests_running": tick})
        assert len(trends.times) == 900 / interval + 1
        assert trends.times[-1] - trends.times[0] == 900
        assert trends.values["requests_running"][-1] == int(2000 / interval) - 1


def test_points_closer_than_the_interval_cover_no_less_time() -> None:
    trends = Trends(2.0)
    for tick in range(8000):
        trends.add(tick / 4, {})
    times = list(trends.times)
    assert times[-1] == 7999 / 4
    assert times[-1] - times[0] > 890
    assert len(times) <= 451


def test_pages_a_little_too_early_cost_no_more_memory() -> None:
    trends = Trends(2.0)
    for tick in range(1000):
        trends.add(1.9 * tick, {})
    assert len(trends.times) == 451  # the newest: 450 x 1.9 s
    assert trends.times[-1] - trends.times[0] == pytest.approx(855.0)


def test_what_was_given_away_does_not_change() -> None:
    trends = Trends(300.0)
    for at in (0, 300, 600):
        trends.add(at, {"requests_running": at})
    times, running = trends.times, trends.values["requests_running"]
    for at in range(900, 9000, 300):
        trends.add(at, {"requests_running": at})
    trends.add(100, {"requests_running": 1})
    assert (list(times), list(running)) == ([0, 300, 600], [0, 300, 600])
    assert list(trends.times) == [100]


def test_figures_that_are_not_finite_are_not_known() -> None:
    trends = Trends()
    trends.add(0, {"requests_running": INF, "kv_usage_ratio": 1e300, "requests_waiting": float("nan")})
    for name in ("requests_running", "kv_usage_ratio", "requests_waiting"):
        assert list(trends.values[name]) == [None]


def test_goodput_is_the_counted_one_else_the_estimate() -> None:
    shown = no_signals()
    counted = Goodput(4.0, 3.0, 0.75, quality=Quality.OK, joint=Span(0.5, 0.9, 0.6))
    estimated = Goodput(
        4.0, quality=Quality.ESTIMATED, joint=Span(0.5, 0.9, 0.6), within_per_second=Span(2, 3.6, 2.4)
    )
    old = replace(estimated, quality=Quality.STALE)
    found = [trend_values(shown, {}, goodput) for goodput in (counted, estimated, old)]
    assert [one["goodput.attainment"] for one in found] == [0.75, 0.6, None]
    assert [one["goodput.good_per_second"] for one in found] == [3.0, 2.4, None]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 5000), st.none() | st.integers(0, 1000)), max_size=60),
    st.sampled_from([20.0, 300.0]),
)
def test_points_are_in_order_and_sliced_like_a_list(
    told: list[tuple[float, int | None]], interval: float
) -> None:
    trends = Trends(interval)
    for at, number in told:
        trends.add(at, {"requests_running": number})
        times, values = trends.times, trends.values["requests_running"]
        assert (times[-1], values[-1]) == (at, number)
        assert len(times) == len(values) <= 900 / interval + 1
        assert list(times) == sorted(set(times))
        assert times[0] >= at - 900
        for part in (slice(None), slice(-3, None, 2), slice(None, None, -1), slice(1, -1), slice(50, 2)):
            assert list(values[part]) == list(values)[part]
            assert list(times[part]) == list(times)[part]
    with pytest.raises(IndexError):
        trends.times[len(trends.times)]


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 150), st.sampled_from([1.0, 1.0, 1.0, 0.25, 3.0, 70.0, -2.5, -90.0])),
        max_size=8,
    )
)
def test_blocks_are_read_like_one_list(runs: list[tuple[int, float]]) -> None:
    """Against a list that is told the rules: points that are too old, too close or too many go."""
    ring, listed = FigureRing(("moves", "stands", "never"), 1.0, 200.0), list[tuple[float, float | None]]()
    at, given_at, given = 1e6, list[tuple[float, float | None]](), (ring.times, ring.values)
    for repeats, step in runs:
        for number in range(repeats):
            at += step
            value = None if number % 7 == 3 else float(number)
            ring.add(at, {"moves": value, "stands": 2.0})
            while listed and (
                listed[-1][0] >= at or (len(listed) > 1 and listed[-1][0] - listed[-2][0] < 0.9)
            ):
                listed.pop()
            listed = [*(one for one in listed if one[0] >= at - 200.0), (at, value)][-201:]
        assert list(ring.times) == [time for time, _ in listed]
        assert list(ring.values["moves"]) == [value for _, value in listed]
        assert set(ring.values["stands"]) <= {2.0}
        assert set(ring.values["never"]) <= {None}
        times, values = given
        assert list(zip(times, values["moves"], strict=True)) == given_at
        given_at, given = list(listed), (ring.times, ring.values)
        middle = slice(len(listed) // 3, -len(listed) // 4, 2)
        assert list(ring.times[middle]) == [time for time, _ in listed[middle]]
        assert list(ring.values["moves"][middle]) == [value for _, value in listed[middle]]
        assert [ring.times[place] for place in range(len(listed))] == [time for time, _ in listed]


def test_memory_is_what_is_said() -> None:
    """Numbers that no packing makes less, at their fullest, counted by the interpreter."""
    trends, random = Trends(2.0), Random(1)
    sizes = []
    for tick in range(2000):
        trends.add(2.0 * tick, {name: random.random() for name in TREND_NAMES})
        sizes.append(bytes_of_arrays(trends))
    assert 0.85 * trend_bytes(2.0) < max(sizes[1000:]) <= trend_bytes(2.0)


def test_what_no_row_reads_any_more_is_packed_and_the_same() -> None:
    """By hand: of 901 points the newest four full blocks and the one that grows lie open, at most 320 points
    of 8 + 14 x 4 bytes. Requests, tokens and ratios of few different values pack to half at least.
    """
    trends, random, told = Trends(1.0), Random(1), []
    for tick in range(1500):
        told.append([random.randrange(300) / 8 for _ in TREND_NAMES])
        trends.add(float(tick), dict(zip(TREND_NAMES, told[-1], strict=True)))
    assert bytes_of_arrays(trends) < 331 * (8 + 56) + 10 * 64 * (8 + 56 * 0.5) + 15 * 300
    figure_block._unpacked.cache_clear()
    for place, name in enumerate(TREND_NAMES):
        assert list(trends.values[name][-256:]) == [row[place] for row in told[-256:]]
    assert figure_block._unpacked.cache_info().misses == 0
    for place, name in enumerate(TREND_NAMES):
        assert list(trends.values[name]) == [row[place] for row in told[-901:]]
    assert 10 <= figure_block._unpacked.cache_info().misses <= 11  # each block once, not for each name


def test_every_fourth_of_the_newest_points_opens_nothing_that_is_packed() -> None:
    """As the scale of all rows is looked for, of each replica of a fleet."""
    trends, random = Trends(1.0), Random(2)
    for tick in range(900):
        trends.add(float(tick), {name: float(random.randrange(9)) for name in TREND_NAMES})
    values = trends.values["generation_tokens_per_second"]
    figure_block._unpacked.cache_clear()
    newest = values[-120::4]
    assert figure_block._unpacked.cache_info().misses == 0
    assert list(newest) == list(values)[-120::4]


def test_parts_of_a_trend_are_those_of_a_list() -> None:
    trends, listed = Trends(1.0), [float(tick) for tick in range(140)]
    for at in listed:
        trends.add(at, {})
    starts, stops = (None, 0, 5, 70, 150, -3, -70, -500), (None, 0, 64, 130, -1, -66, 500)
    for part in map(slice, *zip(*product(starts, stops, (None, 1, 2, 7, 200, -1, -7)), strict=True)):
        assert list(trends.times[part]) == listed[part], part


def test_a_clock_that_is_set_back_into_what_is_packed_goes_on_from_there() -> None:
    trends = Trends(1.0)
    for tick in range(900):
        trends.add(float(tick), {"requests_running": float(tick % 7)})
    trends.add(100.0, {"requests_running": 9.0})
    assert list(trends.times) == [float(tick) for tick in range(101)]
    assert list(trends.values["requests_running"]) == [*(float(tick % 7) for tick in range(100)), 9.0]


def test_figures_that_stand_still_take_next_to_nothing() -> None:
    """By hand: of 451 points with one figure of 14 that moves 64 at a time are put away as 64 x (8 + 4) bytes
    and 13 numbers; only the newest block has all of its rows.
    """
    trends = Trends(2.0)
    still = dict.fromkeys(TREND_NAMES[:5], 0.5)  # all others are not known
    for tick in range(2000):
        trends.add(2.0 * tick, {**still, "generation_tokens_per_second": float(tick)})
    assert bytes_of_arrays(trends) < 8 * (64 * 12 + 13 * 4 + 160) + 75 * 64 + 160
    assert list(trends.values["kv_usage_ratio"]) == [0.5] * 451
    assert list(trends.values["requests_finished_per_second"]) == [None] * 451
    assert list(trends.values["generation_tokens_per_second"]) == list(range(1549, 2000))


def test_pictures_of_the_past_hold_no_second_copy() -> None:
    trends, given = Trends(2.0), []
    for tick in range(300):
        trends.add(2.0 * tick, dict.fromkeys(TREND_NAMES, float(tick)))
        given.append((trends.times, trends.values))
    assert bytes_of_arrays(trends, given) == bytes_of_arrays(trends)
    for tick, (times, values) in enumerate(given):
        assert list(times) == [2.0 * earlier for earlier in range(tick + 1)]
        assert list(values["requests_running"]) == list(range(tick + 1))


def bytes_of_arrays(*roots: object) -> int:
    """Of all arrays that the objects hold, and of what is packed of them, each counted once."""
    seen: dict[int, object] = {}
    stack = list(roots)
    while stack:
        one = stack.pop()
        if id(one) not in seen and not isinstance(one, type):
            seen[id(one)] = one
            stack += gc.get_referents(one)
    return sum(sys.getsizeof(one) for one in seen.values() if isinstance(one, array | bytes))
