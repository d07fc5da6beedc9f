"""Records of single requests: reasoning tokens and the exact share within the objective, over a window.

A record counts when `now - window < at <= now`. Quantiles are order statistics: the ceil(q n)-th smallest. A
reasoning count of 0 beside reasoning text is a count that was not made: unknown, and not counted. No p95
below 60 requests and no p99 below 300: that takes three in the tail.
"""

from __future__ import annotations

import math
from bisect import bisect_right, insort
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import attrgetter

from enginetop.fleet.frozen import frozen
from enginetop.fleet.model import Quality
from enginetop.fleet.signals import PERCENTILES, SIGNALS
from enginetop.fleet.snapshot import (
    NO_QUANTILE,
    Distribution,
    Goodput,
    Quantile,
    Scalar,
    Signals,
    SignalValue,
    Slo,
)

FEWEST: Mapping[str, int] = {"p95": 60, "p99": 300}
"""Requests that a quantile of single requests needs."""

MOST_RECORDS = 20_000
"""Of one target in a window; older ones make room (some 5 MB)."""

_MOST_PLACES = 3
_REASONING, _SHARE = "reasoning_tokens", "reasoning_share_ratio"
_NOT_COMPLETED = ("abort", "cancel", "error", "fail", "timeout")
_AT = attrgetter("at")


@frozen
class RequestFigures:
    """One request as its client, gateway or engine logged it: numbers only. None: not told."""

    at: float
    output_tokens: float | None = None
    reasoning_tokens: float | None = None
    reasoning_chars: float | None = None
    ttft_seconds: float | None = None
    tpot_seconds: float | None = None
    finish: str = ""
    thinking_token_budget: float | None = None
    """What its reasoning was limited to; None: not told."""
    source: str = ""
    """Where the record came from, as a screen names it; empty: from a recording."""

    @property
    def known_reasoning(self) -> float | None:
        """Reasoning tokens, None where none were counted although there is reasoning."""
        if self.reasoning_tokens == 0 and (self.reasoning_chars or 0.0) > 0:
            return None
        return self.reasoning_tokens

    @property
    def completed(self) -> bool:
        """Whether it ran to its end, as far as it says."""
        return not self.finish.lower().startswith(_NOT_COMPLETED)

    def within(self, slo: Slo) -> bool | None:
        """Whether it kept the objective; None where it does not tell enough. One token has no TPOT."""
        if self.ttft_seconds is None:
            return None
        if self.tpot_seconds is None:
            return self.ttft_seconds <= slo.ttft_seconds if self.output_tokens == 1 else None
        return self.ttft_seconds <= slo.ttft_seconds and self.tpot_seconds <= slo.tpot_seconds


Records = Sequence[RequestFigures]


class RequestLog:
    """The records of one target that may still count, by time."""

    def __init__(self, window_seconds: float) -> None:
        self._window_seconds = window_seconds
        self._records: list[RequestFigures] = []
        self._counted: tuple[RequestFigures, ...] = ()

    def add(self, record: RequestFigures) -> None:
        """Take one record; they need not come in order."""
        insort(self._records, record, key=_AT)
        if len(self._records) > MOST_RECORDS:
            del self._records[: MOST_RECORDS // 10]

    def counted(self, now: float) -> tuple[RequestFigures, ...]:
        """The records of the window that ends at `now`, the same object while they are the same.

        Those of before it are forgotten.
        """
        if not self._records:
            return ()
        del self._records[: bisect_right(self._records, now - self._window_seconds, key=_AT)]
        counted = tuple(self._records[: bisect_right(self._records, now, key=_AT)])
        if counted != self._counted:
            self._counted = counted
        return self._counted


def with_records(signals: Signals, records: Records) -> Signals:
    """The signals with reasoning tokens from records, where no engine side counted any itself."""
    own = signals[_REASONING]
    if not records or (isinstance(own, Distribution) and own.count):
        return signals
    return {**signals, _REASONING: _reasoning(records), _SHARE: _share(records)}


def judged_by_records(goodput: Goodput, judged: Sequence[tuple[RequestFigures, Slo]]) -> Goodput:
    """The goodput with the exact share of records, each held against its objective, where nobody counted."""
    if goodput.exact is not None or goodput.quality is Quality.SUSPECT:
        return goodput
    verdicts = [record.within(slo) for record, slo in judged if record.completed]
    told = [verdict for verdict in verdicts if verdict is not None]
    if not told:
        return goodput
    exact = sum(told) / len(told)
    rate = goodput.completed_per_second
    note = f"exact share of {len(told)} {origin([record for record, _ in judged])}"
    return replace(
        goodput,
        exact=exact,
        good_per_second=None if rate is None else rate * exact,
        quality=Quality.OK if len(told) == len(verdicts) else Quality.ESTIMATED,
        note=f"{note}; {goodput.note}" if goodput.note else note,
    )


def _reasoning(records: Records) -> SignalValue:
    known = sorted(tokens for record in records if (tokens := record.known_reasoning) is not None)
    unknown = len(records) - len(known)
    note = f"{origin(records)}: {len(known)} counted" + (f", {unknown} unknown" if unknown else "")
    if known and not known[-1]:
        note += "; every count is 0, as it is where the server has no reasoning parser"
    return distribution_of(known, SIGNALS[_REASONING].unit, note)


def distribution_of(values: Sequence[float], unit: str, note: str = "") -> Distribution:
    """Order statistics of single requests; the note also tells which tails there are too few for."""
    ascending = sorted(values)
    if not ascending:
        empty = {key: NO_QUANTILE for key, _ in PERCENTILES}
        return Distribution(0.0, 0.0, NO_QUANTILE, empty, unit, Quality.UNKNOWN, note)
    refused = [f"{key} needs {few}" for key, few in FEWEST.items() if len(ascending) < few]
    quantiles = {
        key: NO_QUANTILE if len(ascending) < FEWEST.get(key, 1) else _order_statistic(ascending, q)
        for key, q in PERCENTILES
    }
    total = sum(ascending)
    return Distribution(
        float(len(ascending)),
        total,
        Quantile(total / len(ascending)),
        quantiles,
        unit,
        Quality.OK,
        "; ".join(filter(None, [note, *refused])),
    )


def _share(records: Records) -> SignalValue:
    unit = SIGNALS[_SHARE].unit
    pairs = [
        (tokens, record.output_tokens)
        for record in records
        if (tokens := record.known_reasoning) is not None and record.output_tokens is not None
    ]
    output = sum(made for _, made in pairs)
    if output <= 0:
        return Scalar(None, unit, Quality.UNKNOWN, "no record counts reasoning and output")
    spent = sum(tokens for tokens, _ in pairs)
    if spent > output or not math.isfinite(output):
        return Scalar(None, unit, Quality.SUSPECT, "more reasoning than output")
    return Scalar(spent / output, unit, Quality.OK, f"{len(pairs)} {origin(records)}")


def origin(records: Records) -> str:
    """What the records are called, with the places that they came from: `request records of usage.jsonl`."""
    places = sorted({record.source for record in records if record.source})
    if not places:
        return "request records"
    more = f" and {len(places) - _MOST_PLACES} more" if len(places) > _MOST_PLACES else ""
    return f"request records of {', '.join(places[:_MOST_PLACES])}{more}"


def _order_statistic(ascending: Sequence[float], q: float) -> Quantile:
    """The ceil(q n)-th smallest. The product is rounded: 0.95 x 60 is 57, whatever floats make of it."""
    rank = max(1, math.ceil(round(q * len(ascending), 9)))
    value = ascending[rank - 1]
    return Quantile(value, value, value)
