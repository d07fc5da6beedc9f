"""The history of one target: a bounded ring of running totals, and windows over it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from enginetop.fleet.extract import Extraction, shared_extraction
from enginetop.fleet.facts import WindowFacts
from enginetop.fleet.growth import Growth
from enginetop.fleet.increase import NONE, SeriesTotals, Step
from enginetop.fleet.reached import Reached, Saver
from enginetop.fleet.reading import Columns, Reading
from enginetop.fleet.samples import MOST_SAMPLES, About, Sample, Samples
from enginetop.fleet.slots import Slots, slots_of
from enginetop.fleet.snapshot import NO_GOODPUT, Goodput, Signals
from enginetop.fleet.totals import RunningTotals, increase
from enginetop.fleet.trends import RATES, Trends, trend_values

_FLIPS_TO_SUSPECT = 2
_SLOTS_PER_SERIES = 8
_FEWEST_SLOTS = 4096
_SAMPLE_BYTES = 240
"""Of a sample beside its numbers: its fields, and the header of the array."""


def samples_bytes(interval_seconds: float, keep_seconds: float, series: int) -> int:
    """The most that the samples of one target with so many raw series take, all of its numbers moving."""
    samples = min(MOST_SAMPLES, math.ceil(keep_seconds / interval_seconds)) + 2
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


class TargetHistory:
    """Good readings of one target, enough for windows of `keep_seconds`.

    Memory: at most 8 bytes for each raw series and sample (230 series every 2 s for 60 s: 66 kB), where whole
    numbers are counted half of that, a third where pages come every second (`page_words`, `word_pack`),
    nothing but a few words for a page on which no number changed. At most 2048 samples are kept (`samples`).
    `interval_seconds` is the spacing that `trends` are made for.
    """

    def __init__(self, keep_seconds: float, interval_seconds: float = 2.0) -> None:
        self._keep_seconds = keep_seconds
        self._totals = SeriesTotals(keep_seconds)
        self._samples = Samples(keep_seconds)
        self._saver: Saver | None = None
        self.spares_memory = True
        """Whether pages are kept in fewer bytes, which takes as much CPU as all else that is done here."""
        self._extraction: tuple[Slots, Columns, Columns, Extraction] | None = None
        self._step: Step | None = None
        self._former: Reached | None = None
        self._trend_from: Sample | None = None
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
        """Take the next good reading; of one that is not older than those before it see `Samples.append`."""
        previous, self.last = self.last, reading
        step = self._totals.advance(reading)
        self._running.take(self._totals.slots, step.reached, fallen=bool(step.sums_fallen))
        if len(self._totals.slots) > max(_FEWEST_SLOTS, _SLOTS_PER_SERIES * len(reading.columns.series)):
            self._totals = SeriesTotals(self._keep_seconds)
            self._samples.clear()
            self._running.begin_anew()
            step = self._totals.advance(reading)
        if self._step is not None and self._step.reached is not step.reached:
            if not self.spares_memory:
                self._saver = None  # which holds pages that wait for others
            elif self._former is not None:
                self._saver_for(self._totals.slots).save(self._former)
            self._former = self._step.reached  # which rates of trends begin at
            self._former.let_go()
        self._step = step
        self._samples.append(reading.at, reading.columns, step)
        moved = previous is None or previous.progress_token != reading.progress_token
        return Appended(first=previous is None, moved=moved, restarted=step.restarted)

    def _saver_for(self, slots: Slots) -> Saver:
        if self._saver is None or self._saver.slots is not slots:
            self._saver = Saver(slots)
        return self._saver

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
        return self._facts(max(0, min(samples.newest_until(start), len(samples) - 2)))

    def _facts(self, index: int) -> WindowFacts:
        samples = self._samples
        base, last = samples[index], samples[-1]
        inside = samples.after(index)
        assert self._step is not None  # set by the append that made the samples
        start, end = last.reached.since(base.reached)
        growth = Growth(
            seconds=last.at - base.at,
            start=start,
            end=end,
            page=self._step.page,
            flipping=_flipping(inside),
            sums_fallen=NONE.union(*(about.sums_fallen for about in inside if about.sums_fallen)),
            from_nowhere=base.about.unnumbered,
        )
        total, ranks = self._extraction_for(last.about.columns, base.about.columns).facts(growth)
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
        if self._samples:
            last, former = self._samples[-1], self._trend_from
            if former is None or last.at != former.at or last.reached is not former.reached:
                before = self._samples[max(0, len(self._samples) - 2)]
                base = former if former is not None and self._samples.holds(former) else before
                self._trend_rates = self._rates(base, last) if last.at > base.at else {}
                self._trend_from = last
        self.trends.add(at, trend_values(signals, self._trend_rates, goodput))

    def _rates(self, base: Sample, last: Sample) -> Mapping[str, float | None]:
        slots, seconds = self._totals.slots, last.at - base.at
        ends = last.reached.since(base.reached)
        gained = ((name, increase(slots, total, *ends)) for name, total in RATES.items())
        return {name: None if gain is None else gain / seconds for name, gain in gained}


def _flipping(pages: Sequence[About]) -> frozenset[int]:
    counts = Counter(slot for about in pages if about.returned for slot in about.returned)
    return frozenset(slot for slot, count in counts.items() if count >= _FLIPS_TO_SUSPECT) if counts else NONE
