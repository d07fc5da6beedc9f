"""Expressions on the signals of a replica. Three answers: true, false, not known (None)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from operator import eq, ge, gt, le, lt, ne

from enginetop.alerts.grammar import Comparison, Expression
from enginetop.fleet.model import BELIEVED
from enginetop.fleet.snapshot import NO_QUANTILE, Distribution, Quantile, Scalar, Signals

_TESTS: Mapping[str, Callable[[float, float], bool]] = {
    ">": gt,
    ">=": ge,
    "<": lt,
    "<=": le,
    "==": eq,
    "!=": ne,
}


def holds(expression: Expression, signals: Signals) -> bool | None:
    """Whether the expression is true; None when that depends on something that is not known."""
    doubt = False
    for all_of in expression.any_of:
        found = [compare(comparison, signals) for comparison in all_of]
        if all(found):
            return True
        doubt = doubt or (False not in found)
    return None if doubt else False


def compare(comparison: Comparison, signals: Signals) -> bool | None:
    """Whether one comparison is true. A quantile past the last finite bucket is at least that bound."""
    quantile = value_of(comparison, signals)
    if quantile.censored:
        return _compare_censored(comparison, quantile.low)
    if quantile.value is None or not math.isfinite(quantile.value):
        return None
    return _TESTS[comparison.operator](quantile.value, comparison.number)


def value_of(comparison: Comparison, signals: Signals) -> Quantile:
    """What the comparison looks at; a plain number is a quantile with a value only."""
    signal = signals.get(comparison.signal)
    if signal is None or signal.quality not in BELIEVED:
        return NO_QUANTILE
    if isinstance(signal, Scalar):
        return Quantile(signal.number)
    return _part(signal, comparison.part)


def _part(distribution: Distribution, part: str) -> Quantile:
    if part == "count":
        return Quantile(distribution.count)
    if part == "mean":
        return Quantile(distribution.mean.value)
    return distribution.quantiles.get(part, NO_QUANTILE)


def _compare_censored(comparison: Comparison, low: float | None) -> bool | None:
    """The true value lies above `low`, nobody knows how far."""
    if low is None or comparison.number > low:
        return None
    return comparison.operator in (">", ">=", "!=")
