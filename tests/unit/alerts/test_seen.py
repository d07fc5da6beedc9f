"""What checks read of a trend: the stretch that they ask about, and no more of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enginetop.alerts.seen import grows, newest, recent
from enginetop.alerts.state_checks import slow_or_silent
from enginetop.fleet.snapshot import ReplicaSnapshot
from tests.tui.snapshots import AT, fleet, replica


class Counted(Sequence[float | None]):
    """Values that count how many of them were read."""

    def __init__(self, values: Sequence[float | None]) -> None:
        self.values, self.read = values, 0

    def __len__(self) -> int:
        return len(self.values)

    @overload
    def __getitem__(self, index: int) -> float | None: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[float | None]: ...

    def __getitem__(self, index: int | slice) -> float | Sequence[float | None] | None:
        found = self.values[index]
        self.read += len(self.values[index]) if isinstance(index, slice) else 1
        return found


def watched(name: str, values: Sequence[float | None]) -> ReplicaSnapshot:
    """A point a second, the last one at `AT`."""
    times = [AT - back for back in reversed(range(len(values)))]
    changes = {"requests_waiting": 8.0, "requests_running": 4.0}
    return replica("a", changes=changes, trends={name: values}, trend_times=times)


def test_of_a_long_trend_the_asked_stretch_alone_is_read() -> None:
    queue = Counted([float(second) for second in range(900)])
    points = recent(watched("requests_waiting", queue), "requests_waiting", AT - 60)
    assert points == [(AT - 60 + second, 839.0 + second) for second in range(61)]
    assert queue.read == 61


@given(
    st.lists(st.none() | st.floats(0, 9), max_size=30),
    st.floats(-5, 35),
)
@settings(max_examples=60, deadline=None)
def test_the_stretch_is_that_of_all_points_from_its_begin_on(
    values: list[float | None], seconds: float
) -> None:
    one = watched("requests_waiting", values)
    pairs = list(zip(one.trend_times, values, strict=True))
    assert recent(one, "requests_waiting", AT - seconds) == [
        (at, value) for at, value in pairs if at >= AT - seconds and value is not None
    ]
    assert newest(one, "requests_waiting") == (values[-1] if values else None)
    assert recent(one, "nothing_of_the_kind", 0.0) == []


@pytest.mark.parametrize(("last", "silent", "read"), [(5.0, None, 1), (0.0, 121.0, 242), (None, 121.0, 242)])
def test_of_an_engine_that_makes_tokens_the_newest_point_alone_is_read(
    last: float | None, silent: float | None, read: int
) -> None:
    """Else those of four minutes, of which it must have been silent for two."""
    rates = Counted([5.0] * 779 + [0.0] * 121 + [last])
    one = watched("generation_tokens_per_second", rates)
    found = slow_or_silent().judge(one, fleet([one]))
    assert (None if found is None else found.value) == silent
    assert rates.read == read


@pytest.mark.parametrize(("rise", "growth"), [(0.5, 0.5), (0.0, 0.0), (-0.5, 0.0), (0.01, 0.0)])
def test_growth_is_the_slope_of_a_line_that_rises(rise: float, growth: float) -> None:
    points = [(AT + second, 10.0 + rise * second) for second in range(61)]
    assert grows(points, 60.0) == pytest.approx(growth)
    assert grows(points[:40], 60.0) is None, "most of the stretch has to be known"
    assert grows(points[::20], 60.0) is None, "and more than a few points of it"
