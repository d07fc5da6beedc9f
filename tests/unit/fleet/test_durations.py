"""Durations with units, and latencies that look like milliseconds taken for seconds."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enginetop.fleet.durations import countdown, doubt_of, duration_seconds, plain_seconds

NO_DURATION = (
    *("", "0s", "0ms", "h", "2", "-2h", "1e3s", "２h", "2 h", "367d", "9" * 99 + "s", "1.s", ".5s", "5 ms"),
    *("5us", "5S", "nan", "infs", "1h30m", "2h\n"),
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("45s", 45.0),
        ("30m", 1800.0),
        ("2h", 7200.0),
        ("2.5h", 9000.0),
        ("3d", 259200.0),
        ("300ms", 0.3),
        ("0.25s", 0.25),
        ("700ms", 0.7),
        *((text, None) for text in NO_DURATION),
    ],
)
def test_durations(text: str, seconds: float | None) -> None:
    assert duration_seconds(text) == seconds


@given(st.integers(1, 99_999_999))
@settings(max_examples=50, deadline=None)
def test_milliseconds_are_the_number_that_somebody_would_have_typed(number: int) -> None:
    # an objective at the very edge of a bucket has to meet it
    assert duration_seconds(f"{number}ms") == float(f"{number // 1000}.{number % 1000:03d}")


@pytest.mark.parametrize(("text", "seconds"), [("0.3", 0.3), ("90", 90.0), ("90s", 90.0), ("1e-1", 0.1)])
def test_a_plain_number_is_seconds(text: str, seconds: float) -> None:
    assert plain_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "-1", "nan", "inf", "soon", "300 ms", "1e999"])
def test_what_is_no_time(text: str) -> None:
    assert plain_seconds(text) is None


@pytest.mark.parametrize(
    ("key", "told", "doubted"),
    [
        *(("ttft", told, False) for told in (0.3, 60, 60.0, "60", "300ms", "300s", "5m")),
        *(("ttft", told, True) for told in (61, 300, 300.0, "300", "3e2")),
        *(("tpot", told, False) for told in (0.05, 5, "5", "50ms", "50s")),
        *(("tpot", told, True) for told in (5.1, 50, "50")),
    ],
)
def test_a_number_that_is_meant_otherwise(key: str, told: str | float, doubted: bool) -> None:
    assert bool(doubt_of(key, told)) is doubted


def test_a_doubt_says_what_was_understood_and_both_ways_out() -> None:
    assert doubt_of("tpot", 50) == ("50 means 50 seconds; write 50ms for milliseconds, or 50s if meant")


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        *((-3.0, "0s"), (0.2, "1s"), (59.0, "59s"), (60.0, "1m00s"), (159.4, "2m40s"), (3599.5, "1h00m")),
        *(
            (3900.0, "1h05m"),
            (3959.0, "1h05m"),
            (172_799.0, "47h59m"),
            (172_800.0, "2d00h"),
            (612_000.0, "7d02h"),
        ),
    ],
)
def test_countdown(seconds: float, said: str) -> None:
    assert countdown(seconds) == said
