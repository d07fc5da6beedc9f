"""Attainment from histograms: the share of requests within each half of the objective, and bounds of both.

A histogram tells marginals only. Bounds of the joint share are Fréchet's, from the shares at the edges of the
objective's buckets, so that the truth lies between them whatever the dependence; the product of the two
shares is a reference (TTFT and TPOT are usually positively correlated, so that the truth is nearer the upper
bound). An engine counts TTFT at the first token and TPOT at the end, of requests that may differ within a
window; a companion counts both at the end, so that its histograms go first: their bounds are hard.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from enginetop.fleet.facts import Facts
from enginetop.fleet.frozen import frozen
from enginetop.fleet.histogram import HistogramIncrease
from enginetop.fleet.model import Quality
from enginetop.fleet.snapshot import (
    NO_QUANTILE,
    NO_SPAN,
    Distribution,
    Quantile,
    Signals,
    Slo,
    Span,
)

_TTFT, _TPOT = "ttft_seconds", "tpot_seconds"
_COMPLETED_TTFT, _COMPLETED_TPOT = "completed_ttft_seconds", "completed_tpot_seconds"
_SAME_POPULATION = (
    0.05  # relative difference of the counts up to which two histograms tell of the same requests
)
_WORDS = {_TTFT: "TTFT", _TPOT: "TPOT"}


@frozen
class Attainment:
    """Shares of requests within the objective; `note` says what they lack, or why they may mislead."""

    ttft: Quantile = NO_QUANTILE
    tpot: Quantile = NO_QUANTILE
    joint: Span = NO_SPAN
    note: str = ""


def attainment(signals: Signals, facts: Facts, slo: Slo) -> Attainment:
    """Of one replica, or of a fleet whose replicas have one objective: buckets are merged at common bounds.

    `signals` are those made of `facts`: a distribution that they call suspect is not judged.
    """
    completed = _completed(facts)
    if completed is not None:
        ttft, tpot = (one.share_within(limit) for one, limit in zip(completed, slo.limits, strict=True))
        return Attainment(ttft, tpot, joint_share(ttft, tpot))
    ttft, tpot = (
        _judged(signals, facts, name, limit)
        for name, limit in ((_TTFT, slo.ttft_seconds), (_TPOT, slo.tpot_seconds))
    )
    return _both(ttft, tpot, _counts(facts), _remarks(signals, facts))


def own_attainment(signals: Signals, facts: Facts, parts: Iterable[tuple[Facts, Slo]]) -> Attainment:
    """Of a fleet, each replica held against its own objective: counts within it are added.

    `signals` and `facts` are those of the whole fleet.
    """
    judged = [
        (*(_completed(part) or (part.histograms.get(_TTFT), part.histograms.get(_TPOT))), slo)
        for part, slo in parts
    ]
    ttft = _added([(one.share_within(slo.ttft_seconds), one.count) for one, _, slo in judged if one])
    tpot = _added([(one.share_within(slo.tpot_seconds), one.count) for _, one, slo in judged if one])
    return _both(
        ttft, tpot, _counts(facts), ["each replica against its own objective", *_remarks(signals, facts)]
    )


def joint_share(*shares: Quantile) -> Span:
    """Share of requests within all of several limits, from the shares within each (Fréchet's bounds).

    None known, if one of them is not.
    """
    lows = [share.low for share in shares if share.low is not None]
    highs = [share.high for share in shares if share.high is not None]
    if not shares or len(lows) < len(shares) or len(highs) < len(shares):
        return NO_SPAN
    independent: float | None = 1.0
    for share in shares:
        independent = None if independent is None or share.value is None else independent * share.value
    high = min(highs)
    return Span(min(high, max(0.0, sum(lows) - (len(shares) - 1))), high, independent)


def times(span: Span, rate: float | None) -> Span:
    """The rate of requests that a share stands for."""
    if rate is None:
        return NO_SPAN
    return Span(
        *(None if share is None else share * rate for share in (span.low, span.high, span.independent))
    )


def _both(ttft: Quantile, tpot: Quantile, counts: Sequence[float], notes: Sequence[str]) -> Attainment:
    said = list(notes)
    fewer, more = sorted(counts)
    if fewer > 0 and more - fewer > _SAME_POPULATION * more:
        said.append(f"TTFT of {counts[0]:g} and TPOT of {counts[1]:g} requests: not the same ones")
    return Attainment(ttft, tpot, joint_share(ttft, tpot), "; ".join(said))


def _completed(facts: Facts) -> tuple[HistogramIncrease, HistogramIncrease] | None:
    """Histograms of completed requests, where every engine's companion told them."""
    ttft, tpot = facts.histograms.get(_COMPLETED_TTFT), facts.histograms.get(_COMPLETED_TPOT)
    if not ttft or not tpot or _COMPLETED_TTFT in facts.gaps or _COMPLETED_TPOT in facts.gaps:
        return None
    return (ttft, tpot) if ttft.count and tpot.count else None


def _judged(signals: Signals, facts: Facts, name: str, limit: float) -> Quantile:
    histogram = facts.histograms.get(name)
    if histogram is None or signals[name].quality is Quality.SUSPECT:
        return NO_QUANTILE
    return histogram.share_within(limit)


def _added(shares: Sequence[tuple[Quantile, float]]) -> Quantile:
    """One share over all; a share that is not known within its bucket leaves the whole so."""
    known = [(share, count) for share, count in shares if share.low is not None and share.high is not None]
    total = sum(count for _, count in known)
    if total <= 0:
        return NO_QUANTILE
    low = sum(count * (share.low or 0.0) for share, count in known) / total
    high = sum(count * (share.high or 0.0) for share, count in known) / total
    values = [count * share.value for share, count in known if share.value is not None]
    value = sum(values) / total if len(values) == len(known) else None
    return Quantile(value, low, high, censored=any(share.censored for share, _ in known))


def _counts(facts: Facts) -> tuple[float, float]:
    ttft, tpot = facts.histograms.get(_TTFT), facts.histograms.get(_TPOT)
    return (ttft.count if ttft else 0.0, tpot.count if tpot else 0.0)


def _remarks(signals: Signals, facts: Facts) -> list[str]:
    """Why there is no share within one half of the objective or the other."""
    remarks = []
    for name, word in _WORDS.items():
        signal = signals[name]
        if name not in facts.histograms:
            why = f": {signal.note}" if signal.note else " exported"
            remarks.append(f"no {word} histogram{why}")
        elif signal.quality is Quality.SUSPECT:
            remarks.append(f"{word} is not judged: {signal.note}")
        elif isinstance(signal, Distribution) and not signal.count:
            remarks.append(f"no {word} in the window")
    if _TPOT not in facts.histograms and facts.increase("spec_drafts"):
        remarks.append("ITL is per output event with speculation and stands for no TPOT")
    return remarks
