"""What reasoning costs beyond its tokens: requests that use up their thinking budget, and KV cache.

A request has reached its budget when it counts at least as many reasoning tokens. Of a histogram that is
known between two bounds unless one of its edges is the last number below the budget.

KV: a request holds its prompt and, on average while it is decoded, half of its output, so that reasoning of
`r` tokens holds r / 2 of them in each running request. That is the least: reasoning comes before the answer
and stays while that is written.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence

from enginetop.fleet.frozen import frozen
from enginetop.fleet.histogram import HistogramIncrease
from enginetop.fleet.model import Quality
from enginetop.fleet.reading import ConfigValue
from enginetop.fleet.request_records import Records
from enginetop.fleet.signals import SIGNALS
from enginetop.fleet.snapshot import Distribution, Scalar, Signals

BUDGET = "thinking_token_budget"
HIT_RATIO, KV_TOKENS = "reasoning_budget_hit_ratio", "reasoning_kv_tokens"

SLACK_TOKENS = 32
"""What an engine may write beyond a budget in force before the end of thinking is in place."""
_WIDEST = 0.1
"""Between bounds further apart than this no single number is told."""


@frozen
class BudgetHits:
    """Requests of `judged` that reached their thinking budget: at least `least`, at most `most`."""

    least: float
    most: float
    judged: float


def as_budget(value: float | str | bool | None) -> float | None:
    """A budget that limits anything: engines write -1 for none, and 0 turns reasoning off."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        return None
    return float(value)


def budget_of(config: Mapping[str, ConfigValue]) -> float | None:
    """The thinking budget in tokens that an engine applies by default; None: none, or not known."""
    setting = config.get(BUDGET)
    return as_budget(setting.value if setting is not None else None)


def hits_in_records(records: Records, budget: float | None) -> BudgetHits | None:
    """Of single requests, each against its own budget, else `budget`; None where no budget is known."""
    judged = [
        tokens >= limit
        for record in records
        if (tokens := record.known_reasoning) is not None
        and (limit := as_budget(record.thinking_token_budget) or budget) is not None
    ]
    return BudgetHits(sum(judged), sum(judged), len(judged)) if judged else None


def hits_in_histogram(histogram: HistogramIncrease, budget: float | None) -> BudgetHits | None:
    """Of a distribution; None without observations or without a budget."""
    if budget is None or histogram.count <= 0:
        return None
    below = budget - 1  # tokens are whole: who counts more has reached the budget
    bounds, cumulative, count = histogram.bounds, histogram.cumulative, histogram.count
    index = bisect_left(bounds, below)
    least = count - cumulative[index] if index < len(bounds) else 0.0
    if index < len(bounds) and bounds[index] == below:
        return BudgetHits(least, least, count)
    return BudgetHits(least, count - cumulative[index - 1] if index else count, count)


def hit_ratio(parts: Iterable[BudgetHits | None]) -> Scalar:
    """The share of requests that reached their budget, of all parts whose budget is known."""
    unit = SIGNALS[HIT_RATIO].unit
    known = [part for part in parts if part is not None]
    judged = sum(part.judged for part in known)
    if not judged:
        return Scalar(None, unit, Quality.UNKNOWN, "no counted request with a known thinking budget")
    least, most = sum(part.least for part in known) / judged, sum(part.most for part in known) / judged
    if least == most:
        return Scalar(least, unit, Quality.OK, f"of {judged:g} requests")
    between = f"between {100 * least:.1f} and {100 * most:.1f} % of {judged:g} requests"
    if most - least > _WIDEST:
        return Scalar(None, unit, Quality.UNKNOWN, f"{between}: the budget lies inside a bucket")
    return Scalar((least + most) / 2, unit, Quality.ESTIMATED, between)


def kv_tokens(signals: Signals) -> Scalar:
    """KV tokens that the reasoning of running requests holds, from the mean of the finished ones."""
    unit = SIGNALS[KV_TOKENS].unit
    thought, running = signals["reasoning_tokens"], signals["requests_running"]
    mean = thought.mean.value if isinstance(thought, Distribution) else None
    batch = running.number if isinstance(running, Scalar) else None
    if mean is None or batch is None:
        missing = "reasoning tokens" if mean is None else "requests running"
        return Scalar(None, unit, Quality.UNKNOWN, f"{missing} not known")
    held = mean / 2 * batch
    stale = Quality.STALE in (thought.quality, running.quality)
    note = f"at least: half of {mean:.0f} tokens in each of {batch:g} running requests"
    capacity = signals["kv_capacity_tokens"]
    if isinstance(capacity, Scalar) and capacity.number:
        note += f", {100 * held / capacity.number:.1f} % of the KV cache"
    return Scalar(held, unit, Quality.STALE if stale else Quality.ESTIMATED, note)


def kv_tokens_of_all(replicas: Sequence[Signals], whole: Signals) -> Scalar:
    """What the running requests of several replicas hold, from what each of them tells by itself.

    One mean for all would be multiplied by the requests of models that do not reason. It is taken, of
    `whole`, where no replica tells, as where nobody knows whose the records are.
    """
    told = [signals.get(KV_TOKENS) for signals in replicas]
    known = [one for one in told if isinstance(one, Scalar) and one.quality is Quality.ESTIMATED]
    if not known:
        return kv_tokens(whole)
    if len(told) == 1:
        return known[0]
    held = sum([one.number or 0.0 for one in known])
    note = f"at least: of {len(known)} of {len(told)} replicas"
    return Scalar(held, known[0].unit, Quality.ESTIMATED, note)
