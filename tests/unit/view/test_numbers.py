"""Numbers in few cells: nothing unknown reads as 0, nothing small reads as none."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from enginetop.fleet.model import Quality
from tests.tui.snapshots import censored, distribution, exact, scalar
from tui.view import numbers

COUNTS = [
    (0, "0"), (7, "7"), (9999, "9999"), (9999.6, "10.0k"), (12_345, "12.3k"), (99_960, "100k"),
    (104_000, "104k"), (1_234_567, "1.2M"), (0.4, "0"),
]  # fmt: skip
RATES = [
    (0, "0"), (0.004, "<.01"), (0.25, "0.25"), (2.1, "2.10"), (12.34, "12.3"), (99.96, "100"), (1812, "1812"),
]  # fmt: skip
PERCENTS = [(0, "0"), (0.004, "<1"), (0.64, "64"), (0.994, "99"), (0.996, "99"), (1, "100"), (1.2, "120")]
TARGETS = [(0.95, "95"), (0.999, "99.9"), (0.9999, "99.99"), (0.5, "50"), (1.0, "100")]
MILLISECONDS = [(0, "0"), (0.0004, "0.4"), (0.0381, "38"), (1.4, "1400"), (99.9, "99900"), (120, "120k")]
DURATIONS = [
    (0, "0 s"),
    (0.0042, "4.2 ms"),
    (0.061, "61 ms"),
    (0.31, "310 ms"),
    (1.42, "1.4 s"),
    (72.4, "72 s"),
    (19.9, "20 s"),
    (119.4, "119 s"),
    (119.7, "2 min"),
    (177, "3 min"),
    (162, "2.7 min"),
    (331, "5.5 min"),
    (596, "9.9 min"),
    (598, "10 min"),
    (780, "13 min"),
    (7169, "119 min"),
    (7199.9, "2 h"),
    (7200, "2 h"),
    (9000, "2.5 h"),
    (10_740, "3 h"),
    (35_800, "9.9 h"),
    (35_830, "10 h"),
    (84_600, "24 h"),
    (170_900, "47 h"),
    (171_100, "2 d"),
    (216_000, "2.5 d"),
    (1_080_000, "12 d"),
]
AGES = [(0, "0s"), (72.9, "72s"), (119, "119s"), (120, "2m"), (7199, "119m"), (7200, "2h"), (200_000, "2d")]


@pytest.mark.parametrize(
    ("write", "value", "text"),
    [
        (write, value, text)
        for write, table in (
            (numbers.count, COUNTS),
            (numbers.rate, RATES),
            (numbers.percent, PERCENTS),
            (numbers.target_percent, TARGETS),
            (numbers.milliseconds, MILLISECONDS),
            (numbers.seconds_text, DURATIONS),
            (numbers.age, AGES),
        )
        for value, text in table
    ],
)
def test_known_numbers(write: Callable[[float], str], value: float, text: str) -> None:
    assert write(value) == text


@pytest.mark.parametrize("write", [numbers.count, numbers.rate, numbers.percent, numbers.milliseconds])
@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf])
def test_what_is_no_number_reads_as_unknown(
    write: Callable[[float | None], str], value: float | None
) -> None:
    assert write(value) == "–"


def test_doubtful_values_carry_a_mark_and_unknown_ones_none() -> None:
    assert numbers.marked("12", Quality.ESTIMATED) == "12?"
    assert numbers.marked("12", Quality.SUSPECT) == "12?"
    assert numbers.marked("12", Quality.OK) == "12"
    assert numbers.marked("–", Quality.SUSPECT) == "–"


def test_a_censored_quantile_counts_as_its_lower_bound() -> None:
    assert numbers.quantile_number(censored(2.5)) == 2.5
    assert numbers.quantile_number(exact(1.0)) == 1.0
    assert numbers.quantile_number(numbers.quantile_of(scalar(1.0), "p95")) is None
    assert numbers.quantile_number(numbers.quantile_of(distribution(1.0, 2.0), "p95")) == 2.0


def test_a_list_or_a_nan_is_no_scalar_number() -> None:
    assert numbers.scalar_number(scalar((0.8, 0.6))) is None
    assert numbers.scalar_number(scalar(math.nan)) is None
    assert numbers.scalar_number(None) is None


def test_an_impossible_time_of_day_is_unknown() -> None:
    assert numbers.time_of_day(1e30) == "–"
