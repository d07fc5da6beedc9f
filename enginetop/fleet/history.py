"""The history of one target: a bounded ring of running totals, and windows over it."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeGuard

from enginetop.fleet.extract import Extraction, shared_extraction
from enginetop.fleet.facts import WindowFacts
from enginetop.fleet.growth import Growth
from enginetop.fleet.increase import NONE, SeriesTotals, Step
from enginetop.fleet.page_words import WordKeeper
from enginetop.fleet.reached import Reached
from enginetop.fleet.reading import Columns, Reading
from enginetop.fleet.slots import Slots, slots_of
from enginetop.fleet.snapshot import NO_GOODPUT, Goodput, Signals
from enginetop.fleet.totals import RunningTotals, increase
from enginetop.fleet.trends import RATES, Trends, trend_values

_MAX_SAMPLES = 2048
_FLIPS_TO_SUSPECT = 2
_SLOTS_PER_SERIES = 8
_FEWEST_SLOTS = 4096
_SAMPLE_BYTES = 240
"""Of a sample beside its numbers: its fields, and the header of the array."""


def samples_bytes(interval_seconds: float, keep_seconds: float, series: int) -> int:
    """The most that the samples of one target with so many raw series take, all of its numbers moving."""
    samples = min(_MAX_SAMPLES, math.ceil(keep_seconds / interval_seconds)) + 2
    return samples * (8 * series + _SAMPLE_BYTES)


class Appended(NamedTuple):
    """What a reading told at once.

    `first`: there was none before. `moved`: the progress token differs from the previous reading's (a first
    reading has moved). `restarted` says why the engine seems to have restarted, or is empty; counters that
    flip between processes give at most one such word in all.
    """

    first: bool
    moved: bool
    restarted: str = ""


class _Sample(NamedTuple):
    at: float
    columns: Columns
    reached: Reached
    returned: frozenset[int]
    sums_fallen: frozenset[int]
    unnumbered: frozenset[int]

    def absorbing(self, other: _Sample) -> _Sample:
        """This sample in the place of `other` too: what happened up to `other` is not forgotten."""
        return self._replace(
            returned=self.returned | other.returned, sums_fallen=self.sums_fallen | other.sums_fallen
        )


class TargetHistory:
    """Good readings of one target, enough for windows of `keep_seconds`.

    Memory: at most 8 bytes for each raw series and sample (230 series every 2 s for 60 s: 66 kB), where whole
    numbers are counted a third of that (`page_words`), nothing but a few words for a page on which no number
    changed. At most 2048 samples are kept: closer pages than that
    replace one another, which moves a baseline by less than a thousandth of the window. `interval_seconds` is
    the spacing that `trends` are made for.
    """

    def __init__(self, keep_seconds: float, interval_seconds: float = 2.0) -> None:
        self._keep_seconds = keep_seconds
        self._totals = SeriesTotals(keep_seconds)
        self._samples: list[_Sample] = []
        self._times = array("d")  # of the samples
        self._keeper: WordKeeper | None = None
        self.spares_memory = True
        """Whether pages are kept in fewer bytes, which takes as much CPU as all else that is done here."""
        self._odd_at = -math.inf  # of the newest sample of which there is more to say than its numbers
        self._extraction: tuple[Slots, Columns, Columns, Extraction] | None = None
        self._step: Step | None = None
        self._former: Reached | None = None
        self._trend_from: _Sample | None = None
        self._trend_rates: Mapping[str, float | None] = {}
        self.last: Reading | None = None
        self.trends = Trends(interval_seconds)
        self._running = RunningTotals()

    @property
    def last_at(self) -> float | None:
        """Time of the last good reading, None before the first."""
        return self.last.at if self.last is not None else None

    @property
    def totals(self) -> Mapping[str, float]:
        """Running totals at the last reading since the first one, resets included; see `totals.TOTALS`."""
        return self._running.values

    @property
    def counted(self) -> tuple[Slots, Reached]:
        """Slots and, by slot, what each counter gained since first sight (or since series were forgotten)."""
        return self._totals.slots, self._totals.reached

    def append(self, reading: Reading) -> Appended:
        """Take the next good reading.

        Samples that are not older than it (a clock that was set back, two pages of one instant) are replaced
        by it; no increase is lost.
        """
        previous, self.last = self.last, reading
        step = self._totals.advance(reading)
        self._running.take(self._totals.slots, step.reached, fallen=bool(step.sums_fallen))
        if len(self._totals.slots) > max(_FEWEST_SLOTS, _SLOTS_PER_SERIES * len(reading.columns.series)):
            self._totals = SeriesTotals(self._keep_seconds)
            self._samples.clear()
            del self._times[:]
            self._running.begin_anew()
            step = self._totals.advance(reading)
        if self._step is not None and self._step.reached is not step.reached:
            if self._former is not None and self.spares_memory:
                self._former.shrink(self._keeper_for(self._totals.slots))
            self._former = self._step.reached  # which rates of trends begin at
            self._former.let_go()
        self._step = step
        sample = _Sample(
            reading.at, reading.columns, step.reached, step.returned, step.sums_fallen, step.unnumbered
        )
        samples, times = self._samples, self._times
        closest = self._keep_seconds / _MAX_SAMPLES
        while times and (times[-1] >= reading.at or (len(times) > 1 and times[-1] - times[-2] < closest)):
            sample = sample.absorbing(samples.pop())
            times.pop()
        samples.append(sample)
        times.append(sample.at)
        if sample.returned or sample.sums_fallen:
            self._odd_at = sample.at
        outdated = bisect_right(times, reading.at - self._keep_seconds) - 1
        if outdated > 0:
            del samples[:outdated], times[:outdated]
        moved = previous is None or previous.progress_token != reading.progress_token
        return Appended(first=previous is None, moved=moved, restarted=step.restarted)

    def _keeper_for(self, slots: Slots) -> WordKeeper:
        if self._keeper is None or self._keeper.slots is not slots:
            self._keeper = WordKeeper(slots)
        return self._keeper

    def window(self, window_seconds: float, at: float | None = None) -> WindowFacts | None:
        """What happened from the baseline to the last good page; None before the first page.

        The baseline is the newest sample at or before `at` (the snapshot's time; default: that of the last
        page) minus `window_seconds`, else the oldest. It is never the last page itself while there is
        another, so that a target that is slower than the window keeps its newest rates.
        """
        samples = self._samples
        if not samples:
            return None
        last = samples[-1]
        start = (last.at if at is None else at) - window_seconds
        index = bisect_right(self._times, start) - 1
        return self._facts(max(0, min(index, len(samples) - 2)))

    def _facts(self, index: int) -> WindowFacts:
        samples = self._samples
        base, last = samples[index], samples[-1]
        inside = samples[index + 1 :] if self._odd_at > base.at else []
        assert self._step is not None  # set by the append that made the samples
        start, end = last.reached.since(base.reached)
        growth = Growth(
            seconds=last.at - base.at,
            start=start,
            end=end,
            page=self._step.page,
            flipping=_flipping(inside),
            sums_fallen=NONE.union(*(sample.sums_fallen for sample in inside if sample.sums_fallen)),
            from_nowhere=base.unnumbered,
        )
        total, ranks = self._extraction_for(last.columns, base.columns).facts(growth)
        return WindowFacts(base.at, last.at, total, ranks)

    def _extraction_for(self, columns: Columns, baseline: Columns) -> Extraction:
        slots, known = self._totals.slots, self._extraction
        if known is None or known[0] is not slots or known[1] is not columns or known[2] is not baseline:
            if columns is baseline and slots is slots_of(columns):
                extraction = shared_extraction(columns)
            else:
                extraction = Extraction(slots, columns, None if columns is baseline else baseline)
            known = self._extraction = (slots, columns, baseline, extraction)
        return known[3]

    def add_trend_point(self, at: float, signals: Signals, goodput: Goodput = NO_GOODPUT) -> None:
        """Append one point to `trends` from the figures that a screen shows at `at`.

        Token and preemption rates are those since the page of the previous point, not those of the window, so
        that a plot shows what happens now; without a new page since then they stay, and they are None where
        the signal itself is.
        """
        samples = self._samples
        if samples and samples[-1] is not self._trend_from:
            last = samples[-1]
            base = self._trend_from if self._keeps(self._trend_from) else samples[max(0, len(samples) - 2)]
            self._trend_rates = self._rates(base, last) if last.at > base.at else {}
            self._trend_from = last
        self.trends.add(at, trend_values(signals, self._trend_rates, goodput))

    def _keeps(self, sample: _Sample | None) -> TypeGuard[_Sample]:
        if sample is None:
            return False
        index = bisect_left(self._times, sample.at)
        return index < len(self._samples) and self._samples[index] is sample

    def _rates(self, base: _Sample, last: _Sample) -> Mapping[str, float | None]:
        slots, seconds = self._totals.slots, last.at - base.at
        ends = last.reached.since(base.reached)
        gained = ((name, increase(slots, total, *ends)) for name, total in RATES.items())
        return {name: None if gain is None else gain / seconds for name, gain in gained}


def _flipping(samples: Sequence[_Sample]) -> frozenset[int]:
    counts = Counter(slot for sample in samples if sample.returned for slot in sample.returned)
    return frozenset(slot for slot, count in counts.items() if count >= _FLIPS_TO_SUSPECT) if counts else NONE
