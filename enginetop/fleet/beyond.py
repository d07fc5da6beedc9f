"""The signals beyond the core from windowed facts; the catalogue is `beyond_catalogue`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from enginetop.fleet.beyond_catalogue import BEYOND, Beyond, Form
from enginetop.fleet.derive import distribution_of, no_distribution
from enginetop.fleet.facts import Facts, Level, graver
from enginetop.fleet.lazy import Lazy
from enginetop.fleet.model import Quality
from enginetop.fleet.snapshot import Scalar, Signals, SignalValue

_ROWS: Mapping[str, Beyond] = MappingProxyType({row.name: row for row in BEYOND})
_EMPTY_WHOLE = "nothing to take a share of"


def beyond(facts: Facts) -> Signals:
    """The signals of the catalogue that the pages export, in its order, worked out when asked for."""
    return Lazy(_ROWS, lambda name: _value(_ROWS[name], facts))


def _value(row: Beyond, facts: Facts) -> SignalValue | None:
    if row.form is Form.DISTRIBUTION:
        return _distribution(row, row.measures[0], facts)
    if row.form in (Form.RATE, Form.SHARE):
        gains = [facts.gains[m] for m in row.measures if m in facts.gains]
        if len(gains) < len(row.measures):
            return _missing(row, facts)
        if row.form is Form.RATE:
            return _told(row, facts, gains[0].per_second)
        return _share(row, facts, gains[0].increase, gains[1].increase)
    levels = [facts.levels[m] for m in row.measures if m in facts.levels]
    if len(levels) < len(row.measures):
        return _missing(row, facts)
    if row.form is Form.SHARE_NOW:
        return _share(row, facts, levels[0].total, levels[1].total)
    return _told(row, facts, _of_level(row.form, levels[0]))


def _of_level(form: Form, level: Level) -> float:
    if form is Form.MAXIMUM:
        return level.maximum
    return level.total / level.parts if form is Form.AVERAGE else level.total


def _share(row: Beyond, facts: Facts, part: float, whole: float) -> Scalar:
    if whole <= 0:
        return Scalar(None, row.unit, Quality.UNKNOWN, _EMPTY_WHOLE)
    return _told(row, facts, part / whole)


def _told(row: Beyond, facts: Facts, value: float) -> Scalar:
    for measure in row.measures:
        if measure in facts.estimated:
            return Scalar(value, row.unit, Quality.ESTIMATED, facts.estimated[measure])
    return Scalar(value, row.unit, Quality.OK)


def _missing(row: Beyond, facts: Facts) -> Scalar | None:
    """Null with the reason where a page exports it, None where none does."""
    gaps = [facts.gaps[measure] for measure in row.measures if measure in facts.gaps]
    if not gaps:
        return None
    lacking = [m for m in row.measures if m not in facts.gains and m not in facts.levels]
    if any(m not in facts.gaps or facts.gaps[m].quality is Quality.UNSUPPORTED for m in lacking):
        return None
    gap = graver(gaps)
    return Scalar(None, row.unit, gap.quality, gap.note)


def _distribution(row: Beyond, measure: str, facts: Facts) -> SignalValue | None:
    if measure in facts.histograms:
        return distribution_of(measure, row.unit, facts)
    gap = facts.gaps.get(measure)
    return None if gap is None else no_distribution(row.unit, gap.quality, gap.note)
