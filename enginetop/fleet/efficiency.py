"""Energy and cost of tokens, over the same window as the token rate.

J/token = mean power of the GPUs / tokens per second. Cost of a million tokens = price of a GPU hour x GPUs /
tokens per hour x 10^6; of a million good ones: that / the share of requests that were within the objective,
all that ended counted. What several replicas share can be split between them by nobody, and is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping

from enginetop.fleet.frozen import frozen
from enginetop.fleet.model import BELIEVED, Quality
from enginetop.fleet.signals import SIGNALS
from enginetop.fleet.snapshot import Goodput, Scalar, Signals, SignalValue

_MOST_SAMPLES = 2048
_TOKENS = "generation_tokens_per_second"
_ENERGY, _COST, _GOOD_COST = (
    "energy_joules_per_token",
    "cost_per_million_tokens",
    "cost_per_million_good_tokens",
)


EFFICIENCY = (_ENERGY, _COST, _GOOD_COST)
"""The signals of energy and cost."""


@frozen
class Price:
    """What an hour of one GPU costs, in `currency` (a text; empty: not said)."""

    per_gpu_hour: float
    currency: str = ""


class MeanPower:
    """Watts over the last `window_seconds`; at most 2048 samples and their objects."""

    def __init__(self, window_seconds: float) -> None:
        self._window_seconds = window_seconds
        self._samples: list[tuple[float, float]] = []

    def add(self, at: float, power: Scalar) -> None:
        """Take the power at Unix time `at`; figures that are not of then are passed over."""
        if power.number is not None and power.quality is Quality.OK:
            while self._samples and self._samples[-1][0] >= at:
                self._samples.pop()
            self._samples.append((at, power.number))
            del self._samples[:-_MOST_SAMPLES]

    def mean(self, now: float) -> float | None:
        """Mean of the samples of the window that ends at `now`; None without one."""
        samples = self._samples
        while samples and samples[0][0] <= now - self._window_seconds:
            del samples[0]
        return sum([watts for _, watts in samples]) / len(samples) if samples else None


def efficiency(
    signals: Signals,
    goodput: Goodput,
    *,
    mean_watts: float | None,
    gpus: int | None,
    why_not: str,
    price: Price | None,
) -> Mapping[str, SignalValue]:
    """The signals of energy and cost. `why_not` says why power or the number of GPUs is not known."""
    tokens = signals[_TOKENS]
    rate = tokens.number if isinstance(tokens, Scalar) and tokens.quality in BELIEVED else None
    unit = price.currency if price is not None and price.currency else SIGNALS[_COST].unit
    if rate is None or rate <= 0:
        why = "no tokens in the window" if rate is not None else "the token rate is not known"
        return {
            _ENERGY: _unknown(SIGNALS[_ENERGY].unit, why),
            _COST: _unknown(unit, why),
            _GOOD_COST: _unknown(unit, why),
        }
    if mean_watts is None:
        energy = _unknown(SIGNALS[_ENERGY].unit, why_not)
    else:
        energy = Scalar(mean_watts / rate, SIGNALS[_ENERGY].unit, tokens.quality, tokens.note)
    if price is None or gpus is None:
        cost = _unknown(unit, "no price: set per_gpu_hour in [cost]" if price is None else why_not)
        return {_ENERGY: energy, _COST: cost, _GOOD_COST: cost}
    per_million = price.per_gpu_hour * gpus / (rate * 3600.0) * 1e6
    why = tokens.note if tokens.quality is Quality.ESTIMATED else ""
    note = _joined("1 GPU" if gpus == 1 else f"{gpus} GPUs", why)
    cost = Scalar(per_million, unit, tokens.quality, note)
    return {_ENERGY: energy, _COST: cost, _GOOD_COST: _good(per_million, unit, goodput, why)}


def _good(per_million: float, unit: str, goodput: Goodput, why: str) -> Scalar:
    """Cost of a million tokens of requests within the objective; `why` the rate of tokens is an estimate."""
    counted = goodput.good_per_second is not None
    good = goodput.good_per_second if counted else goodput.within_per_second.independent
    if good is None or not goodput.offered_per_second:
        return _unknown(unit, "goodput is not known")
    if good <= 0:
        return _unknown(unit, "no request was within the objective")
    counted = counted and goodput.quality is Quality.OK and not why
    quality = Quality.OK if counted else Quality.ESTIMATED
    share = min(1.0, good / goodput.offered_per_second)
    note = _joined("good tokens by the share of requests", why)
    return Scalar(per_million / share, unit, quality, note)


def _joined(*notes: str) -> str:
    return "; ".join(filter(None, notes))


def _unknown(unit: str, note: str) -> Scalar:
    return Scalar(None, unit, Quality.UNKNOWN, note)
