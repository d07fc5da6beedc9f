"""How rules speak: numbers in words, and rows that change nothing."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from itertools import pairwise

from enginetop.fleet.lazy import possible_names
from enginetop.fleet.model import BELIEVED, ReplicaState
from enginetop.fleet.snapshot import Advice, Distribution, Quantile, Scalar
from tuners.case import Case
from tuners.limits import FRESH, SUSTAINED_SECONDS

LONGER_WINDOW = "where traffic stays low, a longer --window has them"
"""What helps when a window holds too few requests, and waiting does not."""


def at_least(quantile: Quantile) -> float:
    """The quantile; of one past the last bucket that bucket's bound."""
    known = quantile.at_least
    return 0.0 if known is None else known


def time_text(quantile: Quantile) -> str:
    """A quantile in ms or s, `over` the last bound where it is past it."""
    return f"{'over ' if quantile.censored else ''}{ms(at_least(quantile))}"


def ms(seconds: float) -> str:
    """`61 ms`, `1.25 s`."""
    return f"{1e3 * seconds:.0f} ms" if seconds < 1 else f"{seconds:.2f} s"


def percent(ratio: float) -> str:
    """`58 %`."""
    return f"{100 * ratio:.0f} %"


def count(tokens: float) -> str:
    """`980`, `16.5k`."""
    return f"{tokens / 1e3:.1f}k" if tokens >= 1000 else f"{tokens:.0f}"


def not_fresh(case: Case) -> str | None:
    """Why the numbers of a replica say nothing about now; None: they do."""
    state = case.replica.state
    if state is ReplicaState.NO_PROGRESS:
        return "no progress: the engine's counters do not move"
    return None if state in FRESH else f"no fresh numbers: the replica is {state.value}"


def missing(name: str, signal: Scalar | Distribution) -> str:
    """That a signal is not there, and why: `tpot_seconds is unsupported: NOTE`."""
    note = f": {signal.note}" if signal.note else ""
    return f"{name} is {signal.quality.value}{note}"


def lacking(case: Case, names: Iterable[str]) -> str | None:
    """The first of these scalars that cannot be believed, and why; None: all can."""
    for name in names:
        signal = case.replica.scalar(name)
        number = signal.number
        if number is None or signal.quality not in BELIEVED:
            return missing(name, signal)
        if not 0.0 <= number < math.inf:
            return f"{name} is {number:g}: not to be believed"
    return None


@lru_cache(maxsize=64)
def _rising(names: frozenset[str]) -> tuple[str, ...]:
    return tuple(sorted(names))


def contradiction(distribution: Distribution) -> str | None:
    """Why the figures of a distribution cannot all be true; None: they can."""
    figures = [distribution.count, distribution.mean.value]
    quantiles = distribution.quantiles
    found = [quantiles.get(key) for key in _rising(possible_names(quantiles))]
    rising = [quantile for quantile in found if quantile is not None]
    for quantile in rising:
        figures += [quantile.value, quantile.low, quantile.high]
    for figure in figures:
        if figure is not None and not 0.0 <= figure < math.inf:
            return f"holds {figure:g}: not to be believed"
    known = [quantile.value for quantile in rising if quantile.value is not None]
    if any(later < earlier for earlier, later in pairwise(known)):
        return "has percentiles that fall: not to be believed"
    return None


def too_short(case: Case) -> str | None:
    """Why a call is not sustained yet; None: it is."""
    if case.held_seconds >= SUSTAINED_SECONDS:
        return None
    return f"seen for {case.held_seconds:.0f} s, a suggestion needs {SUSTAINED_SECONDS:.0f} s"


def known_count(distribution: Distribution) -> float:
    """Observations in the window, 0 where they are not known."""
    return distribution.count or 0.0


def row(
    knob: str, action: str, why: str, current: float | None, *before: str, bound_by: str = "unknown"
) -> Advice:
    """A row that changes nothing, with the reason last."""
    return Advice(knob, action, (*before, why), current=current, bound_by=bound_by)
