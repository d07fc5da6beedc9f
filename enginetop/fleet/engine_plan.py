"""Where the measures of one engine are among the slots, and what their growth tells of each."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from enginetop.fleet.beyond_catalogue import MEASURE_KINDS
from enginetop.fleet.facts import NO_COUNTS, RATIOS, Facts, Gain, Gap, Level, Ratio, graver
from enginetop.fleet.growth import Growth
from enginetop.fleet.histogram import HistogramIncrease, merge_histograms
from enginetop.fleet.increase import LARGEST
from enginetop.fleet.label_set import LabelSet
from enginetop.fleet.lazy import Lazy
from enginetop.fleet.model import Quality
from enginetop.fleet.reading import Part, Series
from enginetop.fleet.signals import MeasureKind

_POSITIONS = "spec_accepted_at_position"
_WITHIN = "requests_within_slo"
_ONE_PAGE = Gap(Quality.UNKNOWN, "needs two samples")
_NO_NUMBER = Gap(Quality.UNKNOWN, "the page holds no number for it")
_FROM_NOWHERE = Gap(Quality.UNKNOWN, "the page held no number for it when the window began")
_FLIPS = Gap(Quality.SUSPECT, "the counter jumps back and forth: several processes behind one address?")


class EnginePlan:
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
        self.histograms: dict[str, list[LabelSet]] = {}
        for (measure, _), members in label_sets.items():
            self.histograms.setdefault(measure, []).append(LabelSet(members, usable))
        self.level_names = frozenset(self.levels)
        self.gain_names = frozenset(self.gains)
        self.ratio_names = frozenset(
            name for name, measures in RATIOS.items() if self.gain_names.issuperset(measures)
        )
        self.histogram_names = frozenset(self.histograms)
        self.lacks({})

    def measures(self) -> set[str]:
        """The measures that this engine tells."""
        return {*self.levels, *self.gains, *self.histograms}

    def lacks(self, gaps: Mapping[str, Gap]) -> None:
        """Measures that this engine does not tell, and why."""
        self.gaps = gaps
        known = {*gaps, *self.measures()}
        ratios = {name for name, measures in RATIOS.items() if not known.isdisjoint(measures)}
        self.may_lack = frozenset(known | ratios)

    def facts(self, growth: Growth, estimated: Mapping[str, str]) -> Facts:
        """What this engine did; `estimated` are the measures that are no counts, with the reason."""
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

    def __init__(self, plan: EnginePlan, growth: Growth) -> None:
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
        if increase == 0 and growth.is_numberless(slots):
            return self._gap(_NO_NUMBER)
        return Gain(increase, increase / growth.seconds)

    def _merged(self, label_sets: Sequence[LabelSet]) -> HistogramIncrease | Gap:
        growth = self._growth
        if growth.flipping and not all(growth.flipping.isdisjoint(one.members) for one in label_sets):
            return self._gap(_FLIPS)
        if growth.from_nowhere and any(one.is_lost(growth) for one in label_sets):
            return self._gap(_FROM_NOWHERE)
        increases = [one.increase(growth) for one in label_sets]
        merged = increases[0] if len(increases) == 1 else merge_histograms(increases)
        if merged.count == 0 and all(growth.is_numberless(one.members) for one in label_sets):
            return self._gap(_NO_NUMBER)
        return merged

    def _numerators(self, name: str, numerator: Gain) -> Mapping[int, float]:
        if RATIOS[name][0] != _POSITIONS:
            return {0: numerator.increase}
        return {position: self._growth.increase(slots) for position, slots in self._plan.positions.items()}

    def _gap(self, gap: Gap) -> Gap:
        parts = self._plan.parts
        return gap if parts == 1 else Gap(gap.quality, gap.note, parts)
