"""KV pressure by numbers worked out by hand."""

from __future__ import annotations

import math

import pytest

from tuners.kv_maths import fitting_sequences, preempted_ratio, resident_tokens
from tuners.trend import seconds_to_full, trend_of


def test_sequences_that_fit() -> None:
    assert fitting_sequences(190_640, 3000) == 57  # .9 x 190640 / 3000 = 57.19


def test_preempted_share() -> None:
    assert preempted_ratio(3, 200) == 0.015
    assert preempted_ratio(0, 0) == 0.0
    assert preempted_ratio(1, 0) == math.inf


def test_a_shorter_output_makes_room_for_more_requests() -> None:
    tokens = 11_915 * 16  # blocks of 16: 190640
    assert tokens / resident_tokens(1500, 800) == pytest.approx(100.3, abs=0.05)  # / 1900
    before, after = (tokens / resident_tokens(1500, output) for output in (4000, 2400))
    assert [before, after] == pytest.approx([54.5, 70.6], abs=0.05)
    assert after / before - 1 == pytest.approx(0.296, abs=5e-4)


def test_time_to_full() -> None:
    # .70 to .78 by .02 a minute: .22 / .02 = 11 minutes
    rising = [(60.0 * i, 0.70 + 0.02 * i) for i in range(5)]
    assert seconds_to_full(trend_of(rising)) == pytest.approx(660)
    assert seconds_to_full(trend_of([(t, 1.4 - v) for t, v in rising])) is None
    assert seconds_to_full(trend_of(rising[:4])) is None
    assert seconds_to_full(trend_of([(0.0, 0.5)] * 5)) is None


def test_a_gauge_without_direction_has_no_trend() -> None:
    # 1 9 2 8 1 9: slope 24.. over 30 explains 6 %
    assert trend_of([(10.0 * i, v) for i, v in enumerate((1, 9, 2, 8, 1, 9))]) is None
    flat = trend_of([(10.0 * i, 4.0) for i in range(6)])
    assert flat is not None
    assert (flat.now, flat.per_second) == (4.0, 0.0)
