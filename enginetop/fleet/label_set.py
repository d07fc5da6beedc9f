"""One label set of a histogram: which slots are its buckets, and what they gained."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from itertools import accumulate
from operator import gt, itemgetter, sub

from enginetop.fleet.growth import Growth
from enginetop.fleet.histogram import HistogramIncrease, canonical_bound
from enginetop.fleet.reading import Part, Series


class LabelSet:
    """The slots of one label set by what they hold, as far as they are `usable` (None: all are)."""

    __slots__ = ("_get", "bounds", "buckets", "counts", "infinite", "members", "sums")

    def __init__(self, series: Mapping[int, Series], usable: Collection[int] | None) -> None:
        by_bound: dict[float, list[int]] = {}
        self.members = frozenset(series)
        series = {slot: one for slot, one in series.items() if usable is None or slot in usable}
        for slot, one in series.items():
            if one.part is Part.BUCKET and math.isfinite(one.le):
                by_bound.setdefault(canonical_bound(one.le), []).append(slot)
        self.infinite = [slot for slot, one in series.items() if one.le == math.inf]
        self.bounds = tuple(sorted(by_bound))
        self.buckets = [by_bound[bound] for bound in self.bounds]
        self.counts = [slot for slot, one in series.items() if one.part is Part.COUNT]
        self.sums = [slot for slot, one in series.items() if one.part is Part.SUM]
        single = len(self.buckets) > 1 and all(len(slots) == 1 for slots in self.buckets)
        self._get = itemgetter(*(slots[0] for slots in self.buckets)) if single else None

    def is_lost(self, growth: Growth) -> bool:
        """Whether a bucket or the count has grown from nobody knows where."""
        return not growth.from_nowhere.isdisjoint(self.members.difference(self.sums))

    def increase(self, growth: Growth) -> HistogramIncrease:
        """What its buckets, count and sum gained; a count that falls from bucket to bucket is corrected."""
        if self._get is not None:
            cumulative = tuple(map(sub, self._get(growth.end), self._get(growth.start)))
        else:
            cumulative = tuple(growth.increase(slots) for slots in self.buckets)
        corrected = any(map(gt, cumulative, cumulative[1:]))
        if corrected:
            cumulative = tuple(accumulate(cumulative, max))
        count = cumulative[-1] if cumulative else 0.0
        for slots in (self.counts, self.infinite):  # either line may be missing on a page, or lag behind
            if slots:
                count = max(count, growth.increase(slots))
        total = growth.increase(self.sums) if self.sums else None
        if total is not None and self._no_sum(growth):
            total = None  # the page tells counts, and no sum for them
        sum_fell = bool(growth.sums_fallen) and not growth.sums_fallen.isdisjoint(self.sums)
        return HistogramIncrease(self.bounds, cumulative, count, total, sum_fell, corrected)

    def _no_sum(self, growth: Growth) -> bool:
        if growth.from_nowhere and not growth.from_nowhere.isdisjoint(self.sums):
            return True
        return growth.is_numberless(self.sums) and not growth.is_numberless(self.members)
