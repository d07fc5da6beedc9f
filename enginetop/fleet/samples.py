"""The pages of a window of one target: when each came, and how far all series had come at it."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Final, NamedTuple

from enginetop.fleet.increase import NONE, Step
from enginetop.fleet.reached import Reached
from enginetop.fleet.reading import Columns

MOST_SAMPLES: Final = 2048


class About(NamedTuple):
    """What there is to say of a page beside its numbers; pages of which the same is to be said share it."""

    columns: Columns
    returned: frozenset[int] = NONE
    sums_fallen: frozenset[int] = NONE
    unnumbered: frozenset[int] = NONE

    def absorbing(self, other: About) -> About:
        """This page in the place of `other` too: what happened up to `other` is not forgotten."""
        return self._replace(
            returned=self.returned | other.returned, sums_fallen=self.sums_fallen | other.sums_fallen
        )


class Sample(NamedTuple):
    """One page, of Unix time `at`."""

    at: float
    reached: Reached
    about: About


class Samples:
    """The pages of the last `keep_seconds`, oldest first, and the one before these.

    Those that are closer than a `MOST_SAMPLES`th of that replace one another, which moves a baseline by less
    than a thousandth of the window.
    """

    __slots__ = ("_abouts", "_closest", "_keep_seconds", "_odd_at", "_reached", "_times")

    def __init__(self, keep_seconds: float) -> None:
        self._keep_seconds = keep_seconds
        self._closest = keep_seconds / MOST_SAMPLES
        self._times = array("d")
        self._reached: list[Reached] = []
        self._abouts: list[About] = []
        self._odd_at = float("-inf")  # of the newest page of which there is more to say than its numbers

    def __len__(self) -> int:
        return len(self._times)

    def __getitem__(self, index: int) -> Sample:
        return Sample(self._times[index], self._reached[index], self._abouts[index])

    def clear(self) -> None:
        """Forget all pages."""
        del self._times[:], self._reached[:], self._abouts[:]

    def append(self, at: float, columns: Columns, step: Step) -> None:
        """Take the next page. Those that are not older than it (a clock that was set back, two pages of one
        instant) are replaced by it; no increase is lost.
        """
        times, abouts = self._times, self._abouts
        about = About(columns, step.returned, step.sums_fallen, step.unnumbered)
        while times and (times[-1] >= at or (len(times) > 1 and times[-1] - times[-2] < self._closest)):
            about = about.absorbing(abouts.pop())
            times.pop()
            self._reached.pop()
        if about.returned or about.sums_fallen:
            self._odd_at = at
        times.append(at)
        self._reached.append(step.reached)
        abouts.append(abouts[-1] if abouts and abouts[-1] == about else about)
        outdated = bisect_right(times, at - self._keep_seconds) - 1
        if outdated > 0:
            del times[:outdated], self._reached[:outdated], abouts[:outdated]

    def newest_until(self, at: float) -> int:
        """The place of the newest page that is not younger than `at`; -1: all are younger."""
        return bisect_right(self._times, at) - 1

    def holds(self, sample: Sample) -> bool:
        """Whether this page is still among them."""
        place = bisect_left(self._times, sample.at)
        return (
            place < len(self._times)
            and self._times[place] == sample.at
            and self._reached[place] is sample.reached
        )

    def after(self, index: int) -> Sequence[About]:
        """What there is to say of the pages after this one; nothing where that is nothing but numbers."""
        return self._abouts[index + 1 :] if self._odd_at > self._times[index] else ()
