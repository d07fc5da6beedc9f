"""Probabilities that the standard library lacks: Student's t and the tail of a binomial count."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

_NORMAL = NormalDist()
_MOST_TERMS = 300
_CLOSE = 1e-14
_TINY = 1e-300


def normal_quantile(probability: float) -> float:
    """The standard normal's quantile, 0 < probability < 1."""
    return _NORMAL.inv_cdf(probability)


def normal_cdf(z: float) -> float:
    """P(Z <= z) of the standard normal."""
    return _NORMAL.cdf(z)


def binomial_tail(count: float, trials: float, probability: float) -> float:
    """P(X >= count) of a binomial X, exactly; `count` and `trials` are rounded to whole numbers."""
    least, total = round(count), round(trials)
    if least <= 0 or probability >= 1.0:
        return 1.0
    if least > total or probability <= 0.0:
        return 0.0
    log_term = (
        math.lgamma(total + 1)
        - math.lgamma(least + 1)
        - math.lgamma(total - least + 1)
        + least * math.log(probability)
        + (total - least) * math.log1p(-probability)
    )
    term, found = math.exp(log_term), 0.0
    odds = probability / (1.0 - probability)
    for reached in range(least, total + 1):
        found += term
        term *= odds * (total - reached) / (reached + 1)
        if reached > total * probability and term < found * _CLOSE:
            break
    return min(1.0, found)


@lru_cache(maxsize=256)
def t_quantile(probability: float, degrees: float) -> float:
    """The quantile of Student's t with `degrees` > 0 of freedom, 0 < probability < 1."""
    if probability < 0.5:
        return -t_quantile(1.0 - probability, degrees)
    low, high = 0.0, 1.0
    while t_cdf(high, degrees) < probability:
        low, high = high, high * 2.0
    for _ in range(200):
        middle = (low + high) / 2.0
        if t_cdf(middle, degrees) < probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2.0


def t_cdf(t: float, degrees: float) -> float:
    """P(T <= t) of Student's t with `degrees` of freedom."""
    tail = 0.5 * _incomplete_beta(degrees / 2.0, 0.5, degrees / (degrees + t * t))
    return 1.0 - tail if t >= 0 else tail


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function I_x(a, b)."""
    if x <= 0.0 or x >= 1.0:
        return 0.0 if x <= 0.0 else 1.0
    if x > (a + 1.0) / (a + b + 2.0):
        return 1.0 - _incomplete_beta(b, a, 1.0 - x)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return math.exp(log_front) * _beta_fraction(a, b, x) / a


def _beta_fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of I_x(a, b), by Lentz's method (Numerical Recipes, 6.4)."""
    c, d = 1.0, 1.0 / _off_zero(1.0 - (a + b) * x / (a + 1.0))
    fraction = d
    for m in range(1, _MOST_TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1.0 / _off_zero(1.0 + term * d)
            c = _off_zero(1.0 + term / c)
            fraction *= c * d
        if abs(c * d - 1.0) < _CLOSE:
            break
    return fraction


def _off_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
