"""Figures in JSON: signals, distributions, goodput. A number that is not finite becomes null."""

from __future__ import annotations

import math
from typing import Any

from enginetop.fleet.model import Quality
from enginetop.fleet.snapshot import (
    BurnRow,
    Distribution,
    Goodput,
    Quantile,
    Scalar,
    Signals,
    SignalValue,
    Slo,
    Span,
)

Json = dict[str, Any]


def signals_document(signals: Signals) -> Json:
    """Each of these signals, by name."""
    return {name: signal_document(name, value) for name, value in signals.items()}


def signal_document(name: str, value: SignalValue) -> Json:
    """One entry of `signals`. `kv_usage_ratio` alone carries `mean`, and `worst` where there are ranks."""
    document = _distribution(value) if isinstance(value, Distribution) else _scalar(name, value)
    if value.note:
        document["note"] = value.note
    return document


def _scalar(name: str, scalar: Scalar) -> Json:
    if isinstance(scalar.value, tuple):
        value: Any = [finite(item) for item in scalar.value]
        lost = None in value
    else:
        value = finite(scalar.value)
        lost = value is None and scalar.value is not None
    quality = Quality.INVALID if lost else scalar.quality
    document: Json = {"value": value, "unit": scalar.unit, "quality": quality.value}
    if name == "kv_usage_ratio":
        document["mean"] = finite(scalar.mean)
        if scalar.worst is not None:
            document["worst"] = dict(scalar.worst)
    return document


def _distribution(distribution: Distribution) -> Json:
    return {
        "count": finite(distribution.count),
        "sum": finite(distribution.sum),
        "mean": _quantile(distribution.mean),
        **{name: _quantile(quantile) for name, quantile in distribution.quantiles.items()},
        "unit": distribution.unit,
        "quality": distribution.quality.value,
    }


def _quantile(quantile: Quantile) -> Json:
    return {
        "value": finite(quantile.value),
        "low": finite(quantile.low),
        "high": finite(quantile.high),
        "censored": quantile.censored,
    }


def goodput_document(goodput: Goodput, slo: Slo) -> Json:
    """Goodput, what it is held against, and how its budget burns.

    Without histograms a rate that was counted is its own bound.
    """
    within = _span(goodput.within_per_second)
    if within["low"] is None:
        within["low"] = within["high"] = finite(goodput.good_per_second)
    return {
        "offered_per_second": finite(goodput.offered_per_second),
        "requests_per_second": within,
        "attainment": {
            "ttft": _quantile(goodput.ttft),
            "tpot": _quantile(goodput.tpot),
            "joint": {**_span(goodput.joint), "exact": finite(goodput.exact)},
        },
        "slo": {
            "ttft_seconds": finite(slo.ttft_seconds),
            "tpot_seconds": finite(slo.tpot_seconds),
            "target": finite(slo.target),
            "source": slo.source,
        },
        "burn": [_burn(row) for row in goodput.burn],
        "quality": goodput.quality.value,
        "note": goodput.note,
    }


def _span(span: Span) -> Json:
    return {"low": finite(span.low), "high": finite(span.high), "independent": finite(span.independent)}


def _burn(row: BurnRow) -> Json:
    return {
        "long_seconds": finite(row.long_seconds),
        "short_seconds": finite(row.short_seconds),
        "long": finite(row.long),
        "short": finite(row.short),
        "threshold": finite(row.threshold),
        "firing": row.firing,
        "reachable": row.reachable,
    }


def finite(value: float | None) -> float | None:
    """The number, or None where it is none or JSON has no word for it."""
    return None if value is None or not math.isfinite(value) else value
