"""How old is too old: three times the asked interval, or three times the source's own median."""

from __future__ import annotations

import math

import pytest

from enginetop.fleet.spacing import Spacing


def spacing_of(fixed: float | None, *times: float) -> Spacing:
    spacing = Spacing(fixed)
    for at in times:
        spacing.observe(at)
    return spacing


@pytest.mark.parametrize(
    ("fixed", "times", "seconds", "fresh_seconds"),
    [
        # Live: the asked interval, from the first page on.
        (2.0, (100.0,), 2.0, 6.0),
        (2.0, (100.0, 102.0, 104.1), 2.05, 6.15),
        # Live, but every scrape takes 7 s: its own pace, no flapping.
        (2.0, (100.0, 107.0, 114.0), 7.0, 21.0),
        # Replay: gaps 1, 1, 30: median 1.
        (None, (0.0, 1.0, 2.0, 32.0), 1.0, 3.0),
        # Gaps 2 and 4: the median of two is their mean.
        (None, (0.0, 2.0, 6.0), 3.0, 9.0),
        # Two pages of one instant are one page.
        (None, (0.0, 5.0, 5.0), 5.0, 15.0),
        # A single page is never too old.
        (None, (50.0,), None, math.inf),
        (2.0, (), 2.0, 6.0),
        (None, (), None, math.inf),
    ],
)
def test_spacing(
    fixed: float | None, times: tuple[float, ...], seconds: float | None, fresh_seconds: float
) -> None:
    spacing = spacing_of(fixed, *times)
    assert spacing.seconds == (None if seconds is None else pytest.approx(seconds))
    assert spacing.fresh_seconds == pytest.approx(fresh_seconds)


def test_a_new_pace_is_learnt() -> None:
    """After 32 gaps of 10 s nothing is left of the old second."""
    spacing = spacing_of(None, *(float(t) for t in range(100)), *(100.0 + 10 * i for i in range(1, 33)))
    assert spacing.seconds == 10.0
