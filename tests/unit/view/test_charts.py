"""Bars and plots, worked out by hand in eighths of a cell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tui.view.charts import area, bar, resample, spark


@pytest.mark.parametrize(
    ("ratio", "shown"),
    [
        (0, "    "),
        (0.001, "▏   "),
        (0.5, "██  "),
        (0.64, "██▌ "),
        (0.97, "███▉"),
        (1, "████"),
        (3, "████"),
        (None, "    "),
    ],
)
def test_bar_of_four_cells(ratio: float | None, shown: str) -> None:
    # 0.64 x 32 = 20.48 eighths: 2 cells and 4 eighths; 0.97 x 32 = 31.04: 3 cells and 7 eighths.
    assert bar(ratio, 4) == shown


def test_spark_draws_zero_as_a_foot_and_unknown_as_nothing() -> None:
    assert spark([0.0, None, 0.5, 1.0], 4, 1.0) == "▁ ▄█"
    assert spark([1.0], 3, 1.0) == "  █"
    assert spark([1.0, 2.0, 3.0], 2, 3.0) == "▅█"


def test_area_stacks_rows_from_the_top() -> None:
    # two rows are sixteen steps: 0.75 -> 12 = 8 below and 4 above
    assert area([0.25, 0.75], 2, 2, 1.0) == [" ▄", "▄█"]


def test_a_plot_without_a_scale_is_flat() -> None:
    assert spark([0.0, 0.0], 2, 0.0) == "▁▁"


def test_resampling_takes_means_of_fixed_steps() -> None:
    times = (100.0, 105.0, 110.0, 119.0, 125.0)
    assert resample((1.0, 3.0, None, 8.0, 5.0), times, 125.0, 10.0, 3) == [2.0, 8.0, 5.0]
    assert resample((1.0, 3.0, None, 8.0, 5.0), times, 125.0, 10.0, 2) == [8.0, 5.0]
    assert resample((), (), 125.0, 10.0, 2) == [None, None]


class Asked(Sequence[float]):
    """Times that count how often they were asked for."""

    def __init__(self, count: int) -> None:
        self.times, self.asked = [float(number) for number in range(count)], 0

    def __len__(self) -> int:
        return len(self.times)

    def __getitem__(self, index: Any) -> Any:
        self.asked += 1
        return self.times[index]


def test_a_history_is_read_in_one_go_however_wide_the_plot() -> None:
    times = Asked(900)
    assert resample([1.0] * 900, times, 899.5, 10.0, 60) == [1.0] * 60
    assert times.asked <= 1 + 10  # where it begins is found in log2(900) steps


def test_a_plot_stands_still_within_a_step() -> None:
    times, values = (100.0, 110.0), (1.0, 2.0)
    assert resample(values, times, 121.0, 10.0, 3) == resample(values, times, 129.9, 10.0, 3)
