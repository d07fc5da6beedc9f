"""What a window says about one engine, a replica or the fleet, before it is put into signals.

`Facts` form a commutative merge: ranks are merged into a replica and replicas into a fleet by the same rules.
Rates are added, each taken over its own replica's seconds; ratios keep numerator and denominator; gauges keep
both sum and maximum; distributions are merged at common bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from types import MappingProxyType
from typing import TypeVar

from enginetop.fleet.changing import changed
from enginetop.fleet.frozen import frozen
from enginetop.fleet.histogram import HistogramIncrease, merge_histograms
from enginetop.fleet.lazy import Lazy, joint_names, overlaid, possible_names
from enginetop.fleet.model import Quality
from enginetop.fleet.quickly_made import quickly_made
from enginetop.fleet.reading import EMPTY

RATIOS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "prefix_hit_ratio": ("prefix_hits", "prefix_queries"),
        "external_prefix_hit_ratio": ("external_prefix_hits", "external_prefix_queries"),
        "spec_acceptance_ratio": ("spec_accepted_tokens", "spec_draft_tokens"),
        "spec_accepted_length": ("spec_accepted_tokens", "spec_drafts"),
        "spec_acceptance_per_position": ("spec_accepted_at_position", "spec_drafts"),
    }
)
"""Signals made of two counters: numerator and denominator. Paired in each engine, before any merge."""

NO_COUNTS: Mapping[tuple[float, float] | None, float] = MappingProxyType({})

T = TypeVar("T")

_IN_PART = "in part: "
_SEVERITY = (Quality.UNSUPPORTED, Quality.UNKNOWN, Quality.INVALID, Quality.SUSPECT)


@quickly_made
class Level:
    """A gauge: sum and maximum over `parts` engines, and the labels of the rank that holds the maximum."""

    total: float
    maximum: float
    parts: int = 1
    worst: Mapping[str, str] = field(default_factory=lambda: EMPTY)


@quickly_made
class Gain:
    """A counter's increase over the window, and per second of the window."""

    increase: float
    per_second: float


@quickly_made
class Ratio:
    """Two increases, by draft position (position 0 where there are none)."""

    numerators: Mapping[int, float]
    denominator: float


@frozen
class Gap:
    """Why `parts` engines have no value for a measure or ratio; over several, the gravest reason."""

    quality: Quality
    note: str = ""
    parts: int = 1


@quickly_made(eq=False)
class Facts:
    """Everything a window tells about `parts` engines (a data-parallel rank is one engine).

    All mappings go by measure, `ratios` by signal. A name without a value has a gap; a name with both has a
    value from part of the engines only. `estimated` says why a measure is an estimate. `within_slo` is the
    increase of `requests_within_slo` by the objective (TTFT and TPOT in seconds; None: not named) that it was
    counted for. `whole`: no name has both.
    """

    parts: int
    levels: Mapping[str, Level]
    gains: Mapping[str, Gain]
    ratios: Mapping[str, Ratio]
    histograms: Mapping[str, HistogramIncrease]
    gaps: Mapping[str, Gap]
    estimated: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    within_slo: Mapping[tuple[float, float] | None, float] = field(default_factory=lambda: NO_COUNTS)
    whole: bool = False

    def increase(self, measure: str) -> float | None:
        """A counter's increase over the window, or None when it is not known."""
        gain = self.gains.get(measure)
        return None if gain is None else gain.increase


@frozen(eq=False)
class RankFacts:
    """One data-parallel rank that the page names."""

    labels: Mapping[str, str]
    facts: Facts


@quickly_made(eq=False)
class WindowFacts:
    """One replica from the baseline (time `since`) to the last good page (time `at`); equal: one page."""

    since: float
    at: float
    total: Facts
    ranks: tuple[RankFacts, ...]

    @property
    def seconds(self) -> float:
        """Time between baseline and last good page; 0 when there is one page only."""
        return self.at - self.since


def merge_facts(windows: Sequence[WindowFacts], replicas: Sequence[str] = ()) -> Facts:
    """The fleet: all replicas as one.

    With `replicas` (a name for each window) the labels of the worst rank begin with `replica`.
    """
    if not replicas:
        return merge_parts([window.total for window in windows])
    return merge_parts(
        [
            _named(window.total, replica) if "kv_usage_ratio" in window.total.levels else window.total
            for window, replica in zip(windows, replicas, strict=True)
        ]
    )


def merge_parts(parts: Sequence[Facts]) -> Facts:
    """Several engines as one. No parts: facts without any value."""
    if len(parts) == 1:
        return parts[0]
    return Facts(
        parts=sum(part.parts for part in parts),
        levels=_merged([part.levels for part in parts], _merge_levels),
        gains=_merged([part.gains for part in parts], _merge_gains),
        ratios=_merged([part.ratios for part in parts], _merge_ratios),
        histograms=_merged([part.histograms for part in parts], merge_histograms),
        gaps=_merged([part.gaps for part in parts], _merge_gaps),
        estimated=_merge_estimates(parts),
        within_slo=_merge_counts([part.within_slo for part in parts]),
    )


def _named(facts: Facts, replica: str) -> Facts:
    level = facts.levels["kv_usage_ratio"]
    worst = {"replica": replica, **level.worst}
    return changed(
        facts,
        levels=overlaid(
            facts.levels, {"kv_usage_ratio": Level(level.total, level.maximum, level.parts, worst)}
        ),
    )


def _merged(mappings: Sequence[Mapping[str, T]], merge: Callable[[Sequence[T]], T]) -> Mapping[str, T]:
    """Each name's values as one; what nobody asks for is not merged."""
    mappings = [mapping for mapping in mappings if possible_names(mapping)]
    if len(mappings) == 1:
        return mappings[0]

    def work(name: str) -> T | None:
        group = [value for mapping in mappings if (value := mapping.get(name)) is not None]
        if len(group) > 1:
            return merge(group)
        return group[0] if group else None

    return Lazy(joint_names(mappings), work)


def _merge_estimates(parts: Sequence[Facts]) -> Mapping[str, str]:
    """The first reason of each name; where a part that has a value is no estimate, it is one of a part."""
    names = joint_names([part.estimated for part in parts])
    if not names:
        return EMPTY

    def work(name: str) -> str | None:
        having = [part for part in parts if (gap := part.gaps.get(name)) is None or gap.parts < part.parts]
        reasons = [part.estimated.get(name) for part in having or parts]
        told = next(filter(None, reasons), None)
        if told is None or not any(reason is None or reason.startswith(_IN_PART) for reason in reasons):
            return told
        return _IN_PART + told.removeprefix(_IN_PART)

    return Lazy(names, work)


def _merge_counts(
    mappings: Sequence[Mapping[tuple[float, float] | None, float]],
) -> Mapping[tuple[float, float] | None, float]:
    merged: dict[tuple[float, float] | None, float] = {}
    for mapping in mappings:
        for slo, count in mapping.items():
            merged[slo] = merged.get(slo, 0.0) + count
    return merged


def _merge_levels(group: Sequence[Level]) -> Level:
    worst = max(group, key=lambda level: level.maximum)
    return Level(
        total=sum(level.total for level in group),
        maximum=worst.maximum,
        parts=sum(level.parts for level in group),
        worst=worst.worst,
    )


def _merge_gains(group: Sequence[Gain]) -> Gain:
    return Gain(sum([gain.increase for gain in group]), sum([gain.per_second for gain in group]))


def _merge_ratios(group: Sequence[Ratio]) -> Ratio:
    numerators: dict[int, float] = {}
    for ratio in group:
        for position, value in ratio.numerators.items():
            numerators[position] = numerators.get(position, 0.0) + value
    return Ratio(numerators, sum(ratio.denominator for ratio in group))


def graver(gaps: Sequence[Gap]) -> Gap:
    """The gap whose reason weighs most."""
    return max(gaps, key=lambda gap: _SEVERITY.index(gap.quality))


def _merge_gaps(group: Sequence[Gap]) -> Gap:
    gravest = graver(group)
    return Gap(gravest.quality, gravest.note, sum(gap.parts for gap in group))
