"""From increases by slot to facts by engine: which slots make which measure, compiled once a layout."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import gt, itemgetter, sub
from weakref import WeakKeyDictionary

from enginetop.fleet.beyond_catalogue import MEASURE_KINDS
from enginetop.fleet.facts import (
    NO_COUNTS,
    RATIOS,
    Facts,
    Gain,
    Gap,
    Level,
    RankFacts,
    Ratio,
    graver,
    merge_parts,
)
from enginetop.fleet.histogram import HistogramIncrease, canonical_bound, merge_histograms
from enginetop.fleet.increase import LARGEST, NONE
from enginetop.fleet.lazy import Lazy
from enginetop.fleet.model import Quality
from enginetop.fleet.reading import EMPTY, Absence, Columns, Part, Series
from enginetop.fleet.signals import MEASURES, MeasureKind
from enginetop.fleet.slots import Slots, slots_of

_POSITIONS = "spec_accepted_at_position"
_WITHIN = "requests_within_slo"
_ONE_PAGE = Gap(Quality.UNKNOWN, "needs two samples")
_NO_NUMBER = Gap(Quality.UNKNOWN, "the page holds no number for it")
_FROM_NOWHERE = Gap(Quality.UNKNOWN, "the page held no number for it when the window began")
_FLIPS = Gap(Quality.SUSPECT, "the counter jumps back and forth: several processes behind one address?")
_OFF_PAGE = Gap(Quality.UNKNOWN, "not on the last page")
_OTHER_RANKS = Gap(Quality.UNKNOWN, "told for other ranks only")
_NOT_BY_RANK = Gap(Quality.UNKNOWN, "not told by rank", parts=0)
_NOT_YET = Gap(Quality.UNKNOWN, "not counted for this rank yet", parts=0)  # takes nothing from the sum
_UNSUPPORTED = Absence(Quality.UNSUPPORTED)


@dataclass(frozen=True, slots=True, eq=False)
class Growth:
    """What every slot did from the baseline to the last page.

    `start` and `end` are the running totals at both ends, and
    `page` the numbers of the last page (NaN: none there), all by slot.
    `flipping` and `sums_fallen` are slots not to be believed; `from_nowhere` are those that had no number at
    the baseline and none before it, so that their increase is not known. `seconds` is 0 when there is one
    page only.
    """

    seconds: float
    start: Sequence[float]
    end: Sequence[float]
    page: Sequence[float]
    flipping: frozenset[int] = NONE
    sums_fallen: frozenset[int] = NONE
    from_nowhere: frozenset[int] = NONE

    def increase(self, slots: Iterable[int]) -> float:
        """What these slots gained together."""
        start, end = self.start, self.end
        return sum([end[slot] - start[slot] for slot in slots])


class _LabelSet:
    """The slots of one label set of a histogram."""

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
        return _numberless(self.sums, growth) and not _numberless(self.members, growth)


class _EnginePlan:
    """Where one engine's measures are. `parts` is 0 for series of no rank, and of ranks that are gone."""

    def __init__(
        self,
        labels: Mapping[str, str],
        parts: int,
        series: Mapping[int, Series],
        current: frozenset[int],
        usable: Collection[int] | None,
    ) -> None:
        self.labels = labels
        self.parts = parts
        self.levels: dict[str, list[int]] = {}
        self.gains: dict[str, list[int]] = {}
        self.positions: dict[int, list[int]] = {}
        self.objectives: dict[tuple[float, float] | None, list[int]] = {}
        label_sets: dict[tuple[str, str], dict[int, Series]] = {}
        for slot, one in series.items():
            kind = MEASURE_KINDS.get(one.measure)
            if kind is MeasureKind.HISTOGRAM and one.part is not Part.VALUE:
                label_sets.setdefault((one.measure, one.group), {})[slot] = one
            elif kind is MeasureKind.COUNTER and one.part is Part.VALUE:
                self.gains.setdefault(one.measure, []).append(slot)
                if one.measure == _POSITIONS:
                    self.positions.setdefault(one.position, []).append(slot)
                elif one.measure == _WITHIN:
                    self.objectives.setdefault(one.slo, []).append(slot)
            elif kind is MeasureKind.GAUGE and one.part is Part.VALUE and slot in current:
                self.levels.setdefault(one.measure, []).append(slot)
        self.histograms: dict[str, list[_LabelSet]] = {}
        for (measure, _), members in label_sets.items():
            self.histograms.setdefault(measure, []).append(_LabelSet(members, usable))
        self.level_names = frozenset(self.levels)
        self.gain_names = frozenset(self.gains)
        self.ratio_names = frozenset(
            name for name, measures in RATIOS.items() if self.gain_names.issuperset(measures)
        )
        self.histogram_names = frozenset(self.histograms)
        self.lacks({})

    def measures(self) -> set[str]:
        return {*self.levels, *self.gains, *self.histograms}

    def lacks(self, gaps: Mapping[str, Gap]) -> None:
        """Measures that this engine does not tell, and why."""
        self.gaps = gaps
        known = {*gaps, *self.measures()}
        ratios = {name for name, measures in RATIOS.items() if not known.isdisjoint(measures)}
        self.may_lack = frozenset(known | ratios)

    def facts(self, growth: Growth, estimated: Mapping[str, str]) -> Facts:
        told = _Told(self, growth)
        within = NO_COUNTS
        if _WITHIN in self.gains and told.gain(_WITHIN) is not None:
            within = {slo: growth.increase(slots) for slo, slots in self.objectives.items()}
        return Facts(
            self.parts,
            Lazy(self.level_names, told.level),
            Lazy(self.gain_names, told.gain),
            Lazy(self.ratio_names, told.ratio),
            Lazy(self.histogram_names, told.histogram),
            Lazy(self.may_lack, told.gap),
            estimated,
            within,
            whole=True,
        )


class _Told:
    """What one engine's growth tells of each measure: a value, or why there is none."""

    __slots__ = ("_growth", "_known", "_plan")

    def __init__(self, plan: _EnginePlan, growth: Growth) -> None:
        self._plan, self._growth = plan, growth
        self._known: dict[str, Gain | HistogramIncrease | Gap] = {}

    def level(self, measure: str) -> Level | None:
        value = sum([self._growth.page[slot] for slot in self._plan.levels[measure]])
        return Level(value, value, worst=self._plan.labels) if -LARGEST <= value <= LARGEST else None

    def gain(self, measure: str) -> Gain | None:
        found = self._increase(measure)
        return found if isinstance(found, Gain) else None

    def histogram(self, measure: str) -> HistogramIncrease | None:
        found = self._increase(measure)
        return found if isinstance(found, HistogramIncrease) else None

    def ratio(self, name: str) -> Ratio | None:
        numerator, denominator = map(self.gain, RATIOS[name])
        if numerator is None or denominator is None:
            return None
        return Ratio(self._numerators(name, numerator), denominator.increase)

    def gap(self, name: str) -> Gap | None:
        plan = self._plan
        if name in RATIOS:
            reasons = [gap for measure in RATIOS[name] if (gap := self.gap(measure)) is not None]
            return graver(reasons) if reasons else None
        if name in plan.levels:
            return self._gap(_NO_NUMBER) if self.level(name) is None else None
        if name not in plan.gains and name not in plan.histograms:
            return plan.gaps.get(name)
        found = self._increase(name)
        return found if isinstance(found, Gap) else None

    def _increase(self, measure: str) -> Gain | HistogramIncrease | Gap:
        found = self._known.get(measure)
        if found is None:
            found = self._known[measure] = self._find_increase(measure)
        return found

    def _find_increase(self, measure: str) -> Gain | HistogramIncrease | Gap:
        if self._growth.seconds <= 0:
            return self._gap(_ONE_PAGE)
        slots = self._plan.gains.get(measure)
        return self._merged(self._plan.histograms[measure]) if slots is None else self._gained(slots)

    def _gained(self, slots: Sequence[int]) -> Gain | Gap:
        growth = self._growth
        if growth.flipping and not growth.flipping.isdisjoint(slots):
            return self._gap(_FLIPS)
        if growth.from_nowhere and not growth.from_nowhere.isdisjoint(slots):
            return self._gap(_FROM_NOWHERE)
        increase = growth.increase(slots)
        if increase == 0 and _numberless(slots, growth):
            return self._gap(_NO_NUMBER)
        return Gain(increase, increase / growth.seconds)

    def _merged(self, label_sets: Sequence[_LabelSet]) -> HistogramIncrease | Gap:
        growth = self._growth
        if growth.flipping and not all(growth.flipping.isdisjoint(one.members) for one in label_sets):
            return self._gap(_FLIPS)
        if growth.from_nowhere and any(one.is_lost(growth) for one in label_sets):
            return self._gap(_FROM_NOWHERE)
        increases = [one.increase(growth) for one in label_sets]
        merged = increases[0] if len(increases) == 1 else merge_histograms(increases)
        if merged.count == 0 and all(_numberless(one.members, growth) for one in label_sets):
            return self._gap(_NO_NUMBER)
        return merged

    def _numerators(self, name: str, numerator: Gain) -> Mapping[int, float]:
        if RATIOS[name][0] != _POSITIONS:
            return {0: numerator.increase}
        return {position: self._growth.increase(slots) for position, slots in self._plan.positions.items()}

    def _gap(self, gap: Gap) -> Gap:
        parts = self._plan.parts
        return gap if parts == 1 else Gap(gap.quality, gap.note, parts)


class Extraction:
    """How to read the growth of a target whose last page has `columns`.

    `baseline` is the layout of the baseline page where it is another one: a line of a histogram that is not
    on both pages counts only part of the window and is left out.
    """

    def __init__(self, slots: Slots, columns: Columns, baseline: Columns | None = None) -> None:
        current = frozenset(slots.places(columns) or ())
        on_page = {slots.series[slot].measure for slot in current}
        by_rank: dict[str, dict[int, Series]] = {}
        for slot, one in enumerate(slots.series):
            if one.measure in on_page:
                by_rank.setdefault(one.rank, {})[slot] = one
        usable = _usable(slots, current, baseline)
        self._estimated = columns.estimated or EMPTY
        named = columns.ranks or {"": EMPTY}
        if len(named) == 1:
            by_rank = _of_one_engine(by_rank, next(iter(named)))
        self._engines = [
            _EnginePlan(named[rank], 1, by_rank.pop(rank, {}), current, usable) for rank in named
        ]
        self._named = len(columns.ranks)
        without_rank = {one.measure for one in by_rank.get("", {}).values()}
        known = {one.measure for one in slots.series}
        for engine in self._engines:
            missing = [measure for measure in MEASURES if measure not in engine.measures()]
            engine.lacks(
                {
                    measure: _NOT_BY_RANK
                    if measure in without_rank
                    else _gap_of(measure, columns, on_page, known)
                    for measure in missing
                }
            )
        self._others = [_EnginePlan(EMPTY, 0, series, current, usable) for series in by_rank.values()]

    def facts(self, growth: Growth) -> tuple[Facts, tuple[RankFacts, ...]]:
        """The replica as a whole, and each rank that the page names."""
        engines = [engine.facts(growth, self._estimated) for engine in self._engines]
        others = [other.facts(growth, self._estimated) for other in self._others]
        total = merge_parts([*engines, *others])
        if self._named == 0:
            return total, ()
        own = [total] if self._named == 1 else engines
        return total, tuple(
            RankFacts(engine.labels, facts) for engine, facts in zip(self._engines, own, strict=True)
        )


_shared: WeakKeyDictionary[Columns, Extraction] = WeakKeyDictionary()


def shared_extraction(columns: Columns) -> Extraction:
    """For targets whose slots are `slots_of(columns)` and whose layout did not change: one object for all."""
    extraction = _shared.get(columns)
    if extraction is None:
        extraction = _shared[columns] = Extraction(slots_of(columns), columns)
    return extraction


def _of_one_engine(by_rank: Mapping[str, dict[int, Series]], rank: str) -> dict[str, dict[int, Series]]:
    """The series by rank where the page names one rank only: what is told for no rank, of measures that are
    not told for it, is its own.
    """
    told = {one.measure for one in by_rank.get(rank, {}).values()}
    kept: dict[str, dict[int, Series]] = {rank: dict(by_rank.get(rank, {}))}
    for other, series in by_rank.items():
        if other == rank:
            continue
        for slot, one in series.items():
            gauge = MEASURE_KINDS.get(one.measure) is MeasureKind.GAUGE  # its rank is shown
            own = other == "" and one.measure not in told and not gauge
            kept.setdefault(rank if own else other, {})[slot] = one
    return kept


def _usable(slots: Slots, current: frozenset[int], baseline: Columns | None) -> Collection[int] | None:
    """Slots of histograms whose increase covers the whole window; None when all do."""
    if len(current) == len(slots.series) and baseline is None:
        return None
    pages = [current]
    if baseline is not None:
        pages.append(frozenset(slots.places(baseline) or ()))
    usable: set[int] = set()
    for members in set(slots.label_set):
        common = frozenset(members)
        for page in pages:
            if not page.isdisjoint(members):
                common &= page
        usable |= common
    return usable


def _gap_of(measure: str, columns: Columns, on_page: Collection[str], known: Collection[str]) -> Gap:
    if measure in on_page:
        return _OTHER_RANKS if MEASURE_KINDS[measure] is MeasureKind.GAUGE else _NOT_YET
    absence = columns.absent.get(measure, _UNSUPPORTED)
    if absence.quality is Quality.UNSUPPORTED and measure in known:  # whoever had it before supports it
        return _OFF_PAGE
    return Gap(absence.quality, absence.told)


def _numberless(slots: Iterable[int], growth: Growth) -> bool:
    return not any(-LARGEST <= growth.page[slot] <= LARGEST for slot in slots)
