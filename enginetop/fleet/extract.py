"""From increases by slot to facts by engine: which slots make which measure, compiled once a layout."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from weakref import WeakKeyDictionary

from enginetop.fleet.beyond_catalogue import MEASURE_KINDS
from enginetop.fleet.engine_plan import EnginePlan
from enginetop.fleet.facts import Facts, Gap, RankFacts, merge_parts
from enginetop.fleet.growth import Growth
from enginetop.fleet.model import Quality
from enginetop.fleet.reading import EMPTY, Absence, Columns, Series
from enginetop.fleet.signals import MEASURES, MeasureKind
from enginetop.fleet.slots import Slots, slots_of

_OFF_PAGE = Gap(Quality.UNKNOWN, "not on the last page")
_OTHER_RANKS = Gap(Quality.UNKNOWN, "told for other ranks only")
_NOT_BY_RANK = Gap(Quality.UNKNOWN, "not told by rank", parts=0)
_NOT_YET = Gap(Quality.UNKNOWN, "not counted for this rank yet", parts=0)  # takes nothing from the sum
_UNSUPPORTED = Absence(Quality.UNSUPPORTED)


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
        self._engines = [EnginePlan(named[rank], 1, by_rank.pop(rank, {}), current, usable) for rank in named]
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
        self._others = [EnginePlan(EMPTY, 0, series, current, usable) for series in by_rank.values()]

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
