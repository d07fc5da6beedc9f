"""Signals from windowed facts: the one place where a number that people read is worked out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from types import MappingProxyType

from enginetop.fleet.facts import RATIOS, Facts, WindowFacts
from enginetop.fleet.histogram import HistogramIncrease
from enginetop.fleet.lazy import Lazy
from enginetop.fleet.model import Quality
from enginetop.fleet.signals import DISTRIBUTIONS, PERCENTILES, SIGNALS, Shape
from enginetop.fleet.snapshot import (
    NO_QUANTILE,
    Distribution,
    Quantile,
    RankSnapshot,
    Scalar,
    Signals,
    SignalValue,
)

_NOT_BY_RANK = "told for the whole replica only"
_REASONING_SHARE = "reasoning_share_ratio"
_SHORTEST_MEAN_SECONDS = 1e-4  # no request's first token or end comes sooner; such means are broken clocks

_LEVELS = ("requests_running", "requests_waiting", "kv_capacity_tokens")
_INCREASES = {"preemptions": "preemptions"}
_RATES = {
    "preemptions_per_second": "preemptions",
    "prompt_tokens_per_second": "prompt_tokens_processed",
    "generation_tokens_per_second": "generation_tokens",
    "requests_finished_per_second": "requests_finished",
    "requests_aborted_per_second": "requests_aborted",
}
_ZERO_DENOMINATOR = {
    "prefix_hit_ratio": "no queries in the window",
    "external_prefix_hit_ratio": "no queries in the window",
    "spec_acceptance_ratio": "no drafts in the window",
    "spec_accepted_length": "no drafts in the window",
    "spec_acceptance_per_position": "no drafts in the window",
}
OWN_MEANS = {
    "spec_acceptance_ratio": "spec_acceptance_ratio_now",
    "spec_accepted_length": "spec_accepted_length_now",
}
"""Gauges that stand in for a ratio of counters: an engine's own mean over its last few steps."""
_OWN_MEAN_NOTE = "the engine's own mean over its last steps, not over the window"
_PLAUSIBLE_FROM = frozenset({"ttft_seconds", "e2e_seconds"})
_REMARKS = {
    "itl_seconds": ("spec_drafts", "per output event: with speculation one event holds several tokens"),
    "tpot_seconds": ("preemptions", "includes time spent preempted"),
    "prefix_hit_ratio": ("preemptions", "preempted requests find their own blocks again: counted as hits"),
}
"""Remarks that belong to a signal once the named counter has grown in the window."""
_SOURCES = {"reasoning_tokens": "exact counts of single requests: enginetop_reasoning_tokens"}
MEASURES_OF: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        **{name: (name,) for name in (*_LEVELS, "kv_usage_ratio")},
        **{name: (measure,) for name, measure in (_INCREASES | _RATES).items()},
        **RATIOS,
        **{signal.name: (signal.name,) for signal in DISTRIBUTIONS},
        _REASONING_SHARE: ("reasoning_tokens", "output_tokens"),
    }
)
"""The measures that each signal is made of; the signals of GPUs and of cost are made of none."""
_MOST_SHARE = 1.05  # numbers of one page need not be of one instant
_SHARES = frozenset(name for name, signal in SIGNALS.items() if signal.unit == "ratio")
_RANKS: Mapping[str, float] = MappingProxyType(dict(PERCENTILES))
_NO_QUANTILES: Mapping[str, Quantile] = MappingProxyType({key: NO_QUANTILE for key, _ in PERCENTILES})

_Trust = tuple[Quality, str]


def signals(facts: Facts | WindowFacts) -> Signals:
    """Every signal of the catalogue, in its order, each worked out when it is asked for.

    What no page tells (power, energy, cost) is null with quality `unknown`; trackers put it in.
    """
    told = facts.total if isinstance(facts, WindowFacts) else facts
    return Lazy(SIGNALS, lambda name: _DERIVED.get(name, _not_here)(name, told))


def rank_signals(window: WindowFacts, whole: Signals | None = None) -> tuple[RankSnapshot, ...]:
    """A row for each rank that the page names; a single rank is the replica, and shares `whole` if given."""
    if len(window.ranks) == 1 and whole is not None:
        return (RankSnapshot(window.ranks[0].labels, whole),)
    return tuple(RankSnapshot(rank.labels, signals(rank.facts)) for rank in window.ranks)


@lru_cache(maxsize=256)
def no_signals(quality: Quality = Quality.UNKNOWN, note: str = "") -> Signals:
    """Every signal null, all for the same reason (no good page yet, replica away)."""
    return MappingProxyType({name: _null_value(name, quality, note) for name in SIGNALS})


@lru_cache(maxsize=4096)
def _null_value(name: str, quality: Quality, note: str) -> SignalValue:
    signal = SIGNALS[name]
    if signal.shape is Shape.DISTRIBUTION:
        return no_distribution(signal.unit, quality, note)
    return Scalar(None, signal.unit, quality, note)


def _null(name: str, facts: Facts, measure: str | None = None) -> SignalValue:
    gap = facts.gaps.get(measure or name)
    if gap is None:
        return _null_value(name, Quality.UNSUPPORTED, "")
    return _null_value(name, gap.quality, gap.note)


def _not_here(name: str, _: Facts) -> SignalValue:
    return _null_value(name, Quality.UNKNOWN, _NOT_BY_RANK)


def _level(name: str, facts: Facts) -> SignalValue:
    level = facts.levels.get(name)
    return _null(name, facts) if level is None else _scalar(name, level.total, _trust(facts, name))


def _gain(name: str, facts: Facts) -> SignalValue:
    rate = name in _RATES
    measure = _RATES[name] if rate else _INCREASES[name]
    gain = facts.gains.get(measure)
    if gain is None:
        return _null(name, facts, measure)
    return _scalar(name, gain.per_second if rate else gain.increase, _trust(facts, measure))


def _distribution(name: str, facts: Facts) -> SignalValue:
    histogram = facts.histograms.get(name)
    return _null(name, facts) if histogram is None else _told(name, SIGNALS[name].unit, facts, histogram)


def _scalar(name: str, value: float, trust: _Trust) -> Scalar:
    return Scalar(value, SIGNALS[name].unit, *trust)


def _trust(facts: Facts, *measures: str) -> _Trust:
    """Quality and note of a value that is there: whole, an estimate, or from part of the engines only."""
    for measure in () if facts.whole else measures:
        gap = facts.gaps.get(measure)
        if gap is not None and gap.parts:
            note = f"from {facts.parts - gap.parts} of {facts.parts} engines"
            if gap.quality is Quality.UNSUPPORTED:
                why = facts.estimated.get(measure)
                return (Quality.ESTIMATED, f"{note}; {why}") if why else (Quality.OK, note)
            return Quality.ESTIMATED, f"{note}; {gap.note}" if gap.note else note
    for measure in measures if facts.estimated else ():
        if measure in facts.estimated:
            return Quality.ESTIMATED, facts.estimated[measure]
    return Quality.OK, ""


def _kv_usage(name: str, facts: Facts) -> SignalValue:
    level = facts.levels.get(name)
    if level is None:
        return _null(name, facts)
    shares = (level.maximum, level.total / level.parts)
    quality, note = _plausible(name, shares, _trust(facts, name))
    return Scalar(
        value=level.maximum,
        unit=SIGNALS[name].unit,
        quality=quality,
        note=note,
        mean=shares[1],
        worst=level.worst if level.parts > 1 and level.worst else None,
    )


def _ratio(name: str, facts: Facts) -> SignalValue:
    ratio = facts.ratios.get(name)
    mean = facts.levels.get(OWN_MEANS[name]) if name in OWN_MEANS else None
    if mean is not None and (ratio is None or ratio.denominator <= 0):
        return Scalar(mean.total / mean.parts, SIGNALS[name].unit, Quality.ESTIMATED, _OWN_MEAN_NOTE)
    if ratio is None:
        return _null(name, facts)
    if ratio.denominator <= 0:
        return _null_value(name, Quality.UNKNOWN, _ZERO_DENOMINATOR[name])
    shares = tuple(ratio.numerators[position] / ratio.denominator for position in sorted(ratio.numerators))
    quality, note = _trust(facts, name, *RATIOS[name])
    condition, remark = _REMARKS.get(name, ("", ""))
    if facts.increase(condition):
        note = "; ".join(filter(None, (note, remark)))
    value: float | tuple[float, ...] = shares[0]
    if name == "spec_acceptance_per_position":
        value = shares
    elif name == "spec_accepted_length":
        value = 1.0 + shares[0]
    return Scalar(value, SIGNALS[name].unit, *_plausible(name, shares, (quality, note)))


def _plausible(name: str, shares: Sequence[float], trust: _Trust) -> _Trust:
    """Whether what should be shares of a whole can be: a percentage, or two counters that do not fit, cannot.

    A draft token counts as accepted only where the one before it was, so that shares by position never rise.
    """
    said = ""
    if name in _SHARES and not all(0.0 <= share <= _MOST_SHARE for share in shares):
        said = "not between 0 and 1"
    elif name == "spec_acceptance_per_position" and any(
        after > before + 0.01 for before, after in pairwise(shares)
    ):
        said = "rises from one position to the next: a counter is wrong"
    if not said:
        return trust
    return Quality.SUSPECT, "; ".join(filter(None, (said, trust[1])))


def _reasoning_share(_: str, facts: Facts) -> SignalValue:
    """Reasoning tokens over output tokens, both of exact histograms."""
    reasoning, output = facts.histograms.get("reasoning_tokens"), facts.histograms.get("output_tokens")
    for name, histogram in (("reasoning_tokens", reasoning), ("output_tokens", output)):
        if histogram is None:
            return _null(_REASONING_SHARE, facts, name)
    if reasoning is None or output is None or not reasoning.count or not output.count:
        return _null_value(_REASONING_SHARE, Quality.UNKNOWN, "no request in the window")
    spent, made = (None if one.sum_fell else one.sum for one in (reasoning, output))
    if spent is None or not made:
        return _null_value(_REASONING_SHARE, Quality.UNKNOWN, "no sums to take a share of")
    if spent > made:
        return _null_value(_REASONING_SHARE, Quality.SUSPECT, "more reasoning than output")
    quality, note = _trust(facts, "reasoning_tokens", "output_tokens")
    source = _SOURCES["reasoning_tokens"]
    fewer, more = sorted((reasoning.count, output.count))
    if more - fewer > 0.05 * more:
        said = f"reasoning of {reasoning.count:g} and output of {output.count:g} requests"
        return _scalar(_REASONING_SHARE, spent / made, (Quality.ESTIMATED, f"{said}; {source}"))
    return _scalar(_REASONING_SHARE, spent / made, (quality, f"{note}; {source}" if note else source))


def no_distribution(unit: str, quality: Quality, note: str) -> Distribution:
    """A distribution that is not known, and why."""
    return Distribution(None, None, NO_QUANTILE, _NO_QUANTILES, unit, quality, note)


def distribution_of(name: str, unit: str, facts: Facts) -> Distribution:
    """The distribution of a histogram that the facts hold; KeyError if they hold none."""
    return _told(name, unit, facts, facts.histograms[name])


def _told(name: str, unit: str, facts: Facts, histogram: HistogramIncrease) -> Distribution:
    quality, note = _trust(facts, name)
    if histogram.count <= 0:
        return Distribution(histogram.count, histogram.sum, NO_QUANTILE, _NO_QUANTILES, unit, quality, note)
    if name in _PLAUSIBLE_FROM and _implausible(histogram):
        return Distribution(
            histogram.count,
            histogram.sum,
            NO_QUANTILE,
            _NO_QUANTILES,
            unit,
            Quality.SUSPECT,
            "means under 0.1 ms: not plausible",
        )
    notes = [text for text in (note, _SOURCES.get(name)) if text]
    if histogram.sum_fell:
        quality = Quality.INVALID
        notes.append("the sum fell while the count rose: no mean")
    if histogram.corrected:
        quality = Quality.ESTIMATED if quality is Quality.OK else quality
        notes.append("bucket counts contradict each other")
    condition, remark = _REMARKS.get(name, ("", ""))
    if facts.increase(condition):
        notes.append(remark)
    mean = histogram.mean
    return Distribution(
        histogram.count,
        None if histogram.sum_fell else histogram.sum,
        NO_QUANTILE if mean is None else Quantile(mean),
        Lazy(_RANKS, lambda key: histogram.quantile(_RANKS[key])),
        unit,
        quality,
        "; ".join(notes),
    )


def _implausible(histogram: HistogramIncrease) -> bool:
    """Whether clocks are broken: everything in the lowest bucket, with a mean that no request can reach."""
    mean = histogram.mean
    lowest = histogram.cumulative[0] if histogram.cumulative else 0.0
    return mean is not None and 0 < mean < _SHORTEST_MEAN_SECONDS and lowest >= histogram.count


_DERIVED: Mapping[str, Callable[[str, Facts], SignalValue]] = MappingProxyType(
    {
        **dict.fromkeys(_LEVELS, _level),
        "kv_usage_ratio": _kv_usage,
        **dict.fromkeys((*_INCREASES, *_RATES), _gain),
        **dict.fromkeys(RATIOS, _ratio),
        _REASONING_SHARE: _reasoning_share,
        **{signal.name: _distribution for signal in DISTRIBUTIONS},
    }
)
"""How each signal is worked out; what is missing here no page tells."""
